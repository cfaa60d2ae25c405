//! Reads `#[task(...)]`.
//!
//! Owns the keys and their values; what they expand to is `expand`. All mistakes of one attribute
//! are reported together, each at the token that has to change.

use syn::meta::ParseNestedMeta;
use syn::parse::ParseStream;
use syn::{DeriveInput, Error, Ident, LitInt, LitStr, Path, Result, Token, Type};

use crate::check::{self, DELAY, DOUBLING_WAIT, FIXED_WAIT, Limits, MAX_RETRIES, TIMEOUT};

/// The keys, in the order of the documentation.
const KEYS: &str = "name, output, error, codec, queue, max_retries, backoff, timeout, delay, crate";

/// What `#[task(...)]` said. Everything but the name is optional.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) name: Option<LitStr>,
    pub(crate) output: Option<Type>,
    pub(crate) error: Option<Type>,
    pub(crate) codec: Option<Codec>,
    pub(crate) queue: Option<LitStr>,
    pub(crate) max_retries: Option<u32>,
    pub(crate) backoff: Option<Backoff>,
    pub(crate) timeout: Option<Millis>,
    pub(crate) delay: Option<Millis>,
    pub(crate) krate: Option<Path>,
}

/// A checked duration.
#[derive(Clone, Copy)]
pub(crate) struct Millis(pub(crate) u64);

#[derive(Clone, Copy)]
pub(crate) enum Codec {
    MessagePack,
    Json,
}

#[derive(Clone, Copy)]
pub(crate) enum Backoff {
    Curve,
    Fixed(Millis),
    Exponential { initial: Millis, max: Millis },
}

impl Args {
    /// Reads every `#[task(...)]` of the type.
    pub(crate) fn read(input: &DeriveInput) -> Result<Self> {
        let mut args = Self::default();
        let mut mistakes = Mistakes(None);
        for attribute in &input.attrs {
            if attribute.path().is_ident("task") {
                // What cannot be parsed ends this attribute; wrong values do not.
                let parsed =
                    attribute.parse_nested_meta(|meta| args.read_key(&meta, &mut mistakes));
                mistakes.note(parsed);
            }
        }
        if args.name.is_none() && mistakes.0.is_none() {
            return Err(Error::new(
                input.ident.span(),
                "a task needs a name that stays when the type is renamed: \
                 add `#[task(name = \"...\")]`",
            ));
        }
        mistakes.0.map_or(Ok(args), Err)
    }

    fn read_key(&mut self, meta: &ParseNestedMeta<'_>, mistakes: &mut Mistakes) -> Result<()> {
        let key = meta.path.require_ident()?.to_string();
        match key.as_str() {
            "name" => set(&mut self.name, meta, mistakes, |v| {
                read_name(v, "task name")
            }),
            "output" => set(&mut self.output, meta, mistakes, read),
            "error" => set(&mut self.error, meta, mistakes, read),
            "codec" => set(&mut self.codec, meta, mistakes, read_codec),
            "queue" => set(&mut self.queue, meta, mistakes, |v| {
                read_name(v, "queue name")
            }),
            "max_retries" => set(&mut self.max_retries, meta, mistakes, read_count),
            "backoff" => set(&mut self.backoff, meta, mistakes, read_backoff),
            "timeout" => set(&mut self.timeout, meta, mistakes, |v| {
                read_duration(v, &TIMEOUT)
            }),
            "delay" => set(&mut self.delay, meta, mistakes, |v| {
                read_duration(v, &DELAY)
            }),
            "crate" => set(&mut self.krate, meta, mistakes, |v| {
                Path::parse_mod_style(v).map(Value::Good)
            }),
            _ => Err(meta.error(format!("unknown key `{key}`, expected one of {KEYS}"))),
        }
    }
}

/// A value that was parsed; a bad one is reported, and the keys after it are read all the same.
enum Value<V> {
    Good(V),
    Bad(Error),
}

impl<V> Value<V> {
    fn map<W>(self, made: impl FnOnce(V) -> W) -> Value<W> {
        match self {
            Self::Good(value) => Value::Good(made(value)),
            Self::Bad(mistake) => Value::Bad(mistake),
        }
    }
}

/// The mistakes so far, as one error of many parts.
struct Mistakes(Option<Error>);

impl Mistakes {
    fn note(&mut self, result: Result<()>) {
        if let Err(mistake) = result {
            match &mut self.0 {
                Some(first) => first.combine(mistake),
                none => *none = Some(mistake),
            }
        }
    }
}

/// Reads `= value` into its place, which must be empty.
fn set<V>(
    place: &mut Option<V>,
    meta: &ParseNestedMeta<'_>,
    mistakes: &mut Mistakes,
    read: impl FnOnce(ParseStream<'_>) -> Result<Value<V>>,
) -> Result<()> {
    let value = read(meta.value()?)?;
    if place.is_some() {
        mistakes.note(Err(meta.error("this key was already given")));
    }
    match value {
        Value::Good(value) => *place = Some(value),
        Value::Bad(mistake) => mistakes.note(Err(mistake)),
    }
    Ok(())
}

fn read<V: syn::parse::Parse>(value: ParseStream<'_>) -> Result<Value<V>> {
    value.parse().map(Value::Good)
}

fn read_name(value: ParseStream<'_>, kind: &str) -> Result<Value<LitStr>> {
    let name: LitStr = value.parse()?;
    Ok(match check::name(kind, &name.value()) {
        Ok(()) => Value::Good(name),
        Err(wrong) => Value::Bad(Error::new(name.span(), wrong)),
    })
}

fn read_codec(value: ParseStream<'_>) -> Result<Value<Codec>> {
    let codec: Ident = value.parse()?;
    Ok(if codec == "messagepack" {
        Value::Good(Codec::MessagePack)
    } else if codec == "json" {
        Value::Good(Codec::Json)
    } else {
        let wrong = format!("unknown codec `{codec}`, expected `messagepack` or `json`");
        Value::Bad(Error::new(codec.span(), wrong))
    })
}

fn read_count(value: ParseStream<'_>) -> Result<Value<u32>> {
    let negative = value.parse::<Option<Token![-]>>()?;
    let count: LitInt = value.parse()?;
    Ok(match count.base10_parse() {
        Ok(retries) if negative.is_none() && retries <= MAX_RETRIES => Value::Good(retries),
        _ => {
            let wrong = format!("max_retries must be 0 to {MAX_RETRIES}");
            Value::Bad(Error::new(count.span(), wrong))
        }
    })
}

fn read_duration(value: ParseStream<'_>, limits: &Limits) -> Result<Value<Millis>> {
    let text: LitStr = value.parse()?;
    Ok(match check::duration_ms(&text.value(), limits) {
        Ok(millis) => Value::Good(Millis(millis)),
        Err(wrong) => Value::Bad(Error::new(text.span(), wrong)),
    })
}

fn read_backoff(value: ParseStream<'_>) -> Result<Value<Backoff>> {
    let shape: Ident = value.parse()?;
    if shape == "curve" {
        return Ok(Value::Good(Backoff::Curve));
    }
    if shape != "fixed" && shape != "exponential" {
        return Err(Error::new(
            shape.span(),
            format!(
                "unknown backoff `{shape}`, expected `curve`, `fixed(\"10s\")` or \
                 `exponential(\"1s\", \"1h\")`"
            ),
        ));
    }
    let waits;
    syn::parenthesized!(waits in value);
    if shape == "fixed" {
        return Ok(read_duration(&waits, &FIXED_WAIT)?.map(Backoff::Fixed));
    }
    let initial = read_duration(&waits, &DOUBLING_WAIT)?;
    waits.parse::<Token![,]>()?;
    let span = waits.span();
    let max = read_duration(&waits, &DOUBLING_WAIT)?;
    Ok(match (initial, max) {
        (Value::Good(initial), Value::Good(max)) if max.0 < initial.0 => Value::Bad(Error::new(
            span,
            "the longest wait is shorter than the first",
        )),
        (Value::Good(initial), Value::Good(max)) => {
            Value::Good(Backoff::Exponential { initial, max })
        }
        (Value::Bad(mistake), _) | (_, Value::Bad(mistake)) => Value::Bad(mistake),
    })
}

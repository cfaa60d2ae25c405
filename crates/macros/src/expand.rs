//! Turns a checked `#[task(...)]` into the impl that a person would write.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Generics, Path, Result, WhereClause, parse_quote};

use crate::args::{Args, Backoff, Codec, Millis};

/// The impl of `Task` for the type, or every mistake in it.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    check_shape(input)?;
    let args = Args::read(input)?;

    let krate: Path = args
        .krate
        .clone()
        .unwrap_or_else(|| parse_quote!(::streamfleet));
    let (ident, name) = (&input.ident, &args.name);
    let output = args.output.clone().unwrap_or_else(|| parse_quote!(()));
    let error = args
        .error
        .clone()
        .unwrap_or_else(|| parse_quote!(#krate::Failure));
    let codec = args.codec.map(|codec| {
        let codec = match codec {
            Codec::MessagePack => quote!(MessagePack),
            Codec::Json => quote!(Json),
        };
        quote!(const CODEC: #krate::Codec = #krate::Codec::#codec;)
    });
    let options = options(&args, &krate);
    let (impl_generics, ty_generics, _) = input.generics.split_for_impl();
    let where_clause = where_clause(input, &args, &krate);

    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::Task for #ident #ty_generics #where_clause {
            const NAME: &'static str = #name;
            #codec
            type Output = #output;
            type Error = #error;
            #options
        }
    })
}

fn check_shape(input: &DeriveInput) -> Result<()> {
    if let Data::Union(data) = &input.data {
        return Err(Error::new(
            data.union_token.span,
            "a union cannot be a task: nothing says how to encode it; use a struct or an enum",
        ));
    }
    if let Some(lifetime) = input.generics.lifetimes().next() {
        return Err(Error::new(
            lifetime.lifetime.span(),
            format!(
                "a task owns its data, because it is decoded in another process: \
                 it cannot borrow for `{}`",
                lifetime.lifetime
            ),
        ));
    }
    Ok(())
}

/// `fn options()`, unless the trait's own one says the same.
fn options(args: &Args, krate: &Path) -> Option<TokenStream> {
    let mut calls = TokenStream::new();
    if let Some(retries) = args.max_retries {
        calls.extend(quote!(.max_retries(#retries)));
    }
    if let Some(backoff) = args.backoff {
        let backoff = match backoff {
            Backoff::Curve => quote!(Curve),
            Backoff::Fixed(wait) => {
                let wait = duration(wait);
                quote!(Fixed(#wait))
            }
            Backoff::Exponential { initial, max } => {
                let (initial, max) = (duration(initial), duration(max));
                quote!(Exponential { initial: #initial, max: #max })
            }
        };
        calls.extend(quote!(.backoff(#krate::Backoff::#backoff)));
    }
    if let Some(timeout) = args.timeout.map(duration) {
        calls.extend(quote!(.timeout(#timeout)));
    }
    if let Some(delay) = args.delay.map(duration) {
        calls.extend(quote!(.delay(#delay)));
    }
    if calls.is_empty() && args.queue.is_none() {
        return None;
    }
    let set = quote!(<#krate::TaskOptions as ::core::default::Default>::default() #calls);
    // The name was checked here by the same rule, so the other arm never runs; `expect` would make
    // users' lints complain about code they did not write.
    let body = match &args.queue {
        Some(queue) => quote! {
            match #krate::QueueName::new(#queue) {
                ::core::result::Result::Ok(queue) => #set.queue(queue),
                ::core::result::Result::Err(_) => #set,
            }
        },
        None => set,
    };
    Some(quote!(fn options() -> #krate::TaskOptions { #body }))
}

fn duration(Millis(millis): Millis) -> TokenStream {
    quote!(::core::time::Duration::from_millis(#millis))
}

/// The type's own clause and, for a type with parameters, that the instance can be a task at all.
/// Serde's derives refuse such bounds on the type itself, so they have to stand here; a mistake then
/// shows where the instance is used.
fn where_clause(input: &DeriveInput, args: &Args, krate: &Path) -> Option<WhereClause> {
    let mut generics: Generics = input.generics.clone();
    if generics.type_params().next().is_some() {
        let ident = &input.ident;
        let (_, ty_generics, _) = input.generics.split_for_impl();
        let data = quote! {
            #krate::__private::Serialize
                + #krate::__private::DeserializeOwned
                + ::core::marker::Send
                + 'static
        };
        let predicates = &mut generics.make_where_clause().predicates;
        predicates.push(parse_quote!(#ident #ty_generics: #data));
        if let Some(output) = &args.output {
            predicates.push(parse_quote!(#output: #data));
        }
        if let Some(error) = &args.error {
            predicates.push(parse_quote!(#error: #krate::TaskError));
        }
    }
    generics.where_clause
}

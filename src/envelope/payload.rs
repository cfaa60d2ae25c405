//! Payloads, outputs and errors of users' types, to and from bytes.
//!
//! Layer 1. The only place of the library where serde reads foreign bytes. The depth is checked
//! by a pass without recursion first: `rmp-serde` does not count the levels of enums, so its own
//! limit would let a message of a few KiB overflow the stack.

use std::cell::Cell;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::outcome::cut_text;
use super::wire::{MAX_DEPTH, Reader};
use crate::options::Codec;

/// The longest error text, in bytes: it repeats foreign words.
const MAX_ERROR_BYTES: usize = 512;

/// The most bytes of a value that are copied out of the scratch buffer; larger ones take it along.
const COPIED: usize = 4 * 1024;

thread_local! {
    /// Values are written here first: a buffer that grew as one was written, and then is kept at
    /// just its size, would cost five allocations for each small value instead of one.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The bytes of a value.
///
/// # Errors
/// The type cannot be written in this codec, or the value is nested too deep to be read again.
pub(crate) fn encode_payload<T: Serialize + ?Sized>(
    codec: Codec,
    value: &T,
) -> Result<Bytes, String> {
    let mut bytes = SCRATCH.take();
    append_payload(codec, value, &mut bytes)?;
    if bytes.len() > COPIED {
        return Ok(Bytes::from(bytes));
    }
    let exact = Bytes::copy_from_slice(&bytes);
    bytes.clear();
    SCRATCH.set(bytes);
    Ok(exact)
}

/// Puts the bytes of a value behind what is in `bytes`.
///
/// # Errors
/// As [`encode_payload`]; then `bytes` may end in a part of the value.
pub(crate) fn append_payload<T: Serialize + ?Sized>(
    codec: Codec,
    value: &T,
    bytes: &mut Vec<u8>,
) -> Result<(), String> {
    let start = bytes.len();
    match codec {
        Codec::MessagePack => value
            .serialize(&mut rmp_serde::Serializer::new(&mut *bytes).with_struct_map())
            .map_err(plain)?,
        Codec::Json => serde_json::to_writer(&mut *bytes, value).map_err(plain)?,
    }
    check_shape(codec, &bytes[start..])
}

/// The value of bytes: exactly one, at most 64 levels deep.
///
/// # Errors
/// The bytes are not one value of this type; the text is fit for a log line.
pub(crate) fn decode_payload<T: DeserializeOwned>(codec: Codec, bytes: &[u8]) -> Result<T, String> {
    check_shape(codec, bytes)?;
    match codec {
        Codec::MessagePack => {
            let mut decoder = rmp_serde::Deserializer::from_read_ref(bytes);
            // It refuses when its count reaches zero, so one more than the levels allowed.
            decoder.set_max_depth(MAX_DEPTH + 1);
            T::deserialize(&mut decoder).map_err(plain)
        }
        Codec::Json => serde_json::from_slice(bytes).map_err(plain),
    }
}

/// Refuses what is nested too deep and, for MessagePack, what is not exactly one value.
fn check_shape(codec: Codec, bytes: &[u8]) -> Result<(), String> {
    match codec {
        Codec::MessagePack => {
            let mut reader = Reader::new(bytes);
            reader.skip("payload").map_err(plain)?;
            reader.finish().map_err(plain)
        }
        Codec::Json if json_depth(bytes) > MAX_DEPTH => {
            Err(format!("payload is nested deeper than {MAX_DEPTH} levels"))
        }
        // `serde_json::from_slice` refuses trailing bytes by itself.
        Codec::Json => Ok(()),
    }
}

/// The deepest nesting of brackets outside of strings.
fn json_depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = bytes.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'\\' => _ = bytes.next(),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

/// An error of serde as one short line: it may repeat foreign words.
#[expect(clippy::needless_pass_by_value, reason = "it is passed to map_err")]
fn plain(error: impl ToString) -> String {
    let text = error.to_string();
    let mut line = String::new();
    for character in cut_text(&text, MAX_ERROR_BYTES).chars() {
        if character.is_control() {
            line.extend(character.escape_debug());
        } else {
            line.push(character);
        }
    }
    line
}

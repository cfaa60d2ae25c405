//! The stored task, and the notice of how it ended, as bytes.
//!
//! Layer 1, pure: no clock, no randomness, no Redis. It owns the wire format (`docs/wire-format.md`)
//! and the limits of everything that comes from outside; it does not decide what happens to bytes
//! that cannot be read. Called by `store`, `client`, `server` and `inspect`.
//!
//! - `wire`: MessagePack values, read with every length checked against what is there
//! - `head`: the five elements that every version has
//! - `stored`: the whole envelope of this version
//! - `parts`: its optional parts
//! - `options`: what an enqueue may ask for, checked and turned into parts
//! - `payload`: payloads and outputs, to and from the types of users
//! - `outcome`: the notice in a receiver
//! - `arena`: many of all these in few allocations
//! - `error`: why bytes were refused

mod arena;
mod error;
mod head;
mod options;
mod outcome;
mod parts;
mod payload;
mod stored;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use arena::Arena;
pub(crate) use error::EnvelopeError;
pub(crate) use head::Head;
pub(crate) use options::{MAX_DELAY, resolve, wall_millis};
pub(crate) use outcome::{Ending, MAX_TEXT_BYTES, Notice, cut_text};
pub(crate) use parts::Parts;
pub(crate) use payload::{append_payload, decode_payload, encode_payload};
pub(crate) use stored::{Envelope, Limits, VERSION};

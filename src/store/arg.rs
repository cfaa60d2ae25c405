//! Arguments of scripts and commands: everything Redis takes is bytes.
//!
//! Layer 2, used by the calls of scripts. It knows no command and no key.

use std::fmt::Display;
use std::io::Write;
use std::time::Duration;

use bytes::Bytes;

use crate::envelope::Arena;
use crate::id::{ClientId, EntryId, duration_ms};

/// What prints itself: an id, a number.
pub(super) fn shown(value: impl Display) -> Bytes {
    Bytes::from(value.to_string())
}

/// Text as it is.
pub(super) fn text(value: &str) -> Bytes {
    Bytes::copy_from_slice(value.as_bytes())
}

/// A duration in milliseconds.
pub(super) fn millis(value: Duration) -> Bytes {
    shown(duration_ms(value))
}

/// `1` or `0`.
pub(super) const fn flag(value: bool) -> Bytes {
    Bytes::from_static(if value { b"1" } else { b"0" })
}

/// A client id, or nothing.
pub(super) fn client(value: Option<&ClientId>) -> Bytes {
    value.map_or_else(Bytes::new, |client| text(client.as_str()))
}

/// The start of a page behind an id, or of the first page.
pub(super) fn behind(id: Option<EntryId>) -> Bytes {
    id.map_or(Bytes::from_static(b"-"), |id| Bytes::from(format!("({id}")))
}

/// The arguments of one call that has many, in few allocations.
pub(super) struct Args {
    arena: Arena,
    args: Vec<Bytes>,
}

impl Args {
    /// For about so many arguments, with so many bytes in all.
    pub(super) fn with_capacity(args: usize, bytes: usize) -> Self {
        Self {
            arena: Arena::of_blocks(bytes),
            args: Vec::with_capacity(args),
        }
    }

    /// Adds what prints itself.
    pub(super) fn show(&mut self, value: impl Display) {
        let written = self.arena.write(|bytes| {
            // A vector takes whatever it is given.
            let _ = write!(bytes, "{value}");
        });
        self.args.push(written);
    }

    /// Adds a copy.
    pub(super) fn copy(&mut self, value: &[u8]) {
        self.args.push(self.arena.copy(value));
    }

    /// Adds what is shared already.
    pub(super) fn push(&mut self, value: Bytes) {
        self.args.push(value);
    }

    pub(super) fn into_vec(self) -> Vec<Bytes> {
        self.args
    }
}

//! What a wake-up says.
//!
//! Layer 2. Written by the scripts with PUBLISH, read by servers. Hints only.

use crate::id::{EntryId, Millis};

/// A wake-up of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    /// A task is due at this time, earlier than all others.
    Due(Millis),
    /// Work was handed back.
    Released,
    /// The task of this entry shall stop.
    Cancel(EntryId),
    /// A paused queue goes on.
    Resume,
}

impl Wake {
    /// Reads a message; `None` for one of another version.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let message = std::str::from_utf8(message).ok()?;
        match message.split_once(' ') {
            Some(("due", due)) => due.parse().ok().map(|due| Self::Due(Millis(due))),
            Some(("cancel", entry)) => entry.parse().ok().map(Self::Cancel),
            None if message == "released" => Some(Self::Released),
            None if message == "resume" => Some(Self::Resume),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_and_foreign_ones_are_ignored() {
        let entry = EntryId {
            millis: 7,
            sequence: 1,
        };
        assert_eq!(Wake::parse(b"due 12"), Some(Wake::Due(Millis(12))));
        assert_eq!(Wake::parse(b"cancel 7-1"), Some(Wake::Cancel(entry)));
        assert_eq!(Wake::parse(b"released"), Some(Wake::Released));
        assert_eq!(Wake::parse(b"resume"), Some(Wake::Resume));
        for foreign in [&b"due x"[..], b"cancel", b"", b"\xff", b"new thing"] {
            assert_eq!(Wake::parse(foreign), None);
        }
    }
}

//! Why an envelope or a notice was refused.
//!
//! Layer 1. What follows from it (park, archive, report) is decided by the callers.

use crate::error::{ConfigError, InvalidName};

/// Why bytes are not an envelope, or not a notice.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum EnvelopeError {
    /// More bytes than the limit; nothing of them was copied.
    #[error("envelope or payload has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// What is there.
        bytes: usize,
        /// What may be there.
        limit: usize,
    },
    /// Not the documented format. The text names the element, its value and its limit.
    #[error("malformed: {0}")]
    Malformed(String),
    /// A version of a newer library. Its head can still be read.
    #[error("version {0} is not known to this server")]
    UnsupportedVersion(u8),
    /// There are bytes after the value.
    #[error("{0} bytes follow the value")]
    TrailingBytes(usize),
}

impl EnvelopeError {
    /// The cold path of every reader.
    #[cold]
    pub(super) fn malformed(text: impl Into<String>) -> Self {
        Self::Malformed(text.into())
    }
}

/// A name from outside is part of the format.
impl From<InvalidName> for EnvelopeError {
    fn from(error: InvalidName) -> Self {
        Self::malformed(error.to_string())
    }
}

/// So is an option: what arrives is held to the limits of what may be sent.
impl From<ConfigError> for EnvelopeError {
    fn from(error: ConfigError) -> Self {
        Self::malformed(error.to_string())
    }
}

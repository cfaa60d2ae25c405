//! What Redis answered.
//!
//! Layer 2, used by every file of the store. Values share the read buffer, so holding one small
//! value keeps the whole buffer in memory: copy what is short and kept for long.
//!
//! No command and no script may answer with a flat array whose first element is a text that users
//! choose: the client takes `["message", …]` or `["subscribe", …]` for a message of a channel, and
//! the call hangs. Inside another array such a list is safe.

use bytes::Bytes;
use fred::interfaces::Resp3Frame;

use super::class::{reply_kind, unexpected};
use crate::error::{BackendError, shown};
use crate::id::EntryId;

/// A reply. Text and bytes are the same thing to Redis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Bytes(Bytes),
    Array(Vec<Reply>),
}

impl Reply {
    /// Takes over a frame. An error reply, also one inside an array, is the error of the whole.
    pub(super) fn from_frame(frame: Resp3Frame) -> Result<Self, BackendError> {
        Ok(match frame {
            Resp3Frame::Null => Self::Nil,
            Resp3Frame::Number { data, .. } => Self::Int(data),
            Resp3Frame::Boolean { data, .. } => Self::Int(i64::from(data)),
            Resp3Frame::Double { data, .. } => Self::Bytes(data.to_string().into()),
            Resp3Frame::SimpleString { data, .. }
            | Resp3Frame::BlobString { data, .. }
            | Resp3Frame::VerbatimString { data, .. }
            | Resp3Frame::BigNumber { data, .. } => Self::Bytes(data),
            list @ (Resp3Frame::Array { .. } | Resp3Frame::Push { .. }) => {
                Self::array_of(items(list)?)?
            }
            Resp3Frame::Set { data, .. } => Self::array_of(data)?,
            Resp3Frame::SimpleError { data, .. } => return Err(error_reply(&data)),
            Resp3Frame::BlobError { data, .. } => {
                return Err(error_reply(&String::from_utf8_lossy(&data)));
            }
            other => {
                return Err(unexpected("a RESP2 value", other_kind(&other)));
            }
        })
    }

    fn array_of(frames: impl IntoIterator<Item = Resp3Frame>) -> Result<Self, BackendError> {
        frames
            .into_iter()
            .map(Self::from_frame)
            .collect::<Result<_, _>>()
            .map(Self::Array)
    }

    /// A number, also one sent as text.
    pub(crate) fn int(&self) -> Result<i64, BackendError> {
        match self {
            Self::Int(value) => Ok(*value),
            Self::Bytes(bytes) => std::str::from_utf8(bytes)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| self.wrong("an integer")),
            _ => Err(self.wrong("an integer")),
        }
    }

    /// A number that is not negative.
    pub(crate) fn u64(&self) -> Result<u64, BackendError> {
        u64::try_from(self.int()?).map_err(|_| self.wrong("a number from 0"))
    }

    /// Bytes, not copied.
    pub(crate) fn bytes(&self) -> Result<&Bytes, BackendError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(self.wrong("bytes")),
        }
    }

    /// Bytes, not copied.
    pub(crate) fn into_bytes(self) -> Result<Bytes, BackendError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(other.wrong("bytes")),
        }
    }

    /// UTF-8 text.
    pub(crate) fn text(&self) -> Result<&str, BackendError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| self.wrong("text"))
    }

    /// An array.
    pub(crate) fn array(&self) -> Result<&[Self], BackendError> {
        match self {
            Self::Array(items) => Ok(items),
            _ => Err(self.wrong("an array")),
        }
    }

    /// An array, taken apart.
    pub(crate) fn into_array(self) -> Result<Vec<Self>, BackendError> {
        match self {
            Self::Array(items) => Ok(items),
            other => Err(other.wrong("an array")),
        }
    }

    /// An array of exactly `N`.
    pub(crate) fn into_parts<const N: usize>(self) -> Result<[Self; N], BackendError> {
        self.into_array()?.try_into().map_err(|items: Vec<Self>| {
            unexpected(
                &format!("an array of {N}"),
                &format!("an array of {}", items.len()),
            )
        })
    }

    /// The id of a stream entry.
    pub(crate) fn entry_id(&self) -> Result<EntryId, BackendError> {
        EntryId::parse_bytes(self.bytes()?).ok_or_else(|| self.wrong("an entry id"))
    }

    /// `None` for nil, otherwise what `read` makes of it.
    pub(crate) fn optional<T>(
        self,
        read: impl FnOnce(Self) -> Result<T, BackendError>,
    ) -> Result<Option<T>, BackendError> {
        match self {
            Self::Nil => Ok(None),
            reply => read(reply).map(Some),
        }
    }

    pub(super) fn wrong(&self, wanted: &str) -> BackendError {
        let got = match self {
            Self::Nil => "nil".to_owned(),
            Self::Int(value) => format!("the integer {value}"),
            Self::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Self::Array(items) => format!("an array of {}", items.len()),
        };
        unexpected(wanted, &got)
    }
}

/// The frames of a list.
pub(super) fn items(frame: Resp3Frame) -> Result<Vec<Resp3Frame>, BackendError> {
    match frame {
        Resp3Frame::Array { data, .. } => Ok(data),
        // In RESP2 there is no such thing: the client takes a list inside a reply for a message if it
        // starts like one, and puts this word in front.
        Resp3Frame::Push { mut data, .. } => {
            if matches!(data.first(), Some(Resp3Frame::SimpleString { data, .. }) if data == "pubsub")
            {
                data.remove(0);
            }
            Ok(data)
        }
        other => Err(Reply::from_frame(other)?.wrong("an array")),
    }
}

fn error_reply(text: &str) -> BackendError {
    BackendError::new(reply_kind(text), shown(text))
}

fn other_kind(frame: &Resp3Frame) -> &'static str {
    match frame {
        Resp3Frame::Map { .. } => "a map",
        Resp3Frame::Hello { .. } => "a hello",
        _ => "a chunk",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_of_another_kind_is_an_error() {
        assert!(Reply::Int(-1).u64().is_err());
        assert!(Reply::Nil.text().is_err());
        let digits = Reply::Bytes(Bytes::from_static(b"42"));
        assert_eq!(digits.int().unwrap(), 42);
    }

    #[test]
    fn an_error_inside_an_array_is_the_error_of_the_whole() {
        let frame = Resp3Frame::Array {
            data: vec![Resp3Frame::SimpleError {
                data: "OOM full".into(),
                attributes: None,
            }],
            attributes: None,
        };
        let error = Reply::from_frame(frame).unwrap_err();
        assert_eq!(error.kind(), crate::error::BackendKind::NotExecuted);
    }
}

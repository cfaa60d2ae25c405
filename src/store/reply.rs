//! What Redis answered, and the decoder of stream replies.
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

/// One entry of a stream. `fields` is `None` when the entry was deleted while it was pending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RawEntry {
    pub(crate) id: EntryId,
    pub(crate) fields: Option<Fields>,
}

/// The fields of an entry with their values. All of ours have one, which needs no list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fields {
    first: Option<(Bytes, Bytes)>,
    more: Vec<(Bytes, Bytes)>,
}

impl RawEntry {
    /// The first field and its value.
    #[cfg(test)]
    pub(crate) fn first_field(&self) -> Option<&(Bytes, Bytes)> {
        self.fields.as_ref()?.first.as_ref()
    }
}

impl IntoIterator for Fields {
    type Item = (Bytes, Bytes);
    type IntoIter =
        std::iter::Chain<std::option::IntoIter<(Bytes, Bytes)>, std::vec::IntoIter<(Bytes, Bytes)>>;
    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}

/// The entries of one stream: its index in the keys that were asked for, and what came of it.
pub(crate) type StreamEntries = (usize, Vec<RawEntry>);

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
            Resp3Frame::Array { data, .. } => Self::array_of(data)?,
            // In RESP2 there is no such thing: the client takes a list inside a reply for a message
            // if it starts like one, and puts this word in front.
            Resp3Frame::Push { mut data, .. } => {
                if matches!(data.first(), Some(Resp3Frame::SimpleString { data, .. }) if data == "pubsub")
                {
                    data.remove(0);
                }
                Self::array_of(data)?
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

/// Decodes the reply of XRANGE and XCLAIM: an array of entries.
pub(crate) fn entries(reply: Reply) -> Result<Vec<RawEntry>, BackendError> {
    let items = match reply {
        Reply::Nil => return Ok(Vec::new()),
        reply => reply.into_array()?,
    };
    // Redis 6 leaves a nil in the place of an entry that was deleted; newer ones leave it out.
    items
        .into_iter()
        .filter(|item| *item != Reply::Nil)
        .map(entry)
        .collect()
}

/// One entry: `[id, fields]`, `[id, nil]` when it was deleted, or with two more elements (idle time
/// and delivery count) from Redis 8.
fn entry(reply: Reply) -> Result<RawEntry, BackendError> {
    let mut parts = reply.into_array()?.into_iter();
    let (Some(id), Some(fields)) = (parts.next(), parts.next()) else {
        return Err(unexpected("an entry", "a shorter array"));
    };
    let fields = fields.optional(|fields| {
        let mut found = Fields::default();
        let mut items = fields.into_array()?.into_iter();
        while let Some(name) = items.next() {
            let Some(value) = items.next() else {
                return Err(unexpected("fields and values", "a field without value"));
            };
            let field = (name.into_bytes()?, value.into_bytes()?);
            match found.first {
                None => found.first = Some(field),
                Some(_) => found.more.push(field),
            }
        }
        Ok(found)
    })?;
    Ok(RawEntry {
        id: id.entry_id()?,
        fields,
    })
}

/// Decodes the reply of XREADGROUP and XREAD in the order Redis sent it.
pub(crate) fn streams<'a>(
    reply: Reply,
    keys: impl Iterator<Item = &'a Bytes>,
) -> Result<Vec<StreamEntries>, BackendError> {
    let items = match reply {
        Reply::Nil => return Ok(Vec::new()),
        reply => reply.into_array()?,
    };
    let keys: Vec<&Bytes> = keys.collect();
    let mut found = Vec::with_capacity(items.len());
    for item in items {
        let [key, list] = item.into_parts()?;
        let key = key.into_bytes()?;
        let index = keys
            .iter()
            .position(|wanted| **wanted == key)
            .ok_or_else(|| unexpected("a stream that was asked for", "another one"))?;
        found.push((index, entries(list)?));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Reply {
        Reply::Bytes(Bytes::from_static(text.as_bytes()))
    }

    fn list(items: impl IntoIterator<Item = Reply>) -> Reply {
        Reply::Array(items.into_iter().collect())
    }

    #[test]
    fn streams_keep_the_order_and_take_deleted_and_longer_entries() {
        let low = Bytes::from_static(b"low");
        let high = Bytes::from_static(b"high");
        let reply = list([
            list([
                text("high"),
                list([list([text("2-0"), list([text("t"), text("b")])])]),
            ]),
            list([
                text("low"),
                list([
                    list([text("1-0"), Reply::Nil]),
                    list([
                        text("1-1"),
                        list([text("t"), text("a")]),
                        Reply::Int(5),
                        Reply::Int(2),
                    ]),
                ]),
            ]),
        ]);
        let found = streams(reply, [&low, &high].into_iter()).unwrap();
        assert_eq!(
            found.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
            [1, 0]
        );
        assert_eq!(found[1].1[0].fields, None);
        assert_eq!(found[1].1[1].id.to_string(), "1-1");
        assert_eq!(found[1].1[1].first_field().unwrap().1, "a");
        assert_eq!(streams(Reply::Nil, [&low].into_iter()).unwrap(), []);
    }

    #[test]
    fn a_reply_of_another_shape_is_an_error_not_a_panic() {
        let key = Bytes::from_static(b"k");
        for reply in [
            Reply::Int(1),
            text("x"),
            list([Reply::Nil]),
            list([list([text("other"), list([])])]),
            list([list([text("k"), list([list([text("1-0")])])])]),
            list([list([text("k"), list([list([text("x"), Reply::Nil])])])]),
            list([list([
                text("k"),
                list([list([text("1-0"), list([text("t")])])]),
            ])]),
        ] {
            let error = streams(reply.clone(), [&key].into_iter()).unwrap_err();
            assert!(error.to_string().contains("unexpected reply"), "{reply:?}");
        }
        assert!(Reply::Int(-1).u64().is_err());
        assert!(Reply::Nil.text().is_err());
        assert_eq!(text("42").int().unwrap(), 42);
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

//! The decoder of stream replies: XREADGROUP, XREAD, XRANGE and XCLAIM.
//!
//! Layer 2, used by `blocking`. It takes the client's frames apart directly, because every task
//! comes this way twice: once to its server, once as a notice. Values share the read buffer.

use bytes::Bytes;
use fred::interfaces::Resp3Frame;

use super::class::unexpected;
use super::reply::{Reply, items};
use crate::error::BackendError;
use crate::id::EntryId;

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

/// The entries of one stream: its index in the keys that were asked for, and what came of it.
pub(crate) type StreamEntries = (usize, Vec<RawEntry>);

impl RawEntry {
    /// The first field and its value.
    #[cfg(test)]
    pub(crate) fn first_field(&self) -> Option<&(Bytes, Bytes)> {
        self.fields.as_ref()?.first.as_ref()
    }
}

impl Fields {
    fn add(&mut self, name: Bytes, value: Bytes) {
        match self.first {
            None => self.first = Some((name, value)),
            Some(_) => self.more.push((name, value)),
        }
    }

    /// The first field with one of these names, and its value.
    pub(crate) fn find(self, names: &[&str]) -> Option<(Bytes, Bytes)> {
        let mut all = self.first.into_iter().chain(self.more);
        all.find(|(name, _)| names.iter().any(|wanted| name == wanted))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }
}

/// Decodes the reply of XREADGROUP and XREAD in the order Redis sent it. `index_of`: the place of a
/// key among those that were asked for.
pub(super) fn streams(
    reply: Resp3Frame,
    index_of: impl Fn(&Bytes) -> Option<usize>,
) -> Result<Vec<StreamEntries>, BackendError> {
    if matches!(reply, Resp3Frame::Null) {
        return Ok(Vec::new());
    }
    let streams = items(reply)?;
    let mut found = Vec::with_capacity(streams.len());
    for stream in streams {
        let [key, list] = <[Resp3Frame; 2]>::try_from(items(stream)?).map_err(|items| {
            unexpected("an array of 2", &format!("an array of {}", items.len()))
        })?;
        let key = leaf(key)?;
        let index = index_of(&key)
            .ok_or_else(|| unexpected("a stream that was asked for", "another one"))?;
        found.push((index, entries(list)?));
    }
    Ok(found)
}

/// Decodes an array of entries.
pub(super) fn entries(reply: Resp3Frame) -> Result<Vec<RawEntry>, BackendError> {
    if matches!(reply, Resp3Frame::Null) {
        return Ok(Vec::new());
    }
    let list = items(reply)?;
    let mut found = Vec::with_capacity(list.len());
    for item in list {
        // Redis 6 leaves a nil in the place of an entry that was deleted; newer ones leave it out.
        if !matches!(item, Resp3Frame::Null) {
            found.push(entry(item)?);
        }
    }
    Ok(found)
}

/// One entry: `[id, fields]`, `[id, nil]` when it was deleted, or with two more elements (idle time
/// and delivery count) from Redis 8.
fn entry(frame: Resp3Frame) -> Result<RawEntry, BackendError> {
    let mut parts = items(frame)?.into_iter();
    let (Some(id), Some(fields)) = (parts.next(), parts.next()) else {
        return Err(unexpected("an entry", "a shorter array"));
    };
    let id =
        EntryId::parse_bytes(&leaf(id)?).ok_or_else(|| unexpected("an entry id", "other bytes"))?;
    if matches!(fields, Resp3Frame::Null) {
        return Ok(RawEntry { id, fields: None });
    }
    let mut found = Fields::default();
    let mut items = items(fields)?.into_iter();
    while let Some(name) = items.next() {
        let Some(value) = items.next() else {
            return Err(unexpected("fields and values", "a field without value"));
        };
        found.add(leaf(name)?, leaf(value)?);
    }
    Ok(RawEntry {
        id,
        fields: Some(found),
    })
}

fn leaf(frame: Resp3Frame) -> Result<Bytes, BackendError> {
    match frame {
        Resp3Frame::BlobString { data, .. } => Ok(data),
        other => Reply::from_frame(other)?.into_bytes(),
    }
}

#[cfg(test)]
impl Reply {
    /// Takes a reply for the entries it holds.
    pub(super) fn into_entries(self) -> Vec<RawEntry> {
        entries(self.into_frame()).unwrap()
    }

    /// The frame that this reply was.
    pub(super) fn into_frame(self) -> Resp3Frame {
        let attributes = None;
        match self {
            Self::Nil => Resp3Frame::Null,
            Self::Int(data) => Resp3Frame::Number { data, attributes },
            Self::Bytes(data) => Resp3Frame::BlobString { data, attributes },
            Self::Array(items) => Resp3Frame::Array {
                data: items.into_iter().map(Self::into_frame).collect(),
                attributes,
            },
        }
    }
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
                        list([text("x"), text("y"), text("t"), text("a")]),
                        Reply::Int(5),
                        Reply::Int(2),
                    ]),
                ]),
            ]),
        ]);
        let found = streams(reply.into_frame(), |key| {
            [&low, &high].iter().position(|asked| *asked == key)
        })
        .unwrap();
        assert_eq!(
            found.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
            [1, 0]
        );
        assert_eq!(found[1].1[0].fields, None);
        assert_eq!(found[1].1[1].id.to_string(), "1-1");
        assert_eq!(found[1].1[1].first_field().unwrap().1, "y");
        let ours = found[1].1[1].fields.clone().unwrap().find(&["r", "t"]);
        assert_eq!(ours.unwrap().1, "a");
        assert_eq!(streams(Resp3Frame::Null, |_| None).unwrap(), []);
    }

    #[test]
    fn a_reply_of_another_shape_is_an_error_not_a_panic() {
        let key = Bytes::from_static(b"k");
        for reply in [
            Reply::Int(1),
            text("x"),
            list([Reply::Nil]),
            list([list([text("other"), list([])])]),
            list([list([text("k"), list([]), Reply::Nil])]),
            list([list([text("k"), list([list([text("1-0")])])])]),
            list([list([text("k"), list([list([text("x"), Reply::Nil])])])]),
            list([list([
                text("k"),
                list([list([text("1-0"), list([text("t")])])]),
            ])]),
        ] {
            let error = streams(reply.clone().into_frame(), |found| {
                (*found == key).then_some(0)
            })
            .unwrap_err();
            assert!(error.to_string().contains("unexpected reply"), "{reply:?}");
        }
    }

    #[test]
    fn an_error_among_the_streams_is_the_error_of_the_whole() {
        let frame = Resp3Frame::Array {
            data: vec![Resp3Frame::SimpleError {
                data: "WRONGTYPE no stream".into(),
                attributes: None,
            }],
            attributes: None,
        };
        let error = streams(frame, |_| None).unwrap_err();
        assert_eq!(error.kind(), crate::error::BackendKind::WrongType);
    }
}

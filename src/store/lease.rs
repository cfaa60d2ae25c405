//! The right to finish one delivery, and what a server gets with it.
//!
//! Layer 2, words only; the rights are checked inside the scripts. Used by all calls of the delivery
//! side and by `server`.

use bytes::Bytes;

use super::entries::RawEntry;
use super::keys::{FIELD_PLAIN, FIELD_RECORD};
use super::reply::Reply;
use crate::error::BackendError;
use crate::id::{EntryId, QueueName};

/// One delivery: an entry as it was handed out for the `count`th time. The owner is passed beside it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lease {
    pub(crate) queue: QueueName,
    pub(crate) entry: EntryId,
    pub(crate) count: u64,
}

/// A delivery that came from somewhere else than a read: taken over, handed back, or found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Delivery {
    pub(crate) queue: QueueName,
    pub(crate) entry: EntryId,
    pub(crate) count: u64,
    /// The task keeps a record in `tasks`, which its end has to remove.
    pub(crate) has_record: bool,
    pub(crate) envelope: Bytes,
    /// It may have killed a server before: it runs alone, after `begin`.
    pub(crate) suspect: bool,
    /// How often it was running when its server died.
    pub(crate) crashes: u32,
}

impl Delivery {
    /// A delivery as a read brings it: the first one of its entry. An entry that somebody else wrote
    /// without a field of ours has no envelope, and ends as undecodable. `None` for a deleted entry.
    pub(crate) fn first(queue: &QueueName, entry: RawEntry) -> Option<Self> {
        let field = entry.fields?.find(&[FIELD_PLAIN, FIELD_RECORD]);
        let (name, envelope) = field.unwrap_or_default();
        Some(Self {
            queue: queue.clone(),
            entry: entry.id,
            count: 1,
            has_record: name == FIELD_RECORD,
            envelope,
            suspect: false,
            crashes: 0,
        })
    }

    /// The right that comes with it.
    #[cfg(test)]
    pub(crate) fn lease(&self) -> Lease {
        Lease {
            queue: self.queue.clone(),
            entry: self.entry,
            count: self.count,
        }
    }

    /// Reads what `scripts/parts/delivery.lua` answers.
    pub(super) fn from_reply(queue: &QueueName, reply: Reply) -> Result<Self, BackendError> {
        let [entry, count, field, envelope, crashes, suspect] = reply.into_parts()?;
        Ok(Self {
            queue: queue.clone(),
            entry: entry.entry_id()?,
            count: count.u64()?,
            has_record: field.bytes()?.as_ref() == FIELD_RECORD.as_bytes(),
            envelope: envelope.into_bytes()?,
            suspect: suspect.int()? == 1,
            crashes: u32::try_from(crashes.int()?.max(0)).unwrap_or(u32::MAX),
        })
    }

    /// Reads an array of them.
    pub(super) fn list(queue: &QueueName, reply: Reply) -> Result<Vec<Self>, BackendError> {
        reply
            .into_array()?
            .into_iter()
            .map(|item| Self::from_reply(queue, item))
            .collect()
    }
}

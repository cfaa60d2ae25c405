//! Finds one task by its id alone.
//!
//! Layer 2, called by `inspect` and `client`. A task with a record is found for certain; a plain one
//! has nothing but its entry, so the stream is searched around the time in its id, as far as a bound
//! allows. Script: `scripts/scan.lua`.

use bytes::Bytes;

use super::Store;
use super::arg;
use super::keys::FIELD_RECORD;
use super::look_up::given;
use super::record::Record;
use super::reply::Reply;
use super::script::script;
use crate::envelope::Head;
use crate::error::BackendError;
use crate::id::{ConsumerId, EntryId, QueueName, TaskId};
use crate::state::TaskState;

script!(SCAN, "scan", allow_oom, ["fence"]);

/// The clock of a client may be behind that of Redis, and ahead of it by this much.
const SLACK_MS: u64 = 60_000;
/// Entries of one script call.
const PAGE: usize = 100;
/// At most so many calls: 10,000 entries, some 40 ms of Redis in all.
const MAX_PAGES: usize = 100;

/// A task found in the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Scanned {
    pub(crate) entry: EntryId,
    /// Pending or active.
    pub(crate) state: TaskState,
    pub(crate) consumer: Option<ConsumerId>,
    /// How often it was delivered.
    pub(crate) count: u64,
    pub(crate) has_record: bool,
    pub(crate) envelope: Bytes,
}

impl Store {
    /// The record of a task.
    pub(crate) async fn record(
        &self,
        q: &QueueName,
        task: &TaskId,
    ) -> Result<Option<Record>, BackendError> {
        let key = self.keys().queue(q).tasks();
        let args = vec![key.clone(), arg::shown(task)];
        self.conn()
            .command("HGET", Some(&key), args)
            .await?
            .optional(|value| Record::decode(value.bytes()?))
    }

    /// Searches the stream from shortly before the time in the id; `None` also for an id without
    /// a time, and for a task behind the bound.
    pub(crate) async fn scan_for(
        &self,
        q: &QueueName,
        task: &TaskId,
    ) -> Result<Option<Scanned>, BackendError> {
        let Some(uuid) = task.as_uuid().filter(|uuid| uuid.get_version_num() == 7) else {
            return Ok(None);
        };
        let id_bytes = Bytes::copy_from_slice(uuid.as_bytes());
        let made_ms = uuid.as_u128() >> 80;
        let made_ms = u64::try_from(made_ms).unwrap_or(u64::MAX);
        let mut from = EntryId {
            millis: made_ms.saturating_sub(SLACK_MS),
            sequence: 0,
        };
        let key = self.keys().queue(q).stream();
        for _ in 0..MAX_PAGES {
            let args = vec![
                arg::shown(from),
                arg::shown(PAGE),
                id_bytes.clone(),
                arg::shown(task),
            ];
            let reply = self.conn().run(&SCAN, vec![key.clone()], args).await?;
            match read(reply)? {
                Step::End => return Ok(None),
                Step::Upto(entry) => from = entry,
                Step::Match(found) if is_of(&found.envelope, task) => return Ok(Some(found)),
                // The bytes were there by chance.
                Step::Match(found) => from = found.entry,
            }
        }
        Ok(None)
    }
}

enum Step {
    End,
    Upto(EntryId),
    Match(Scanned),
}

fn is_of(envelope: &Bytes, task: &TaskId) -> bool {
    Head::decode(envelope).is_ok_and(|head| head.id == *task)
}

fn read(reply: Reply) -> Result<Step, BackendError> {
    let parts = reply.into_array()?;
    match parts.as_slice() {
        [seen] => Ok(given(seen, Reply::entry_id)?.map_or(Step::End, Step::Upto)),
        [entry, field, envelope, consumer, count] => {
            let consumer =
                given(consumer, |name| Ok(ConsumerId::new(name.text()?).ok()))?.flatten();
            Ok(Step::Match(Scanned {
                entry: entry.entry_id()?,
                state: if consumer.is_some() {
                    TaskState::Active
                } else {
                    TaskState::Pending
                },
                consumer,
                count: count.u64()?,
                has_record: field.bytes()? == FIELD_RECORD,
                envelope: envelope.bytes()?.clone(),
            }))
        }
        _ => Err(Reply::Array(parts).wrong("an answer to scan")),
    }
}

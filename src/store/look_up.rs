//! Look up: the state of up to 100 tasks in one snapshot.
//!
//! Layer 2, called by `client` for its waiters and handles. It does not conclude anything from a
//! task that is gone: the caller compares with how far it has read. Script: `scripts/look_up.lua`.

use bytes::Bytes;

use super::Store;
use super::arg;
use super::reply::Reply;
use super::script::script;
use crate::envelope::{Ending, Notice};
use crate::error::{BackendError, BackendKind};
use crate::id::{ClientId, ConsumerId, EntryId, Millis, QueueName, TaskId};
use crate::state::TaskState;

script!(
    LOOK_UP,
    "look_up",
    allow_oom,
    [
        "look", "fence", "clock", "count", "forget", "notify", "record"
    ]
);

/// The most tasks in one look.
pub(crate) const MAX_LOOK_UP: usize = 100;

/// A task that is looked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) id: TaskId,
    /// Its entry, if the caller knows one: a plain task is found by nothing else.
    pub(crate) entry: Option<EntryId>,
    /// Its deadline, if the caller knows one: a task found waiting behind it ends as expired.
    pub(crate) deadline: Option<Millis>,
}

/// The answer, all of one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LookUp {
    /// The last id that was ever written to the caller's receiver; `0-0` if there is none.
    pub(crate) receiver_last: EntryId,
    pub(crate) epoch: String,
    pub(crate) now: Millis,
    /// One for each wanted, in order.
    pub(crate) found: Vec<Found>,
}

/// Where one task is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Not in the queue: it ended, or it was lost.
    Gone,
    At {
        state: TaskState,
        entry: Option<EntryId>,
        /// Who runs it.
        consumer: Option<ConsumerId>,
        /// How often its entry was delivered.
        count: u64,
        due: Option<Millis>,
        /// Reason word and text of the last failure or of the ending.
        error: Option<(String, String)>,
        /// How it ended, as its waiter was told; kept while it is archived.
        notice: Option<Bytes>,
    },
}

impl Store {
    /// Looks for tasks. `client` is the caller, if it has waiters.
    pub(crate) async fn look_up(
        &self,
        q: &QueueName,
        client: Option<&ClientId>,
        items: &[Wanted],
    ) -> Result<LookUp, BackendError> {
        if items.len() > MAX_LOOK_UP {
            return Err(BackendError::new(
                BackendKind::Fatal,
                format!("{} tasks in one look are too many", items.len()),
            ));
        }
        let keys = self.keys().queue(q);
        let reply = self
            .conn()
            .run(
                &LOOK_UP,
                vec![
                    keys.stream(),
                    keys.tasks(),
                    keys.clients(),
                    keys.cfg(),
                    keys.cancel(),
                    keys.crashes(),
                    keys.scheduled(),
                    keys.retry(),
                    keys.unknown(),
                    keys.counters(),
                ],
                arguments(client, items),
            )
            .await?;
        let [now, last, epoch, found] = reply.into_parts()?;
        Ok(LookUp {
            receiver_last: last.entry_id()?,
            epoch: epoch.text()?.to_owned(),
            now: Millis(now.u64()?),
            found: found
                .into_array()?
                .into_iter()
                .map(read_found)
                .collect::<Result<_, _>>()?,
        })
    }
}

fn arguments(client: Option<&ClientId>, items: &[Wanted]) -> Vec<Bytes> {
    let mut args = Vec::with_capacity(1 + 4 * items.len());
    args.push(arg::client(client));
    for item in items {
        args.push(arg::shown(&item.id));
        args.push(item.entry.map_or_else(Bytes::new, arg::shown));
        match item.deadline {
            None => args.extend([Bytes::new(), Bytes::new()]),
            Some(deadline) => args.extend([
                arg::shown(deadline.0),
                Notice {
                    task: item.id.clone(),
                    ending: Ending::Expired,
                }
                .encode(),
            ]),
        }
    }
    args
}

fn read_found(reply: Reply) -> Result<Found, BackendError> {
    let parts = reply.into_array()?;
    if parts.is_empty() {
        return Ok(Found::Gone);
    }
    let [state, entry, consumer, count, due, reason, text, notice] =
        Reply::Array(parts).into_parts()?;
    let (reason, text) = (lossy(&reason)?, lossy(&text)?);
    Ok(Found::At {
        state: TaskState::from_word(state.text()?).ok_or_else(|| state.wrong("a state"))?,
        entry: given(&entry, Reply::entry_id)?,
        consumer: given(&consumer, |name| {
            ConsumerId::new(name.text()?).map_err(|_| name.wrong("a consumer"))
        })?,
        count: count.u64()?,
        due: given(&due, Reply::u64)?.map(Millis),
        error: (!reason.is_empty() || !text.is_empty()).then_some((reason, text)),
        notice: given(&notice, |notice| Ok(notice.bytes()?.clone()))?,
    })
}

/// `None` for empty bytes, otherwise what `read` makes of them.
pub(super) fn given<T>(
    reply: &Reply,
    read: impl FnOnce(&Reply) -> Result<T, BackendError>,
) -> Result<Option<T>, BackendError> {
    if reply.bytes()?.is_empty() {
        return Ok(None);
    }
    read(reply).map(Some)
}

/// Text that a person or a handler wrote and that may have been cut anywhere.
pub(super) fn lossy(reply: &Reply) -> Result<String, BackendError> {
    Ok(String::from_utf8_lossy(reply.bytes()?).into_owned())
}

//! Enqueue: one batch of one client, written once however often it is sent.
//!
//! Layer 2, called by `client`. The client owns the batch numbers and repeats; this file only
//! sends a batch and reads what became of it. Script: `scripts/enqueue.lua`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Store;
use super::arg::{self, Args};
use super::keys::QueueKeys;
use super::reply::Reply;
use super::script::script;
use crate::error::{BackendError, BackendKind};
use crate::id::{ClientId, EntryId, Millis, QueueName, TaskId, duration_ms};

script!(
    ENQUEUE,
    "enqueue",
    adds_work,
    ["look", "clock", "count", "due", "record"]
);

/// The most tasks in one batch: a script must not keep Redis busy for long.
pub(crate) const MAX_BATCH_TASKS: usize = 100;
/// The most bytes of envelopes in one batch of several tasks; one task alone may have more.
pub(crate) const MAX_BATCH_BYTES: usize = 256 * 1024;

/// One batch. The number rises with every batch of a client and is never used for other tasks.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) client: &'a ClientId,
    pub(crate) number: u64,
    /// It was sent before, and the answer was lost.
    pub(crate) repeat: bool,
    /// The epoch that the client knew when it sent the batch for the first time.
    pub(crate) epoch: &'a str,
    /// Whether some task wants its outcome: it signs the client in, as a heartbeat does.
    pub(crate) tracked: bool,
    pub(crate) tasks: &'a [NewTask],
}

impl Batch<'_> {
    /// How many tasks may have to wait for their time.
    fn timed(&self) -> usize {
        self.tasks
            .iter()
            .filter(|task| task.start != Start::Now)
            .count()
    }
}

/// One task to enqueue, encoded.
#[derive(Clone, Debug)]
pub(crate) struct NewTask {
    pub(crate) id: TaskId,
    pub(crate) name: Arc<str>,
    pub(crate) envelope: Bytes,
    /// Whom to notify. The envelope says it too; here it is for the record.
    pub(crate) client: Option<ClientId>,
    pub(crate) start: Start,
}

/// When a task may start, by the clock of Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    Now,
    After(Duration),
    At(Millis),
}

/// What became of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Enqueued {
    /// It is in Redis, once.
    Stored {
        /// The entry of the first task that is in the stream; see [`Enqueued::entries`].
        first_entry: Option<EntryId>,
        /// The places of the tasks that were scheduled, rising. A task whose time had come is in
        /// the stream with the others.
        scheduled: Vec<usize>,
        epoch: String,
    },
    /// A repeat of which nobody can know whether its first sending was written. Nothing was written now.
    Unknown { epoch: String },
    /// Somebody else uses this client id. Nothing was written.
    ClientIdClash,
}

impl Enqueued {
    /// The entry of each of the batch's `tasks`, in order; `None` for a scheduled one.
    pub(crate) fn entries(
        first: Option<EntryId>,
        scheduled: &[usize],
        tasks: usize,
    ) -> Vec<Option<EntryId>> {
        let mut next = first;
        (0..tasks)
            .map(|place| {
                if scheduled.binary_search(&place).is_ok() {
                    return None;
                }
                let entry = next;
                next = next.map(|entry| EntryId {
                    sequence: entry.sequence.saturating_add(1),
                    ..entry
                });
                entry
            })
            .collect()
    }
}

impl Store {
    /// Writes a batch, or finds out that it was written before.
    pub(crate) async fn enqueue(
        &self,
        q: &QueueName,
        batch: &Batch<'_>,
    ) -> Result<Enqueued, BackendError> {
        check_size(batch)?;
        let timed = batch.timed();
        let queue = self.keys().queue(q);
        let words = || (keys(&queue, timed), arguments(batch, timed));
        let lone = batch.tasks.len() == 1;
        read(&self.conn().run_hot(&ENQUEUE, lone, words).await?)
    }
}

fn keys(queue: &QueueKeys, timed: usize) -> Vec<Bytes> {
    let mut keys = vec![
        queue.stream(),
        queue.producers(),
        queue.clients(),
        queue.cfg(),
        queue.counters(),
    ];
    if timed > 0 {
        keys.extend([queue.tasks(), queue.scheduled(), queue.retry()]);
    }
    keys
}

fn check_size(batch: &Batch<'_>) -> Result<(), BackendError> {
    let tasks = batch.tasks.len();
    let bytes: usize = batch.tasks.iter().map(|task| task.envelope.len()).sum();
    if (1..=MAX_BATCH_TASKS).contains(&tasks) && (tasks == 1 || bytes <= MAX_BATCH_BYTES) {
        return Ok(());
    }
    Err(BackendError::new(
        BackendKind::Fatal,
        format!("a batch of {tasks} tasks and {bytes} bytes cannot be sent"),
    ))
}

fn arguments(batch: &Batch<'_>, timed: usize) -> Vec<Bytes> {
    let count = 1 + 6 * timed + batch.tasks.len();
    let mut args = Args::with_capacity(count, 128 + 128 * timed);
    args.show(Head { batch, timed });
    for (place, task) in batch.tasks.iter().enumerate() {
        let (kind, time) = match task.start {
            Start::Now => continue,
            Start::After(delay) => ("after", duration_ms(delay)),
            Start::At(due) => ("at", due.0),
        };
        args.show(place + 1);
        args.show(&task.id);
        args.copy(task.name.as_bytes());
        args.push(arg::client(task.client.as_ref()));
        args.push(Bytes::from_static(kind.as_bytes()));
        args.show(time);
    }
    for task in batch.tasks {
        args.push(task.envelope.clone());
    }
    args.into_vec()
}

/// The first argument.
struct Head<'a> {
    batch: &'a Batch<'a>,
    timed: usize,
}

impl fmt::Display for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch, timed } = self;
        f.write_str(batch.client.as_str())?;
        write!(f, " {} ", batch.number)?;
        if let Some(first) = batch.tasks.first() {
            first.id.fmt(f)?;
        }
        f.write_str(if batch.repeat { " 1" } else { " 0" })?;
        f.write_str(if batch.tracked { " 1 " } else { " 0 " })?;
        write!(f, "{timed} ")?;
        f.write_str(batch.epoch)
    }
}

fn read(reply: &Reply) -> Result<Enqueued, BackendError> {
    let mut words = reply.text()?.split(' ');
    let word = words.next();
    let epoch = words.next().map(str::to_owned);
    match (word, epoch, words.next(), words.next()) {
        (Some("stored"), Some(epoch), Some(first), Some(places)) => Ok(Enqueued::Stored {
            first_entry: match first {
                "" => None,
                first => Some(first.parse().map_err(|_| reply.wrong("an entry id"))?),
            },
            scheduled: places
                .split(',')
                .filter_map(|place| place.parse::<usize>().ok()?.checked_sub(1))
                .collect(),
            epoch,
        }),
        (Some("unknown"), Some(epoch), None, _) => Ok(Enqueued::Unknown { epoch }),
        (Some("clash"), None, ..) => Ok(Enqueued::ClientIdClash),
        _ => Err(reply.wrong("an answer to enqueue")),
    }
}

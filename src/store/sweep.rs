//! Sweep: removes what lost its owner, and finds what nobody runs into.
//!
//! Layer 2, called by `upkeep`, one bounded round at a time, by one server or by many. What needs a
//! decoded envelope to end (tasks past their deadline, parked for too long) is only named here: the
//! caller ends it by `end_pending` and `end_recorded`. Scripts: `scripts/sweep_*.lua`.

use std::time::Duration;

use bytes::Bytes;

use super::Store;
use super::arg;
use super::enqueue::MAX_BATCH_BYTES;
use super::page::{Listed, ListedEntry, PageCursor};
use super::record::Record;
use super::reply::Reply;
use super::script::script;
use crate::error::BackendError;
use crate::id::{QueueName, TaskId};

script!(SWEEP_CLIENTS, "sweep_clients", allow_oom, ["look", "clock"]);
script!(
    SWEEP_CONSUMERS,
    "sweep_consumers",
    allow_oom,
    ["look", "fence", "clock"]
);
script!(SWEEP_FIELDS, "sweep_fields", allow_oom, ["look", "fence"]);
script!(
    SWEEP_KEPT,
    "sweep_kept",
    allow_oom,
    ["look", "clock", "forget"]
);
script!(SWEEP_PARKED, "sweep_parked", allow_oom, ["look", "clock"]);

/// Items of one script call.
const PAGE: usize = 100;
/// How an envelope names its deadline: the key `d` and the marker of a MessagePack u64. What has no
/// deadline rarely has these bytes, so it stays in Redis. (A deadline that another library wrote in
/// another form is found when the task is delivered.)
const DEADLINE_MARK: &[u8] = b"d\xcf";

/// When something counts as left behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SweepLimits {
    /// Time without a sign of life. Nothing is removed before somebody has swept for so long.
    pub(crate) client_dead_after: Duration,
    /// How long after its last sign a client's last batch is remembered.
    pub(crate) producer_keep: Duration,
    /// Time without a renew and a read.
    pub(crate) consumer_dead_after: Duration,
    /// How long a parked task waits for a server that knows it.
    pub(crate) unknown_grace: Duration,
    pub(crate) archive_keep: Duration,
    pub(crate) archive_max: u64,
    /// No consumer is dead before two of these, whatever `consumer_dead_after` is.
    pub(crate) lease: Duration,
}

/// How far the rounds came. Kept by the loop; the default begins anew.
#[derive(Clone, Debug)]
pub(crate) struct SweepCursor {
    producers: Bytes,
    cancel: Bytes,
    crashes: Bytes,
    stream: PageCursor,
}

impl Default for SweepCursor {
    fn default() -> Self {
        let start = Bytes::from_static(b"0");
        Self {
            producers: start.clone(),
            cancel: start.clone(),
            crashes: start,
            stream: PageCursor::default(),
        }
    }
}

/// What one round removed and found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Swept {
    pub(crate) receivers: u64,
    pub(crate) producers: u64,
    pub(crate) consumers: u64,
    pub(crate) archived_trimmed: u64,
    /// Fields of entries that are gone.
    pub(crate) orphans: u64,
    /// Pending entries that seem to have a deadline. The caller reads it and ends what is past it.
    pub(crate) expired_candidates: Vec<ListedEntry>,
    /// Tasks for which no server with a handler came.
    pub(crate) parked_overdue: Vec<Parked>,
    /// Something was full: another round finds more at once.
    pub(crate) more: bool,
}

/// A task that was parked for longer than the grace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parked {
    pub(crate) id: TaskId,
    pub(crate) name: String,
    pub(crate) envelope: Bytes,
}

impl Store {
    /// One round.
    pub(crate) async fn sweep(
        &self,
        q: &QueueName,
        limits: &SweepLimits,
        cursor: &mut SweepCursor,
    ) -> Result<Swept, BackendError> {
        let mut swept = Swept::default();
        self.sweep_clients(q, limits, cursor, &mut swept).await?;
        self.sweep_consumers(q, limits, &mut swept).await?;
        self.sweep_fields(q, cursor, &mut swept).await?;
        self.sweep_archive(q, limits, &mut swept).await?;
        self.find_expired(q, cursor, &mut swept).await?;
        self.find_parked(q, limits, &mut swept).await?;
        Ok(swept)
    }

    async fn sweep_clients(
        &self,
        q: &QueueName,
        limits: &SweepLimits,
        cursor: &mut SweepCursor,
        swept: &mut Swept,
    ) -> Result<(), BackendError> {
        let keys = self.keys().queue(q);
        let args = vec![
            arg::millis(limits.client_dead_after),
            arg::millis(limits.producer_keep),
            cursor.producers.clone(),
        ];
        let keys = vec![keys.stream(), keys.clients(), keys.producers(), keys.cfg()];
        let reply = self.conn().run(&SWEEP_CLIENTS, keys, args).await?;
        let [receivers, producers, next, more] = reply.into_parts()?;
        swept.receivers = receivers.u64()?;
        swept.producers = producers.u64()?;
        cursor.producers = next.into_bytes()?;
        swept.more |= more.int()? == 1;
        Ok(())
    }

    async fn sweep_consumers(
        &self,
        q: &QueueName,
        limits: &SweepLimits,
        swept: &mut Swept,
    ) -> Result<(), BackendError> {
        let keys = self.keys().queue(q);
        let args = vec![arg::millis(
            limits.consumer_dead_after.max(limits.lease * 2),
        )];
        let keys = vec![keys.stream(), keys.servers()];
        swept.consumers = self.conn().run(&SWEEP_CONSUMERS, keys, args).await?.u64()?;
        swept.more |= swept.consumers >= PAGE as u64;
        Ok(())
    }

    async fn sweep_fields(
        &self,
        q: &QueueName,
        cursor: &mut SweepCursor,
        swept: &mut Swept,
    ) -> Result<(), BackendError> {
        let keys = self.keys().queue(q);
        for (fields, at) in [
            (keys.cancel(), &mut cursor.cancel),
            (keys.crashes(), &mut cursor.crashes),
        ] {
            let args = vec![at.clone()];
            let reply = self
                .conn()
                .run(&SWEEP_FIELDS, vec![keys.stream(), fields], args)
                .await?;
            let [dropped, next] = reply.into_parts()?;
            swept.orphans += dropped.u64()?;
            *at = next.into_bytes()?;
        }
        Ok(())
    }

    async fn sweep_archive(
        &self,
        q: &QueueName,
        limits: &SweepLimits,
        swept: &mut Swept,
    ) -> Result<(), BackendError> {
        let keys = self.keys().queue(q);
        let args = vec![
            arg::millis(limits.archive_keep),
            arg::shown(limits.archive_max),
        ];
        let keys = vec![keys.archived(), keys.tasks()];
        swept.archived_trimmed = self.conn().run(&SWEEP_KEPT, keys, args).await?.u64()?;
        swept.more |= swept.archived_trimmed >= PAGE as u64;
        Ok(())
    }

    async fn find_expired(
        &self,
        q: &QueueName,
        cursor: &mut SweepCursor,
        swept: &mut Swept,
    ) -> Result<(), BackendError> {
        let page = self
            .page_stream(q, "pending", &cursor.stream, PAGE, DEADLINE_MARK)
            .await?;
        cursor.stream = page.next.unwrap_or_default();
        swept.expired_candidates = page
            .tasks
            .into_iter()
            .filter_map(|task| match task {
                Listed::Entry(entry) => Some(entry),
                Listed::Recorded { .. } => None,
            })
            .collect();
        Ok(())
    }

    async fn find_parked(
        &self,
        q: &QueueName,
        limits: &SweepLimits,
        swept: &mut Swept,
    ) -> Result<(), BackendError> {
        let keys = self.keys().queue(q);
        let args = vec![
            arg::millis(limits.unknown_grace),
            arg::shown(PAGE),
            arg::shown(MAX_BATCH_BYTES),
        ];
        let keys = vec![keys.unknown(), keys.tasks()];
        let reply = self.conn().run(&SWEEP_PARKED, keys, args).await?;
        for row in reply.into_array()? {
            swept.parked_overdue.extend(read_parked(row)?);
        }
        Ok(())
    }
}

/// `None` for what is no record of ours: it stays for a person to delete.
fn read_parked(row: Reply) -> Result<Option<Parked>, BackendError> {
    let [id, record] = row.into_parts()?;
    let id = id.text().ok().and_then(|id| TaskId::new(id).ok());
    let (Some(id), Ok(record)) = (id, Record::decode(record.bytes()?)) else {
        return Ok(None);
    };
    // It may be parked under `name@version`; no name has an `@`.
    let name = record.name.split('@').next().unwrap_or_default().to_owned();
    Ok(Some(Parked {
        id,
        name,
        envelope: record.envelope,
    }))
}

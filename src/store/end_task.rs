//! Ends a task from outside: cancel, delete, archive, and the expiry that nobody runs into.
//!
//! Layer 2, called by `client`, `inspect` and `upkeep`. The caller decoded the envelope and encoded
//! the notice. A task that is running is only flagged: its holder ends it. Script:
//! `scripts/end_task.lua`.

use std::time::Duration;

use bytes::Bytes;

use super::Store;
use super::arg;
use super::reply::Reply;
use super::script::script;
use crate::error::BackendError;
use crate::id::{ClientId, EntryId, QueueName, TaskId, duration_ms};

script!(
    END_TASK,
    "end_task",
    allow_oom,
    [
        "look", "fence", "clock", "count", "forget", "notify", "record"
    ]
);

/// From which time without a sign the owner of a running task counts as dead to whoever ends it from
/// outside and does not know the lease: far more than the lease of any server that renews.
pub(crate) const OWNER_DEAD_AFTER: Duration = Duration::from_secs(60);

/// How a task ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended<'a> {
    Cancelled,
    Expired,
    Deleted,
    /// Kept for a person to look at. Name and envelope are for a task without a record.
    Archived {
        reason: &'a str,
        error: &'a str,
        name: &'a str,
        envelope: &'a Bytes,
    },
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndReply {
    /// It ended now, and its client was told.
    Ended,
    /// It is running. When flagged (cancel, delete), its holder will end it.
    Running { flagged: bool },
    /// It is not there, or has already ended.
    Gone,
}

impl Ended<'_> {
    const fn word(&self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Deleted => "deleted",
            Self::Archived { .. } => "archived",
        }
    }
}

impl Store {
    /// Ends the task of an entry, wherever it is by now. An owner idle for `idle_at_least` counts
    /// as dead; without it, whoever owns the entry runs it.
    #[expect(
        clippy::too_many_arguments,
        reason = "one argument for each thing the script needs"
    )]
    pub(crate) async fn end_pending(
        &self,
        q: &QueueName,
        entry: EntryId,
        idle_at_least: Option<Duration>,
        how: Ended<'_>,
        task: &TaskId,
        client: Option<&ClientId>,
        notice: &Bytes,
    ) -> Result<EndReply, BackendError> {
        self.end_task(q, Some(entry), idle_at_least, how, task, client, notice)
            .await
    }

    /// Ends a task that has a record, in any state; also under an owner that was silent for
    /// [`OWNER_DEAD_AFTER`]. One that has ended can only be deleted, and its client is not told again.
    pub(crate) async fn end_recorded(
        &self,
        q: &QueueName,
        task: &TaskId,
        how: Ended<'_>,
        notice: &Bytes,
    ) -> Result<EndReply, BackendError> {
        self.end_task(q, None, Some(OWNER_DEAD_AFTER), how, task, None, notice)
            .await
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one argument for each thing the script needs"
    )]
    async fn end_task(
        &self,
        q: &QueueName,
        entry: Option<EntryId>,
        idle_at_least: Option<Duration>,
        how: Ended<'_>,
        task: &TaskId,
        client: Option<&ClientId>,
        notice: &Bytes,
    ) -> Result<EndReply, BackendError> {
        let keys = self.keys().queue(q);
        let idle = idle_at_least.and_then(|idle| i64::try_from(duration_ms(idle)).ok());
        let mut args = vec![
            entry.map_or_else(Bytes::new, arg::shown),
            arg::shown(task),
            arg::shown(idle.unwrap_or(-1)),
            arg::text(how.word()),
            arg::client(client),
            notice.clone(),
        ];
        if let Ended::Archived {
            reason,
            error,
            name,
            envelope,
        } = how
        {
            args.extend([
                arg::text(name),
                envelope.clone(),
                arg::text(reason),
                arg::text(error),
            ]);
        }
        let reply = self
            .conn()
            .run(
                &END_TASK,
                vec![
                    keys.stream(),
                    keys.tasks(),
                    keys.clients(),
                    keys.cancel(),
                    keys.crashes(),
                    keys.archived(),
                    keys.scheduled(),
                    keys.retry(),
                    keys.completed(),
                    keys.unknown(),
                    keys.counters(),
                ],
                args,
            )
            .await?;
        read(reply)
    }
}

fn read(reply: Reply) -> Result<EndReply, BackendError> {
    let parts = reply.into_array()?;
    match parts.as_slice() {
        [word] if word.text()? == "ended" => Ok(EndReply::Ended),
        [word] if word.text()? == "gone" => Ok(EndReply::Gone),
        [word, flagged] if word.text()? == "running" => Ok(EndReply::Running {
            flagged: flagged.int()? == 1,
        }),
        _ => Err(Reply::Array(parts).wrong("how a task ended")),
    }
}

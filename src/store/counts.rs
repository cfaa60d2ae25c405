//! Counts: how many tasks a queue holds in each state, exactly and of one moment.
//!
//! Layer 2, called by `inspect`. Script: `scripts/counts.lua`.

use super::Store;
use super::look_up::{given, lossy};
use super::reply::Reply;
use super::script::script;
use crate::error::BackendError;
use crate::id::{Millis, QueueName};

script!(COUNTS, "counts", allow_oom, ["fence", "clock"]);

/// The size of a queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Waiting in the stream, the released ones included.
    pub(crate) pending: u64,
    /// Held by a server.
    pub(crate) active: u64,
    pub(crate) scheduled: u64,
    pub(crate) retry: u64,
    pub(crate) archived: u64,
    pub(crate) completed: u64,
    pub(crate) parked: u64,
    /// Handed back by a server and not yet taken by another; part of `pending`.
    pub(crate) released: u64,
    pub(crate) paused: Option<Paused>,
    pub(crate) now: Millis,
}

/// A pause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Paused {
    pub(crate) by: String,
    pub(crate) why: String,
    pub(crate) until: Option<Millis>,
    pub(crate) since: Millis,
}

impl Store {
    /// Counts one queue; all zero if there is none.
    pub(crate) async fn counts(&self, q: &QueueName) -> Result<Counts, BackendError> {
        let keys = self.keys().queue(q);
        let reply = self
            .conn()
            .run(
                &COUNTS,
                vec![
                    keys.stream(),
                    keys.cfg(),
                    keys.scheduled(),
                    keys.retry(),
                    keys.archived(),
                    keys.completed(),
                    keys.unknown(),
                ],
                Vec::new(),
            )
            .await?;
        let [
            entries,
            held,
            released,
            scheduled,
            retry,
            archived,
            completed,
            parked,
            paused,
            now,
        ] = reply.into_parts()?;
        let (entries, held, released) = (entries.u64()?, held.u64()?, released.u64()?);
        let active = held.saturating_sub(released);
        Ok(Counts {
            pending: entries.saturating_sub(active),
            active,
            scheduled: scheduled.u64()?,
            retry: retry.u64()?,
            archived: archived.u64()?,
            completed: completed.u64()?,
            parked: parked.u64()?,
            released,
            paused: read_paused(paused)?,
            now: Millis(now.u64()?),
        })
    }
}

fn read_paused(reply: Reply) -> Result<Option<Paused>, BackendError> {
    if reply.array()?.is_empty() {
        return Ok(None);
    }
    let [by, why, until, since] = reply.into_parts()?;
    Ok(Some(Paused {
        by: lossy(&by)?,
        why: lossy(&why)?,
        until: given(&until, Reply::u64)?.map(Millis),
        since: Millis(since.u64()?),
    }))
}

//! One queue: what is in it, and whether it delivers.
//!
//! Layer 4.

use std::time::SystemTime;

use super::Inspector;
use crate::envelope::wall_millis;
use crate::error::{BackendError, BackendKind, InspectError};
use crate::id::{Millis, QueueName};

/// How many tasks of a queue are in each state, at one moment.
///
/// ```no_run
/// # async fn example(client: streamfleet::Client) -> Result<(), streamfleet::InspectError> {
/// let counts = client.inspect().counts("default").await?;
/// println!("{} wait, {} run", counts.pending + counts.scheduled, counts.active);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueCounts {
    /// In the stream, not handed to a server.
    pub pending: u64,
    /// Held by a server.
    pub active: u64,
    /// Waiting for their first time.
    pub scheduled: u64,
    /// Waiting for their next attempt.
    pub retry: u64,
    /// Ended without success and kept.
    pub archived: u64,
    /// Succeeded and kept.
    pub completed: u64,
    /// Waiting for a server that knows them.
    pub parked: u64,
    /// The pause, if the queue is paused.
    pub paused: Option<PauseInfo>,
    /// The time of Redis when it counted.
    pub now: Millis,
}

/// Why a queue delivers nothing.
///
/// ```no_run
/// # async fn example(client: streamfleet::Client) -> Result<(), streamfleet::InspectError> {
/// if let Some(pause) = client.inspect().counts("default").await?.paused {
///     println!("paused by {}: {}", pause.by, pause.reason);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PauseInfo {
    /// Who paused it: a client's id, or a name of a tool.
    pub by: String,
    /// The reason given.
    pub reason: String,
    /// When it ends by itself, in Redis time.
    pub until: Option<Millis>,
    /// When it began, in Redis time.
    pub since: Millis,
}

impl Inspector {
    /// Counts the tasks of a queue by state; all zero if there is no such queue.
    ///
    /// # Errors
    /// [`InspectError`]: a bad name, or Redis refuses or does not answer.
    pub async fn counts(&self, queue: impl AsRef<str>) -> Result<QueueCounts, InspectError> {
        let counts = self.store.counts(&QueueName::new(queue)?).await?;
        Ok(QueueCounts {
            pending: counts.pending,
            active: counts.active,
            scheduled: counts.scheduled,
            retry: counts.retry,
            archived: counts.archived,
            completed: counts.completed,
            parked: counts.parked,
            paused: counts.paused.map(|paused| PauseInfo {
                by: paused.by,
                reason: paused.why,
                until: paused.until,
                since: paused.since,
            }),
            now: counts.now,
        })
    }

    /// Stops the queue from handing out tasks, until it is resumed. Running tasks go on, and
    /// enqueues are taken. What a busy server had taken just before the pause starts within 50 ms or
    /// is handed back. Pausing again changes the reason.
    ///
    /// # Errors
    /// [`InspectError`]: a bad name, or Redis refuses or does not answer.
    pub async fn pause(
        &self,
        queue: impl AsRef<str>,
        reason: impl AsRef<str>,
    ) -> Result<(), InspectError> {
        self.pause_or_until(queue.as_ref(), reason.as_ref(), None)
            .await
    }

    /// Like [`pause`](Self::pause), but the queue is resumed by itself when the clock of Redis
    /// shows this time.
    ///
    /// # Errors
    /// [`InspectError`]: a bad name, or Redis refuses or does not answer.
    pub async fn pause_until(
        &self,
        queue: impl AsRef<str>,
        reason: impl AsRef<str>,
        until: SystemTime,
    ) -> Result<(), InspectError> {
        let until = wall_millis(until).ok_or_else(|| {
            BackendError::new(
                BackendKind::Fatal,
                "the end of the pause is not a time from 1970 to 9999",
            )
        })?;
        self.pause_or_until(queue.as_ref(), reason.as_ref(), Some(until))
            .await
    }

    async fn pause_or_until(
        &self,
        queue: &str,
        reason: &str,
        until: Option<Millis>,
    ) -> Result<(), InspectError> {
        let by = self.by.as_str();
        Ok(self
            .store
            .pause(&QueueName::new(queue)?, by, reason, until)
            .await?)
    }

    /// Lets a paused queue go on, in its order. Says whether it was paused.
    ///
    /// # Errors
    /// [`InspectError`]: a bad name, or Redis refuses or does not answer.
    pub async fn resume(&self, queue: impl AsRef<str>) -> Result<bool, InspectError> {
        Ok(self.store.resume(&QueueName::new(queue)?).await?)
    }
}

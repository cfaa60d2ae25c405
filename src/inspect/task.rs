//! One task: a look at it, and what a person can do with it.
//!
//! Layer 4. A task is found by its record; one on its first run has none, so the stream is searched
//! around the time in its id, as far as a bound allows.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{CancelOutcome, Inspector, OWNER_DEAD_AFTER};
use crate::envelope::{Ending, Envelope, EnvelopeError, Head, Limits, Notice};
use crate::error::InspectError;
use crate::id::{ClientId, ConsumerId, EntryId, Millis, QueueName, TaskId};
use crate::options::Codec;
use crate::state::TaskState;
use crate::store::{EndReply, Ended, Found, Record, RunNow, Scanned, Wanted};

/// The reason word of what a person archived.
const OPERATOR: &str = "operator";

/// One task as it is stored.
///
/// ```no_run
/// # async fn example(
/// #     client: streamfleet::Client,
/// #     id: streamfleet::TaskId,
/// # ) -> Result<(), streamfleet::InspectError> {
/// let task = client.inspect().task("default", &id).await?;
/// println!("{} is {} after {} failures", task.name, task.state, task.attempt);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TaskInfo {
    /// The task's id.
    pub id: TaskId,
    /// The task's name.
    pub name: String,
    /// The queue it is in.
    pub queue: QueueName,
    /// Its state.
    pub state: TaskState,
    /// Its entry, while it is in the stream.
    pub entry: Option<EntryId>,
    /// The server that holds it.
    pub consumer: Option<ConsumerId>,
    /// How often its entry was delivered.
    pub deliveries: u64,
    /// How many attempts failed.
    pub attempt: u32,
    /// When it is due, in Redis time, while it waits for its time.
    pub due: Option<Millis>,
    /// When it failed last or ended, in Redis time.
    pub ended_at: Option<Millis>,
    /// The word for its last failure or its ending, such as `failed`, `panicked` or `poison`.
    pub reason: Option<String>,
    /// The text of its last error.
    pub error: Option<String>,
    /// When it was enqueued, by the clock of who did.
    pub enqueued_at: Millis,
    /// The client that is told how it ends.
    pub client: Option<ClientId>,
    /// Its headers.
    pub headers: BTreeMap<String, String>,
    /// How the payload is written.
    pub codec: Codec,
    /// The payload's bytes; empty if this version cannot read the envelope.
    pub payload: Bytes,
    /// Why the envelope could not be read as a whole.
    pub unreadable: Option<String>,
}

impl TaskInfo {
    /// What the envelope says, and nothing about where the task is.
    pub(super) fn of_envelope(
        queue: &QueueName,
        envelope: &Bytes,
        state: TaskState,
    ) -> Result<Self, EnvelopeError> {
        // Limits protect servers from foreign payloads; here nothing is decoded.
        let limits = Limits {
            max_bytes: usize::MAX,
        };
        let mut info = Self::of_head(queue, Head::decode(envelope)?, state);
        match Envelope::decode(envelope, &limits) {
            Ok(envelope) => {
                info.attempt = envelope.attempt;
                info.codec = envelope.codec;
                info.payload = envelope.payload;
                info.headers = envelope.parts.headers;
            }
            Err(error) => info.unreadable = Some(error.to_string()),
        }
        Ok(info)
    }

    fn of_head(queue: &QueueName, head: Head, state: TaskState) -> Self {
        Self {
            id: head.id,
            name: head.name.to_string(),
            queue: queue.clone(),
            state,
            entry: None,
            consumer: None,
            deliveries: 0,
            attempt: 0,
            due: None,
            ended_at: None,
            reason: None,
            error: None,
            enqueued_at: head.enqueued_at,
            client: head.client,
            headers: BTreeMap::new(),
            codec: Codec::default(),
            payload: Bytes::new(),
            unreadable: None,
        }
    }

    /// What a record says. A record whose envelope cannot be read is shown all the same.
    pub(super) fn of_record(queue: &QueueName, id: &TaskId, record: Record) -> Self {
        let mut info =
            Self::of_envelope(queue, &record.envelope, record.state).unwrap_or_else(|error| {
                let head = Head {
                    version: 0,
                    id: id.clone(),
                    name: record.name.as_str().into(),
                    client: record.client.clone(),
                    enqueued_at: Millis::default(),
                };
                let mut info = Self::of_head(queue, head, record.state);
                info.unreadable = Some(error.to_string());
                info
            });
        info.entry = record.entry;
        info.due = record.due;
        info.ended_at = record.ended_at;
        info.reason = record.reason;
        info.error = record.error;
        info
    }
}

impl Inspector {
    /// One task by its id.
    ///
    /// A task on its first run is found by a search around the time in its id, which has a bound
    /// of 10,000 entries.
    ///
    /// # Errors
    /// [`InspectError::NotFound`] if it is not there; a bad name; Redis refuses or does not answer.
    pub async fn task(
        &self,
        queue: impl AsRef<str>,
        id: &TaskId,
    ) -> Result<TaskInfo, InspectError> {
        let queue = QueueName::new(queue)?;
        if let Some(record) = self.store.record(&queue, id).await? {
            let mut info = TaskInfo::of_record(&queue, id, record);
            if info.state == TaskState::Pending {
                self.add_place(&mut info).await?;
            }
            return Ok(info);
        }
        let scanned = self.scan(&queue, id).await?;
        let mut info = TaskInfo::of_envelope(&queue, &scanned.envelope, scanned.state)
            .map_err(|error| malformed(id, &error))?;
        info.entry = Some(scanned.entry);
        info.consumer = scanned.consumer;
        info.deliveries = scanned.count;
        Ok(info)
    }

    /// Whether a task in the stream waits or runs, which its record does not know.
    async fn add_place(&self, info: &mut TaskInfo) -> Result<(), InspectError> {
        let wanted = [Wanted {
            id: info.id.clone(),
            entry: info.entry,
            deadline: None,
        }];
        let mut seen = self.store.look_up(&info.queue, None, &wanted).await?;
        if let Some(Found::At {
            state,
            entry,
            consumer,
            count,
            ..
        }) = seen.found.pop()
        {
            info.state = state;
            info.entry = entry;
            info.consumer = consumer;
            info.deliveries = count;
        }
        Ok(())
    }

    async fn scan(&self, queue: &QueueName, id: &TaskId) -> Result<Scanned, InspectError> {
        let scanned = self.store.scan_for(queue, id).await?;
        scanned.ok_or_else(|| not_found(queue, id))
    }

    /// Puts a task that waits, failed or was archived into the stream now.
    ///
    /// # Errors
    /// [`InspectError::WrongState`] if it is in the stream already; otherwise as
    /// [`task`](Self::task).
    pub async fn run_now(
        &self,
        queue: impl AsRef<str>,
        id: &TaskId,
    ) -> Result<EntryId, InspectError> {
        let queue = QueueName::new(queue)?;
        let wrong = |state| InspectError::WrongState {
            id: id.clone(),
            state,
            needed: "only a scheduled, retry, archived or parked task can be run now",
        };
        match self.store.run_now(&queue, id).await? {
            RunNow::Moved(entry) => Ok(entry),
            RunNow::WrongState(state) => Err(wrong(state)),
            // A task without a record may be in the stream.
            RunNow::Gone => Err(wrong(self.scan(&queue, id).await?.state)),
        }
    }

    /// Cancels a task. One that is not running ends now; one that runs is told.
    ///
    /// # Errors
    /// [`InspectError`]: a bad name, or Redis refuses or does not answer.
    pub async fn cancel(
        &self,
        queue: impl AsRef<str>,
        id: &TaskId,
    ) -> Result<CancelOutcome, InspectError> {
        let queue = QueueName::new(queue)?;
        let reply = self.end(&queue, id, Ending::Cancelled).await?;
        Ok(CancelOutcome::of(reply))
    }

    /// Deletes a task in any state. One that runs is told to stop.
    ///
    /// # Errors
    /// [`InspectError::NotFound`] if it is not there; a bad name; Redis refuses or does not answer.
    pub async fn delete(
        &self,
        queue: impl AsRef<str>,
        id: &TaskId,
    ) -> Result<CancelOutcome, InspectError> {
        let queue = QueueName::new(queue)?;
        match self.end(&queue, id, Ending::Deleted).await? {
            EndReply::Gone => Err(not_found(&queue, id)),
            reply => Ok(CancelOutcome::of(reply)),
        }
    }

    /// Archives a task that is not running.
    ///
    /// # Errors
    /// [`InspectError::WrongState`] if it runs; otherwise as [`delete`](Self::delete).
    pub async fn archive(&self, queue: impl AsRef<str>, id: &TaskId) -> Result<(), InspectError> {
        let queue = QueueName::new(queue)?;
        match self.end(&queue, id, Ending::Archived).await? {
            EndReply::Ended => Ok(()),
            EndReply::Running { .. } => Err(InspectError::WrongState {
                id: id.clone(),
                state: TaskState::Active,
                needed: "a running task cannot be archived",
            }),
            EndReply::Gone => Err(not_found(&queue, id)),
        }
    }

    /// Ends a task by its record, or by its entry if it has none.
    async fn end(
        &self,
        queue: &QueueName,
        id: &TaskId,
        ending: Ending,
    ) -> Result<EndReply, InspectError> {
        let notice = Notice {
            task: id.clone(),
            ending,
        };
        let (ending, notice) = (&notice.ending, notice.encode());
        let nothing = Bytes::new();
        let reply = self
            .store
            .end_recorded(queue, id, how(ending, "", &nothing), &notice)
            .await?;
        if reply != EndReply::Gone {
            return Ok(reply);
        }
        let Some(found) = self.store.scan_for(queue, id).await? else {
            return Ok(EndReply::Gone);
        };
        let head = Head::decode(&found.envelope).map_err(|error| malformed(id, &error))?;
        let how = how(ending, &head.name, &found.envelope);
        let dead = Some(OWNER_DEAD_AFTER);
        let client = head.client.as_ref();
        Ok(self
            .store
            .end_pending(queue, found.entry, dead, how, id, client, &notice)
            .await?)
    }
}

fn how<'a>(ending: &Ending, name: &'a str, envelope: &'a Bytes) -> Ended<'a> {
    match ending {
        Ending::Archived => Ended::Archived {
            reason: OPERATOR,
            error: "archived by an operator",
            name,
            envelope,
        },
        Ending::Deleted => Ended::Deleted,
        _ => Ended::Cancelled,
    }
}

fn not_found(queue: &QueueName, id: &TaskId) -> InspectError {
    InspectError::NotFound {
        queue: queue.clone(),
        id: id.clone(),
    }
}

pub(super) fn malformed(id: &TaskId, error: &impl ToString) -> InspectError {
    InspectError::Malformed {
        id: id.clone(),
        message: error.to_string(),
    }
}

//! [`TaskHandle`]: one enqueued task, and the wait for its outcome.
//!
//! Layer 4. A handle holds a share of the waiter and of the client; dropping it cancels nothing.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::decode::typed;
use super::shared::Owner;
use super::waiter::Ticket;
use crate::envelope::{Ending, Notice};
use crate::error::{InspectError, ResultError};
use crate::id::{ConsumerId, EntryId, Millis, QueueName, TaskId};
use crate::inspect::{CancelOutcome, OWNER_DEAD_AFTER};
use crate::state::TaskState;
use crate::store::{Ended, Found, Wanted};
use crate::task::Task;

/// An enqueued task: its ids, its state, its result.
///
/// Clones wait for the same task, and each gets the result. Dropping a handle never cancels the
/// task. While there is a handle, its client goes on.
///
/// ```no_run
/// # #[cfg(feature = "macros")] {
/// # use serde::{Deserialize, Serialize};
/// # use streamfleet::{Client, Task};
/// # #[derive(Serialize, Deserialize, Task)]
/// # #[task(name = "render", output = String)]
/// # struct Render;
/// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let handle = client.enqueue(Render).await?;
/// println!("task {} is on its way", handle.id());
/// let url: String = handle.result().await?;
/// # Ok(()) }
/// # }
/// ```
pub struct TaskHandle<T> {
    owner: Arc<Owner>,
    ticket: Ticket,
    of: PhantomData<fn() -> T>,
}

/// Where a task is.
///
/// ```no_run
/// # async fn example<T: streamfleet::Task>(
/// #     handle: streamfleet::TaskHandle<T>,
/// # ) -> Result<(), streamfleet::InspectError> {
/// match handle.status().await? {
///     Some(status) => println!("{}", status.state),
///     None => println!("it has ended"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TaskStatus {
    /// The task's state.
    pub state: TaskState,
    /// Its entry, while it is in the stream.
    pub entry: Option<EntryId>,
    /// The server that runs it.
    pub consumer: Option<ConsumerId>,
    /// How often its entry was delivered.
    pub deliveries: u64,
    /// When it is due, in Redis time, while it waits for its time.
    pub due: Option<Millis>,
    /// The text of its last error.
    pub error: Option<String>,
}

impl<T> TaskHandle<T> {
    pub(super) const fn new(owner: Arc<Owner>, ticket: Ticket) -> Self {
        Self {
            owner,
            ticket,
            of: PhantomData,
        }
    }

    /// The task's id.
    #[must_use]
    pub fn id(&self) -> &TaskId {
        &self.ticket.waiter.id
    }

    /// The queue it was put in.
    #[must_use]
    pub fn queue(&self) -> &QueueName {
        &self.ticket.lane.queue
    }

    /// The stream entry it was put in as; none for a task that was scheduled.
    #[must_use]
    pub fn entry_id(&self) -> Option<EntryId> {
        self.ticket.waiter.stored().flatten()
    }

    /// Where the task is now; `None` once it has ended without a place in the archive.
    ///
    /// # Errors
    /// [`InspectError`] if Redis refuses or does not answer.
    pub async fn status(&self) -> Result<Option<TaskStatus>, InspectError> {
        let wanted = [Wanted {
            id: self.id().clone(),
            entry: self.entry_id(),
            deadline: self.ticket.waiter.deadline,
        }];
        let client = self.ticket.lane.client();
        let store = &self.owner.shared.store;
        let mut seen = store.look_up(self.queue(), Some(&client), &wanted).await?;
        Ok(match seen.found.pop() {
            Some(Found::At {
                state,
                entry,
                consumer,
                count,
                due,
                error,
                ..
            }) => Some(TaskStatus {
                state,
                entry,
                consumer,
                deliveries: count,
                due,
                error: error.map(|(_, text)| text),
            }),
            Some(Found::Gone) | None => None,
        })
    }

    /// Cancels the task. One that is not running ends now; one that runs is told, and its server
    /// ends it as cancelled unless it finishes first.
    ///
    /// # Errors
    /// [`InspectError`] if Redis refuses or does not answer. It may be called again.
    pub async fn cancel(&self) -> Result<CancelOutcome, InspectError> {
        let store = &self.owner.shared.store;
        let notice = Notice {
            task: self.id().clone(),
            ending: Ending::Cancelled,
        };
        let (queue, notice) = (self.queue(), notice.encode());
        let reply = match self.entry_id() {
            Some(entry) => {
                let client = self.ticket.lane.client();
                let dead = Some(OWNER_DEAD_AFTER);
                let how = Ended::Cancelled;
                store
                    .end_pending(queue, entry, dead, how, self.id(), Some(&client), &notice)
                    .await?
            }
            None => {
                store
                    .end_recorded(queue, self.id(), Ended::Cancelled, &notice)
                    .await?
            }
        };
        Ok(CancelOutcome::of(reply))
    }
}

impl<T: Task> TaskHandle<T> {
    /// Waits for the outcome, as long as the task exists: also while no server runs or Redis is
    /// away. Several calls and clones may wait; each gets the outcome.
    ///
    /// # Errors
    /// [`ResultError`]: every way a task can end without its output.
    pub async fn result(&self) -> Result<T::Output, ResultError<T::Error>> {
        typed::<T>(self.ticket.waiter.wait().await)
    }

    /// Waits for the outcome for at most this long. The task goes on.
    ///
    /// # Errors
    /// [`ResultError::WaitTimeout`] if the wait was over first, or as [`result`](Self::result).
    pub async fn result_timeout(
        &self,
        timeout: Duration,
    ) -> Result<T::Output, ResultError<T::Error>> {
        match tokio::time::timeout(timeout, self.ticket.waiter.wait()).await {
            Ok(outcome) => typed::<T>(outcome),
            Err(_) => Err(ResultError::WaitTimeout(timeout)),
        }
    }
}

impl<T: Task> IntoFuture for TaskHandle<T> {
    type Output = Result<T::Output, ResultError<T::Error>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.result().await })
    }
}

impl<T> Clone for TaskHandle<T> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.owner), self.ticket.clone())
    }
}

impl<T> fmt::Debug for TaskHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle")
            .field("id", self.id())
            .field("queue", self.queue())
            .field("entry_id", &self.entry_id())
            .finish_non_exhaustive()
    }
}

//! The builder of one enqueue, and the future that sends it.
//!
//! Layer 4. Nothing is sent before the first poll. A future that is dropped in flight leaves
//! nothing behind; its task may be in Redis all the same.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::api::Client;
use super::batch::{Answer, Parcel, Placed, Refusal, Tasks};
use super::handle::TaskHandle;
use super::plan::{Awaits, Plan};
use super::shared::Owner;
use super::waiter::Ticket;
use crate::envelope::Arena;
use crate::error::EnqueueError;
use crate::id::{QueueName, TaskId};
use crate::options::{Backoff, Codec, TaskOptions};
use crate::task::Task;

/// Holds one task of the usual size: its payload, and its envelope with the payload in it.
const ONE_TASK: usize = 512;

/// The enqueue gives a [`TaskHandle`] to wait with.
#[derive(Clone, Copy, Debug)]
pub struct Awaited(());

/// The enqueue gives a [`TaskId`] only, and nobody is told how the task ends.
#[derive(Clone, Copy, Debug)]
pub struct Forgotten(());

/// What an enqueue was set to, besides its tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    pub(super) options: TaskOptions,
    pub(super) codec: Option<Codec>,
    /// The first setting that was refused.
    pub(super) refused: Option<EnqueueError>,
}

impl Choice {
    pub(super) fn change(&mut self, change: impl FnOnce(TaskOptions) -> TaskOptions) {
        self.options = change(std::mem::take(&mut self.options));
    }

    pub(super) fn queue(&mut self, name: &str) {
        match QueueName::new(name) {
            Ok(queue) => self.change(|options| options.queue(queue)),
            Err(error) => _ = self.refused.get_or_insert(error.into()),
        }
    }
}

/// One enqueue. It is sent when it is awaited.
///
/// Options that are not set fall through to [`Task::options`], then to the defaults.
///
/// ```no_run
/// # #[cfg(feature = "macros")] {
/// # use serde::{Deserialize, Serialize};
/// # use streamfleet::{Client, Task};
/// # #[derive(Serialize, Deserialize, Task)]
/// # #[task(name = "report", output = String)]
/// # struct Report { day: u32 }
/// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// let handle = client
///     .enqueue(Report { day: 3 })
///     .queue("reports")
///     .timeout(Duration::from_secs(60))
///     .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
///     .await?;
/// println!("{} waits in {}", handle.id(), handle.queue());
/// # Ok(()) }
/// # }
/// ```
#[must_use = "an enqueue is sent when it is awaited"]
pub struct Enqueue<T, M = Awaited> {
    /// None in a handler's unit test, where there is nowhere to send it to.
    client: Option<Client>,
    task: T,
    choice: Choice,
    mode: PhantomData<M>,
}

impl<T> Enqueue<T> {
    pub(crate) fn new(client: Option<Client>, task: T) -> Self {
        Self {
            client,
            task,
            choice: Choice::default(),
            mode: PhantomData,
        }
    }

    /// Asks for no notification: the enqueue gives the task's id, and nobody can wait for it. It
    /// costs Redis and this process less.
    ///
    /// ```no_run
    /// # #[cfg(feature = "macros")] {
    /// # use serde::{Deserialize, Serialize};
    /// # use streamfleet::{Client, Task, TaskId};
    /// # #[derive(Serialize, Deserialize, Task)]
    /// # #[task(name = "audit", output = ())]
    /// # struct Audit;
    /// # async fn example(client: Client) -> Result<(), streamfleet::EnqueueError> {
    /// let id: TaskId = client.enqueue(Audit).forget().await?;
    /// # Ok(()) }
    /// # }
    /// ```
    pub fn forget(self) -> Enqueue<T, Forgotten> {
        Enqueue {
            client: self.client,
            task: self.task,
            choice: self.choice,
            mode: PhantomData,
        }
    }
}

/// The options that one enqueue and a bulk have in common.
macro_rules! option_methods {
    () => {
        /// The queue; that of the task's type unless set, then `default`.
        pub fn queue(mut self, name: impl AsRef<str>) -> Self {
            self.choice.queue(name.as_ref());
            self
        }

        /// Start this long after Redis took the task.
        pub fn delay(mut self, delay: Duration) -> Self {
            self.choice.change(|options| options.delay(delay));
            self
        }

        /// Start when the clock of Redis shows this time; a time in the past is now.
        pub fn at(mut self, time: SystemTime) -> Self {
            self.choice.change(|options| options.at(time));
            self
        }

        /// How many failed attempts are followed by another one; 25 unless set.
        pub fn max_retries(mut self, retries: u32) -> Self {
            self.choice.change(|options| options.max_retries(retries));
            self
        }

        /// The wait before each retry.
        pub fn backoff(mut self, backoff: Backoff) -> Self {
            self.choice.change(|options| options.backoff(backoff));
            self
        }

        /// How long one run may take; 30 minutes unless set.
        pub fn timeout(mut self, timeout: Duration) -> Self {
            self.choice.change(|options| options.timeout(timeout));
            self
        }

        /// When the task is of no use any more: it is not started then and ends as expired.
        pub fn deadline(mut self, deadline: SystemTime) -> Self {
            self.choice.change(|options| options.deadline(deadline));
            self
        }

        /// One header. Names and values are text of at most 8 KiB together.
        pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
            self.choice.change(|options| options.header(name, value));
            self
        }

        /// How the payload is written; [`Task::CODEC`](crate::Task::CODEC) unless set.
        pub fn codec(mut self, codec: Codec) -> Self {
            self.choice.codec = Some(codec);
            self
        }
    };
}
pub(super) use option_methods;

impl<T, M> Enqueue<T, M> {
    option_methods!();
}

impl<T: Task, M> Enqueue<T, M> {
    fn send(self, awaits: Awaits) -> Result<Sent, EnqueueError> {
        let Choice {
            options,
            codec,
            refused,
        } = self.choice;
        if let Some(error) = refused {
            return Err(error);
        }
        let owner = self.client.ok_or(EnqueueError::Closed)?.owner;
        let plan = Plan::<T>::new(&owner, options, codec, awaits)?;
        let mut arena = Arena::of_blocks(ONE_TASK);
        let task = plan.new_task(&owner.shared, &self.task, &mut arena)?;
        plan.lane.reserve(1)?;
        let ticket = plan.ticket(&task);
        let (answer, answered) = oneshot::channel();
        let sent = Sent {
            owner,
            ticket,
            id: task.id.clone(),
            since: Instant::now(),
            answered,
        };
        plan.lane.post(Parcel {
            bytes: task.envelope.len(),
            tasks: Tasks::One(task),
            since: sent.since,
            answer,
        })?;
        Ok(sent)
    }
}

impl<T: Task> IntoFuture for Enqueue<T> {
    type Output = Result<TaskHandle<T>, EnqueueError>;
    type IntoFuture = EnqueueFuture<T>;
    fn into_future(self) -> Self::IntoFuture {
        EnqueueFuture(Stage::Ready(self))
    }
}

impl<T: Task> IntoFuture for Enqueue<T, Forgotten> {
    type Output = Result<TaskId, EnqueueError>;
    type IntoFuture = EnqueueFuture<T, Forgotten>;
    fn into_future(self) -> Self::IntoFuture {
        EnqueueFuture(Stage::Ready(self))
    }
}

impl<T: Task, M> fmt::Debug for Enqueue<T, M> {
    /// Without the task, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueue")
            .field("task", &T::NAME)
            .finish_non_exhaustive()
    }
}

/// An enqueue on its way. Made by awaiting an [`Enqueue`].
#[must_use = "futures do nothing unless polled"]
pub struct EnqueueFuture<T, M = Awaited>(Stage<T, M>);

enum Stage<T, M> {
    Ready(Enqueue<T, M>),
    Sent(Sent),
    Done,
}

/// A task that was handed to the enqueuer.
struct Sent {
    owner: Arc<Owner>,
    ticket: Option<Ticket>,
    id: TaskId,
    since: Instant,
    answered: oneshot::Receiver<Answer>,
}

// The task is moved out as a whole before it is used; nothing in it is ever pinned.
impl<T, M> Unpin for EnqueueFuture<T, M> {}

impl<T: Task, M> EnqueueFuture<T, M> {
    fn poll_stored(
        &mut self,
        awaits: Awaits,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Sent, EnqueueError>> {
        let mut sent = match std::mem::replace(&mut self.0, Stage::Done) {
            Stage::Ready(enqueue) => enqueue.send(awaits)?,
            Stage::Sent(sent) => sent,
            // Polled after it was done: nothing is left to answer with.
            Stage::Done => return Poll::Pending,
        };
        let answer = match Pin::new(&mut sent.answered).poll(cx) {
            Poll::Ready(answer) => answer,
            Poll::Pending => {
                self.0 = Stage::Sent(sent);
                return Poll::Pending;
            }
        };
        let placed = answer.unwrap_or_else(|_| {
            // The enqueuer is gone without a word: what it did with the task is not known.
            let waited = sent.since.elapsed();
            Err(Refusal::Unknown { waited })
        });
        Poll::Ready(match placed {
            Ok(placed) => {
                let entry = match placed {
                    Placed::One(entry) => entry,
                    Placed::Many(entries) => entries.first().copied().flatten(),
                };
                if let Some(ticket) = &sent.ticket {
                    ticket.set_stored(entry);
                }
                Ok(sent)
            }
            Err(refusal) => Err(refusal.into_error(sent.id)),
        })
    }
}

impl<T: Task> Future for EnqueueFuture<T> {
    type Output = Result<TaskHandle<T>, EnqueueError>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let sent = ready!(self.get_mut().poll_stored(Awaits::Outcome, cx))?;
        Poll::Ready(match sent.ticket {
            Some(ticket) => Ok(TaskHandle::new(sent.owner, ticket)),
            // An awaited enqueue always has its ticket.
            None => Err(EnqueueError::Closed),
        })
    }
}

impl<T: Task> Future for EnqueueFuture<T, Forgotten> {
    type Output = Result<TaskId, EnqueueError>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let sent = ready!(self.get_mut().poll_stored(Awaits::Nothing, cx))?;
        Poll::Ready(Ok(sent.id))
    }
}

impl<T: Task, M> fmt::Debug for EnqueueFuture<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnqueueFuture")
            .field("task", &T::NAME)
            .finish_non_exhaustive()
    }
}

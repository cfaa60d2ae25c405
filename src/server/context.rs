//! What a handler holds besides its task.
//!
//! Layer 4.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::{Client, Enqueue};
#[cfg(feature = "testing")]
use crate::id::EntryId;
use crate::id::{Fence, Millis, QueueName, TaskId};
use crate::server::run_info::{Held, RunFacts};
use crate::server::signal::StopReason;
use crate::task::Task;

/// The shared state, the facts of this run, and a way to enqueue children.
///
/// ```
/// use streamfleet::{Context, Failure};
/// # #[derive(serde::Serialize, serde::Deserialize, streamfleet::Task)]
/// # #[task(name = "image.resize", output = String)]
/// # struct Resize { url: String }
/// struct App {
///     bucket: String,
/// }
///
/// async fn resize(cx: Context<App>, task: Resize) -> Result<String, Failure> {
///     Ok(format!("{}/{}", cx.state().bucket, task.url))
/// }
/// ```
pub struct Context<S> {
    state: Arc<S>,
    run: Arc<Run>,
}

/// One run as its handler sees it.
pub(crate) struct Run {
    pub(crate) queue: QueueName,
    pub(crate) held: Arc<Held>,
    pub(crate) facts: RunFacts,
    /// For children. `None` in a user's unit test.
    pub(crate) client: Option<Client>,
}

impl<S> Context<S> {
    pub(crate) const fn new(state: Arc<S>, run: Arc<Run>) -> Self {
        Self { state, run }
    }

    /// The state given to [`Server::builder`](crate::Server::builder), shared by all handlers.
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The task's id: the same in every attempt.
    #[must_use]
    pub fn id(&self) -> &TaskId {
        &self.run.facts.id
    }

    /// The queue it came from.
    #[must_use]
    pub fn queue(&self) -> &QueueName {
        &self.run.queue
    }

    /// Which attempt this is, from 1. Runs that were lost to a crash or handed back at a shutdown
    /// are not counted.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.run.facts.failed.saturating_add(1)
    }

    /// How many failures are followed by another attempt.
    #[must_use]
    pub fn max_retries(&self) -> u32 {
        self.run.facts.max_retries
    }

    /// Whether a failure of this attempt is the last one.
    #[must_use]
    pub fn is_last_attempt(&self) -> bool {
        self.run.facts.failed >= self.run.facts.max_retries
    }

    /// When the client enqueued it.
    #[must_use]
    pub fn enqueued_at(&self) -> Millis {
        self.run.facts.enqueued_at
    }

    /// When this run is cut off: the earlier of its timeout and the task's deadline.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.run.facts.cut_off
    }

    /// How much time is left until [`deadline`](Self::deadline); zero when it is over.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// One header of the enqueue.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.run.facts.headers.get(name).map(String::as_str)
    }

    /// A token that rises strictly over the runs of this task in one stream; see [`Fence`].
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.run.held.fence()
    }

    /// Waits until this run shall stop, and says why. A handler that does not look is dropped after
    /// a grace; one that looks can put its things in order and return.
    ///
    /// ```
    /// # use streamfleet::{Context, Failure};
    /// async fn poll_until_told(cx: Context<()>) -> Result<(), Failure> {
    ///     tokio::select! {
    ///         reason = cx.cancelled() => Err(Failure::new(reason.as_str())),
    ///         () = std::future::pending() => Ok(()),
    ///     }
    /// }
    /// ```
    pub async fn cancelled(&self) -> StopReason {
        self.run.held.signal.stopped().await
    }

    /// Why this run shall stop, if it shall: for loops that cannot wait.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.run.held.signal.reason()
    }

    /// Enqueues a child task with the server's client.
    ///
    /// A run may be repeated, and so may this: give the child a way to recognise that.
    ///
    /// ```
    /// # use streamfleet::{Context, Failure};
    /// # #[derive(serde::Serialize, serde::Deserialize, streamfleet::Task)]
    /// # #[task(name = "mail.send")]
    /// # struct Mail { to: String }
    /// async fn welcome(cx: Context<()>, to: String) -> Result<(), Failure> {
    ///     cx.enqueue(Mail { to }).forget().await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn enqueue<T: Task>(&self, task: T) -> Enqueue<T> {
        Enqueue::new(self.run.client.clone(), task)
    }
}

#[cfg(feature = "testing")]
impl<S> Context<S> {
    /// A context for a unit test of a handler, without Redis: the first attempt of a task in the
    /// queue `test`, with no retries and an hour of time. [`enqueue`](Self::enqueue) answers
    /// [`EnqueueError::Closed`](crate::EnqueueError::Closed).
    ///
    /// ```
    /// # use streamfleet::{Context, Failure};
    /// # #[derive(serde::Serialize, serde::Deserialize, streamfleet::Task)]
    /// # #[task(name = "double", output = u64)]
    /// # struct Double(u64);
    /// async fn double(cx: Context<u64>, task: Double) -> Result<u64, Failure> {
    ///     Ok(task.0 * cx.state())
    /// }
    /// # #[tokio::main] async fn main() {
    /// assert_eq!(double(Context::test(2), Double(21)).await.unwrap(), 42);
    /// # }
    /// ```
    #[must_use]
    pub fn test(state: S) -> Self {
        let hour = Duration::from_secs(60 * 60);
        let entry = EntryId {
            millis: 1,
            sequence: 0,
        };
        Self::new(
            Arc::new(state),
            Arc::new(Run {
                queue: QueueName::literal("test"),
                held: Arc::new(Held::new(0, entry, 1)),
                facts: RunFacts {
                    id: TaskId::of_entry(entry),
                    failed: 0,
                    max_retries: 0,
                    enqueued_at: Millis(0),
                    cut_off: Instant::now() + hour,
                    headers: std::collections::BTreeMap::new(),
                },
                client: None,
            }),
        )
    }

    /// Tells the handler that uses this context, or a clone of it, to stop.
    ///
    /// ```
    /// use streamfleet::{Context, StopReason};
    /// let cx = Context::test(());
    /// cx.test_stop(StopReason::Shutdown);
    /// assert_eq!(cx.stop_reason(), Some(StopReason::Shutdown));
    /// ```
    pub fn test_stop(&self, reason: StopReason) {
        self.run.held.signal.stop(reason);
    }
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            run: Arc::clone(&self.run),
        }
    }
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("queue", &self.run.queue)
            .field("task", &self.run.facts.id)
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

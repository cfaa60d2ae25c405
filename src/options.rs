//! What an enqueue can ask for.
//!
//! Layer 0: plain data; checked by `envelope`, obeyed by `lifecycle` and `server`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::id::QueueName;

/// How often a failed task is retried unless it says otherwise.
pub const DEFAULT_MAX_RETRIES: u32 = 25;
/// How long one run may take unless the task says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The largest payload and the largest output, in bytes, unless the client or server says otherwise.
pub const DEFAULT_MAX_PAYLOAD_BYTES: usize = 1024 * 1024;
/// The longest wait of any back-off.
pub const MAX_BACKOFF: Duration = Duration::from_secs(24 * 60 * 60);

/// How a payload and an output are written.
///
/// ```
/// use streamfleet::Codec;
/// assert_eq!(Codec::default(), Codec::MessagePack);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Codec {
    /// MessagePack with named fields, so that fields can be added.
    #[default]
    MessagePack,
    /// JSON, for producers and readers in other languages.
    Json,
}

/// The wait before the next attempt.
///
/// ```
/// use std::time::Duration;
/// use streamfleet::Backoff;
/// let every_second = Backoff::Fixed(Duration::from_secs(1));
/// assert_ne!(every_second, Backoff::default());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Backoff {
    /// The curve of Sidekiq and asynq: `n^4 + 15` seconds and up to `30 * (n + 1)` seconds of jitter,
    /// at most 24 hours. 25 retries take about twelve days.
    #[default]
    Curve,
    /// Always this long, without jitter.
    Fixed(Duration),
    /// Doubles from `initial` up to `max`; the wait is drawn from the upper half, so that failures
    /// which came together do not come back together.
    Exponential {
        /// The longest first wait.
        initial: Duration,
        /// The longest wait.
        max: Duration,
    },
}

/// When a task may start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum StartAt {
    /// At once.
    #[default]
    Now,
    /// This long after Redis took it.
    After(Duration),
    /// When the clock of Redis shows this time.
    At(SystemTime),
}

/// Options of a task type, and of one enqueue. What is not set falls through to the type, then to
/// the defaults of the library.
///
/// ```
/// use std::time::Duration;
/// use streamfleet::TaskOptions;
/// let options = TaskOptions::default().max_retries(3).timeout(Duration::from_secs(10));
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
#[must_use]
pub struct TaskOptions {
    pub(crate) queue: Option<QueueName>,
    pub(crate) start: Option<StartAt>,
    pub(crate) max_retries: Option<u32>,
    pub(crate) backoff: Option<Backoff>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<SystemTime>,
    pub(crate) headers: BTreeMap<String, String>,
}

impl TaskOptions {
    /// The queue; `default` unless set.
    pub fn queue(mut self, queue: QueueName) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Start this long after Redis took the task.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.start = Some(StartAt::After(delay));
        self
    }

    /// Start when the clock of Redis shows this time; a time in the past is now.
    pub fn at(mut self, time: SystemTime) -> Self {
        self.start = Some(StartAt::At(time));
        self
    }

    /// How many failed attempts are followed by another one; 25 unless set, 0 = one attempt only.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = Some(retries);
        self
    }

    /// The wait before each retry.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// How long one run may take; 30 minutes unless set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// When the task is of no use any more: then it is not started and ends as expired, and a run
    /// is cut off.
    pub fn deadline(mut self, deadline: SystemTime) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// One header, such as `traceparent`. Names and values are text of at most 8 KiB together.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// These options, and those of `base` where these say nothing.
    pub(crate) fn or(mut self, base: Self) -> Self {
        self.queue = self.queue.or(base.queue);
        self.start = self.start.or(base.start);
        self.max_retries = self.max_retries.or(base.max_retries);
        self.backoff = self.backoff.or(base.backoff);
        self.timeout = self.timeout.or(base.timeout);
        self.deadline = self.deadline.or(base.deadline);
        for (name, value) in base.headers {
            self.headers.entry(name).or_insert(value);
        }
        self
    }
}

//! The errors of every operation: small enums, only variants someone can act on.
//!
//! Layer 0. No type of the Redis client shows here: [`BackendError`] is ours, and it never holds a
//! URL or a password.

use std::fmt;
use std::time::Duration;

use crate::id::{MAX_NAME_BYTES, QueueName, TaskId};

/// The longest piece of foreign text that an error repeats, in characters.
const SHOWN_CHARS: usize = 256;

/// Foreign text as an error or a log line may show it: escaped and cut.
pub(crate) fn shown(text: &str) -> String {
    // An apostrophe breaks nothing, and Redis says "can't".
    let mut escaped = text.chars().flat_map(|character| {
        character
            .escape_debug()
            .skip(usize::from(character == '\''))
    });
    let mut shown: String = escaped.by_ref().take(SHOWN_CHARS).collect();
    if escaped.next().is_some() {
        shown.push('…');
    }
    shown
}

/// A name that cannot stand in a key.
///
/// ```
/// use streamfleet::QueueName;
/// let error = QueueName::new("a b").unwrap_err();
/// assert!(error.to_string().contains("\"a b\""));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind} \"{name}\" is not 1 to {MAX_NAME_BYTES} bytes of A-Z a-z 0-9 . _ -")]
pub struct InvalidName {
    kind: &'static str,
    name: String,
}

impl InvalidName {
    pub(crate) fn new(kind: &'static str, name: &str) -> Self {
        Self {
            kind,
            name: shown(name),
        }
    }
}

/// What Redis, or the way to it, answered instead of a result.
///
/// ```no_run
/// # async fn example() {
/// use streamfleet::Client;
/// if let Err(error) = Client::connect("redis://127.0.0.1:1").await {
///     eprintln!("no queue today: {error}");
/// }
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct BackendError {
    pub(crate) kind: BackendKind,
    message: String,
}

/// What can be done about a [`BackendError`].
///
/// ```
/// use streamfleet::BackendKind;
/// assert!(BackendKind::Ambiguous.is_transient() && !BackendKind::Fatal.is_transient());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BackendKind {
    /// Redis refused before it wrote anything and may take it later: out of memory, loading, read-only.
    NotExecuted,
    /// The reply was lost: it may have been done or not.
    Ambiguous,
    /// The stream or its group is gone; it is made again by itself.
    Group,
    /// The script is not known to this server; it is sent again by itself.
    Script,
    /// A blocking read was woken on purpose.
    Unblocked,
    /// A key of ours holds another type.
    WrongType,
    /// Nothing that time mends: wrong password, missing right, wrong address, a bug.
    Fatal,
}

impl BackendKind {
    /// Whether the same call may succeed later without anybody changing anything.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        !matches!(self, Self::Fatal | Self::WrongType)
    }
}

impl BackendError {
    pub(crate) fn new(kind: BackendKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// What can be done about it.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), streamfleet::ConnectError> {
    /// # use streamfleet::{Client, ConnectError};
    /// if let Err(ConnectError::Backend(error)) = Client::connect("redis://127.0.0.1:1").await {
    ///     println!("try again: {}", error.kind().is_transient());
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub const fn kind(&self) -> BackendKind {
        self.kind
    }
}

impl BackendError {
    /// Whether Redis refused because it has no memory left.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.kind == BackendKind::NotExecuted && self.message.starts_with("OOM")
    }
}

/// Why a client or a server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL cannot be used. The text never shows its password.
    #[error("failed to read the redis url: {0}")]
    Url(String),
    /// A name in the configuration cannot stand in a key.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The server is too old, or is no Redis.
    #[error("redis {found} is too old: redis 7.0 or valkey 7.2 is needed")]
    TooOld {
        /// The version that answered.
        found: String,
    },
    /// Redis may throw our keys away when it is full.
    #[error(
        "redis may evict queued tasks: maxmemory-policy is {policy}, set it to noeviction \
         (or start with `allow_eviction`, and lose tasks when memory runs out)"
    )]
    Evicting {
        /// The policy in force.
        policy: String,
    },
    /// A setting is out of its limits.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Redis did not answer, or refused.
    #[error("failed to connect to redis: {0}")]
    Backend(#[from] BackendError),
}

/// A setting that cannot work, with its value and its limit.
///
/// ```
/// use streamfleet::ConfigError;
/// let error = ConfigError::new("concurrency", "0", "1 to 100000");
/// assert_eq!(error.to_string(), "concurrency is 0, but must be 1 to 100000");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{setting} is {value}, but must be {limit}")]
pub struct ConfigError {
    setting: String,
    value: String,
    limit: String,
}

impl ConfigError {
    /// One setting, the value it has, and what it may be.
    pub fn new(
        setting: impl Into<String>,
        value: impl Into<String>,
        limit: impl Into<String>,
    ) -> Self {
        Self {
            setting: setting.into(),
            value: value.into(),
            limit: limit.into(),
        }
    }
}

/// Refuses a setting out of its range, naming the value and both ends.
pub(crate) fn check_range<V: Copy + PartialOrd + fmt::Debug>(
    setting: &str,
    value: V,
    least: V,
    most: V,
) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(
        setting,
        format!("{value:?}"),
        format!("{least:?} to {most:?}"),
    ))
}

/// Why [`ServerBuilder::build`](crate::ServerBuilder::build) refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A server without a handler would park every task.
    #[error("no handler was registered")]
    NoHandlers,
    /// Two handlers for one name.
    #[error("two handlers were registered for task {name}")]
    DuplicateTask {
        /// The task's name.
        name: &'static str,
    },
    /// A name in the configuration cannot stand in a key.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A setting, or a combination of settings, cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Why an enqueue failed. After [`Unknown`](Self::Unknown) the task may be in Redis; after any
/// other variant it is not.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// A name cannot stand in a key.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The payload is larger than the client's limit.
    #[error("payload of task {name} has {bytes} bytes, the limit is {limit}")]
    PayloadTooLarge {
        /// The task's name.
        name: String,
        /// The size of the encoded payload.
        bytes: usize,
        /// The limit of this client.
        limit: usize,
    },
    /// An option is out of its limits.
    #[error(transparent)]
    Option(#[from] ConfigError),
    /// The payload could not be encoded.
    #[error("failed to encode the payload of task {name}: {message}")]
    Encode {
        /// The task's name.
        name: String,
        /// What the encoder said.
        message: String,
    },
    /// The client's buffer is full, because Redis is slow or away.
    #[error("the client already buffers {limit} tasks for queue {queue}")]
    BufferFull {
        /// The queue.
        queue: QueueName,
        /// How many tasks it may hold.
        limit: usize,
    },
    /// Redis has no memory left for new work.
    #[error("redis has reached its maxmemory and takes no new tasks: {0}")]
    OutOfMemory(BackendError),
    /// Redis did not answer before the enqueue deadline and what it did is not known: the task may
    /// or may not be queued. The library never guesses; look for the effect, or enqueue again if
    /// the task may run twice.
    #[error("redis did not confirm the enqueue within {waited:?}; the task may be queued")]
    Unknown {
        /// The id the task has, if it was taken.
        id: TaskId,
        /// How long the library went on trying.
        waited: Duration,
    },
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// Redis refused.
    #[error("failed to enqueue: {0}")]
    Backend(#[from] BackendError),
}

/// Why there is no output. All but the last three are the task's one terminal outcome.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError<E = crate::Failure> {
    /// The handler's last error. The task is archived.
    #[error("task failed: {0}")]
    Failed(E),
    /// The handler panicked in its last attempt. The task is archived.
    #[error("handler panicked: {0}")]
    Panicked(String),
    /// The last attempt ran longer than the task's timeout. The task is archived.
    #[error("handler ran longer than its timeout of {0:?}")]
    TimedOut(Duration),
    /// The task took down the processes that ran it. It is archived.
    #[error("task was archived after {crashes} crashes of the process that ran it")]
    Poison {
        /// How many processes died while they ran it.
        crashes: u32,
    },
    /// No server knew the task's name or version within the grace time. It is archived.
    #[error("no server has a handler for the task: {0}")]
    NoHandler(String),
    /// The payload could not be decoded as the handler's task. It is archived.
    #[error("payload could not be decoded: {0}")]
    Undecodable(String),
    /// The output is larger than the server's limit. The task is archived.
    #[error("output has {bytes} bytes, the limit is {limit}")]
    OutputTooLarge {
        /// The size of the encoded output.
        bytes: usize,
        /// The limit of the server.
        limit: usize,
    },
    /// A person archived it by hand.
    #[error("task was archived by an operator")]
    Archived,
    /// It was cancelled.
    #[error("task was cancelled")]
    Cancelled,
    /// Its deadline passed.
    #[error("task expired: its deadline passed")]
    Expired,
    /// The handler ended it by [`Retry::Discard`](crate::Retry::Discard).
    #[error("task was discarded: {0}")]
    Discarded(String),
    /// It was deleted by hand.
    #[error("task was deleted")]
    Deleted,
    /// The outcome arrived, but not as the type that is awaited.
    #[error("outcome could not be decoded: {0}")]
    Decode(String),
    /// The task is gone and so is its outcome: Redis lost data, or the receiver was swept. It may
    /// have succeeded.
    #[error("the task's outcome was lost")]
    Lost,
    /// The wait was over first. The task goes on.
    #[error("no outcome within {0:?}")]
    WaitTimeout(Duration),
    /// The client was closed. The task goes on.
    #[error("the client is closed")]
    Closed,
}

/// Why a look or an action on tasks failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// A name cannot stand in a key.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// There is no such task any more, or it never was.
    #[error("task {id} is not in queue {queue}")]
    NotFound {
        /// The queue looked in.
        queue: QueueName,
        /// The id looked for.
        id: TaskId,
    },
    /// The task is in a state that this action does not apply to.
    #[error("task {id} is {state}: {needed}")]
    WrongState {
        /// The task.
        id: TaskId,
        /// The state it is in.
        state: crate::TaskState,
        /// What the action asks for.
        needed: &'static str,
    },
    /// A stored record could not be read.
    #[error("record of task {id} could not be read: {message}")]
    Malformed {
        /// The task.
        id: TaskId,
        /// What is wrong with it.
        message: String,
    },
    /// Redis refused or did not answer.
    #[error("failed to inspect: {0}")]
    Backend(#[from] BackendError),
}

/// Why a server stopped on its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// It could not start.
    #[error("failed to start the server: {0}")]
    Start(#[from] ConnectError),
    /// One of its loops died. This is a bug of the library; the server does not go on half.
    #[error("loop {name} of the server ended: {cause}")]
    LoopDied {
        /// The loop.
        name: &'static str,
        /// How it ended.
        cause: String,
    },
}

//! A distributed work queue on Redis Streams: typed tasks, awaited results, no lost work.

mod envelope;
mod error;
mod id;
mod lifecycle;
mod options;
mod state;
mod store;
mod task;
#[cfg(all(feature = "testing", unix))]
pub mod testing;

pub use error::{
    BackendError, BackendKind, BuildError, ConfigError, ConnectError, EnqueueError, InspectError,
    InvalidName, ResultError, ServerError,
};
pub use id::{
    ClientId, ConsumerId, EntryId, Fence, MAX_NAME_BYTES, Millis, Prefix, QueueName, TaskId,
};
pub use options::{
    Backoff, Codec, DEFAULT_MAX_PAYLOAD_BYTES, DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT, MAX_BACKOFF,
    TaskOptions,
};
pub use state::TaskState;
pub use task::{Failure, Retry, Task, TaskError};

//! A distributed work queue on Redis Streams: typed tasks, awaited results, no lost work.

#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "the failure of a test is a panic"
    )
)]

// The derive names this crate from outside; inside, its tests need the same name.
extern crate self as streamfleet;

mod client;
mod envelope;
mod error;
mod id;
mod inspect;
mod lifecycle;
mod options;
mod server;
mod state;
mod store;
mod task;
#[cfg(all(feature = "testing", unix))]
pub mod testing;
mod upkeep;

pub use client::{
    Awaited, Client, ClientBuilder, Enqueue, EnqueueAll, EnqueueFuture, Forgotten, TaskHandle,
    TaskStatus,
};
pub use error::{
    BackendError, BackendKind, BuildError, ConfigError, ConnectError, EnqueueError, InspectError,
    InvalidName, ResultError, ServerError,
};
pub use id::{
    ClientId, ConsumerId, EntryId, Fence, MAX_NAME_BYTES, Millis, Prefix, QueueName, TaskId,
};
pub use inspect::{CancelOutcome, Inspector, Page, PauseInfo, QueueCounts, TaskInfo, TaskPage};
pub use options::{
    Backoff, Codec, DEFAULT_MAX_PAYLOAD_BYTES, DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT, MAX_BACKOFF,
    TaskOptions,
};
pub use server::{
    ArchivedTask, Context, Handler, LostLease, Order, Server, ServerBuilder, StopReason,
    StopReport, shutdown_signal,
};
pub use state::TaskState;
#[cfg(feature = "macros")]
pub use streamfleet_macros::Task;
pub use task::{Failure, Retry, Task, TaskError};

/// Names for the expansion of the derive; not part of the interface.
#[doc(hidden)]
pub mod __private {
    pub use serde::Serialize;
    pub use serde::de::DeserializeOwned;
}

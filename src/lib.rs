//! A distributed work queue on Redis Streams: typed tasks, awaited results, no lost work.
//!
//! ```no_run
//! # #[cfg(feature = "macros")] {
//! use serde::{Deserialize, Serialize};
//! use streamfleet::{Client, Context, Failure, Server, Task, shutdown_signal};
//!
//! #[derive(Serialize, Deserialize, Task)]
//! #[task(name = "image.resize", output = String)]
//! struct Resize { url: String }
//!
//! async fn resize(_cx: Context<()>, task: Resize) -> Result<String, Failure> {
//!     Ok(format!("{}.small", task.url)) // any standard error by `?` is retried by policy
//! }
//!
//! async fn one_process(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//!     Server::builder(&client, ()).on(resize).build()?.run_until(shutdown_signal()).await?;
//!     Ok(())
//! }
//!
//! async fn another(client: Client) -> Result<String, Box<dyn std::error::Error>> {
//!     let handle = client.enqueue(Resize { url: "a.png".into() }).await?; // now it is in Redis
//!     Ok(handle.result().await?) // pushed when it ends
//! }
//! # }
//! ```
//!
//! # Where to start
//!
//! | for | look at |
//! |---|---|
//! | a task: its name, output, errors and options | [`Task`], [`Failure`], [`TaskOptions`] |
//! | enqueueing and awaiting | [`Client`], [`Enqueue`], [`TaskHandle`], [`ResultError`] |
//! | running tasks | [`Server`], [`ServerBuilder`], [`Context`], [`StopReport`] |
//! | looking at queues, and acting on them | [`Inspector`] |
//! | tests with a private server | `testing`, with the feature of that name, on Unix |
//!
//! # Features
//!
//! | feature | default | what |
//! |---|---|---|
//! | `macros` | yes | `#[derive(Task)]` |
//! | `tls` | no | `rediss://` through rustls |
//! | `testing` | no | private servers for tests, and [`Context`]s without Redis |
//!
//! What is promised, and what is not, is in the README; how it is built in `docs/architecture.md`;
//! every default in `docs/defaults.md`.

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

/// The code of the README is compiled with the other documentation.
#[cfg(all(doctest, feature = "macros"))]
#[doc = include_str!("../README.md")]
struct Readme;

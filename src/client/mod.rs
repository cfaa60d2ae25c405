//! The client: enqueues typed tasks and awaits their results.
//!
//! Layer 4. It owns the connection of a process that enqueues, the batches on their way to Redis
//! and the waiters for what comes back; it never runs a task. Servers use it for the children that
//! handlers enqueue.
//!
//! - `api`: [`Client`], what users hold
//! - `builder`: its settings and their checks, and connecting
//! - `enqueue`, `bulk`: the builders of one enqueue and of many
//! - `plan`: options resolved once, tasks turned into envelopes
//! - `handle`: [`TaskHandle`], and `decode`: outcomes as the task's own types
//! - `waiter`: who waits for what; `lane`: all the client holds for one queue; `shared`: for all queues
//! - `batch`, `enqueuer`: one batch in flight for each queue, repeated until Redis has answered
//! - `receiver`: reads notices; `trims`: removes them; `repair`: looks up whoever may have missed one; `heartbeat`

mod api;
mod batch;
mod builder;
mod bulk;
mod decode;
mod enqueue;
mod enqueuer;
mod handle;
mod heartbeat;
mod ids;
mod lane;
mod plan;
mod receiver;
mod repair;
mod shared;
mod trims;
mod waiter;

pub use api::Client;
pub use builder::ClientBuilder;
pub use bulk::EnqueueAll;
pub use enqueue::{Awaited, Enqueue, EnqueueFuture, Forgotten};
pub use handle::{TaskHandle, TaskStatus};

//! Runs tasks: reads them, runs their handlers, writes how they ended, and keeps their leases.
//!
//! Layer 4. Redis is only reached through `store`; what an end leads to is decided by `lifecycle`;
//! what keeps a queue in order beside that is `upkeep`. It uses `client` for the children that
//! handlers enqueue.
//!
//! | file | owns |
//! |---|---|
//! | `builder` `settings` | the configuration and its limits |
//! | `handler` `bound` `context` | from a user's function to something that can be called |
//! | `serve` | start, watch over the loops, stop |
//! | `core` | what the loops share |
//! | `reader` `blocked` `ahead` `choose` | tasks out of the streams |
//! | `run` `call` | one delivery, one handler |
//! | `subject` `conclude` | how a run ended, and what is written about it |
//! | `settler` `fenced` | the writes: successes in batches, all else one by one |
//! | `held` `run_info` `signal` | what is held, and how a run is told to stop |
//! | `keeper` | renewals, on a thread of its own |
//! | `reconcile` | deliveries whose reply was lost |
//! | `wake` `host` | hints from others; the server as its upkeep sees it |
//! | `hooks` `report` `shutdown` | what the owner is told, and the signals he sends |

mod ahead;
mod blocked;
mod bound;
mod builder;
mod call;
mod choose;
mod clock;
mod conclude;
mod context;
mod core;
mod fenced;
mod handler;
mod held;
mod hooks;
mod host;
mod keeper;
mod patience;
mod reader;
mod reconcile;
mod report;
mod run;
mod run_info;
mod serve;
mod settings;
mod settler;
mod shutdown;
mod signal;
mod subject;
mod wake;

pub use builder::{Server, ServerBuilder};
pub use choose::Order;
pub use context::Context;
pub use handler::Handler;
pub use hooks::{ArchivedTask, LostLease};
pub use report::StopReport;
pub use shutdown::shutdown_signal;
pub use signal::StopReason;

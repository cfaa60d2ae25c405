//! Runs tasks.
//!
//! Layer 4.

mod builder;
mod context;
mod handler;

pub use builder::ServerBuilder;
pub use context::Context;
pub use handler::Handler;

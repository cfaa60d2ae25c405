//! What the tests share: waiting for conditions, a proxy that breaks connections, child processes.

#![allow(dead_code, unused_imports, reason = "each test uses a part of it")]

pub mod process;
pub mod proxy;
pub mod wait;

pub use process::{ChildProcess, ChildSpawn};
pub use proxy::{Mode, Proxy};
pub use wait::{commands_received, commands_received_by_name, eventually};

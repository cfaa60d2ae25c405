//! What the tests share: a server of any kind, waiting for conditions, a proxy that breaks
//! connections, child processes.

pub(crate) mod alone;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod wait;

pub(crate) use process::{ChildProcess, ChildSpawn};
pub(crate) use proxy::{Mode, Proxy};
pub(crate) use redis::{Redis, Topology};
pub(crate) use wait::{commands_received, commands_received_by_name, eventually};

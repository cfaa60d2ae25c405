//! Everything that knows Redis: connections, key names, command names, scripts.
//!
//! Layer 2. The only place with the Redis client (fred); nothing of it shows above. It does not
//! decide what happens to a task (that is `lifecycle`, below) and runs no loops of its own except
//! one task per connection that watches over it. Called by `client`, `server`, `inspect`, `upkeep`.
//!
//! | file | owns |
//! |---|---|
//! | `url` | reading and checking the address |
//! | `link` `watcher` `settings` `suspects` | one client of fred, its life, its replacement when it is frozen |
//! | `conn` | the shared connection for commands and scripts |
//! | `blocking` | a connection for one blocking reader |
//! | `subscriber` | a connection that listens to channels |
//! | `reply` `class` | what came back, and what can be done about an error |
//! | `script` `keys` | the Lua scripts and the names of keys |

pub(crate) mod blocking;
pub(crate) mod class;
pub(crate) mod conn;
pub(crate) mod keys;
mod link;
pub(crate) mod reply;
pub(crate) mod script;
mod settings;
pub(crate) mod subscriber;
mod suspects;
pub(crate) mod url;
mod watcher;

#[cfg(test)]
mod blocking_tests;
#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod conn_tests;
#[cfg(test)]
mod tests_server;
#[cfg(test)]
mod url_tests;

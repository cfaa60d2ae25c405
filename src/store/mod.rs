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
//! | `reply` `entries` `class` | what came back, and what can be done about an error |
//! | `script` `keys` | the Lua scripts and the names of keys |
//! | `lease` `record` | what a delivery is; what is stored of a task outside the stream |
//! | `ensure` … | one call each, named like its script |

mod arg;
pub(crate) mod begin;
pub(crate) mod blocking;
pub(crate) mod class;
pub(crate) mod client_beat;
pub(crate) mod conn;
pub(crate) mod counts;
pub(crate) mod end_task;
pub(crate) mod enqueue;
pub(crate) mod ensure;
pub(crate) mod entries;
pub(crate) mod fail;
pub(crate) mod find;
pub(crate) mod keys;
pub(crate) mod lease;
mod link;
pub(crate) mod look_up;
pub(crate) mod own_pending;
pub(crate) mod page;
pub(crate) mod park;
pub(crate) mod pause;
pub(crate) mod promote;
pub(crate) mod queues;
pub(crate) mod reclaim;
pub(crate) mod record;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod reply;
pub(crate) mod run_now;
pub(crate) mod script;
pub(crate) mod server_leave;
mod settings;
pub(crate) mod settle;
pub(crate) mod subscriber;
mod suspects;
pub(crate) mod sweep;
pub(crate) mod take_released;
pub(crate) mod trim;
pub(crate) mod unpark;
pub(crate) mod upkeep_lock;
pub(crate) mod url;
pub(crate) mod wake;
mod watcher;

#[cfg(test)]
mod blocking_tests;
#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod conn_tests;
#[cfg(test)]
mod delivery_tests;
#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod sentinel_tests;
#[cfg(test)]
mod tests_server;
#[cfg(test)]
mod url_tests;

use std::sync::Arc;

pub(crate) use end_task::{EndReply, Ended, OWNER_DEAD_AFTER};
pub(crate) use enqueue::{Batch, Enqueued, NewTask, Start};
pub(crate) use fail::{Fail, Failed, Verdict};
pub(crate) use find::Scanned;
pub(crate) use lease::{Delivery, Lease};
pub(crate) use look_up::{Found, Wanted};
pub(crate) use page::{Listed, ListedEntry, PageCursor, PageOf};
pub(crate) use park::Parking;
pub(crate) use promote::Promoted;
pub(crate) use reclaim::{ReclaimCursor, ReclaimTimes, Reclaimed};
pub(crate) use record::Record;
pub(crate) use renew::{RenewTimes, Renewed};
pub(crate) use run_now::RunNow;
pub(crate) use settle::{Settled, Success};
pub(crate) use sweep::{Parked, SweepCursor, SweepLimits};

use crate::id::Prefix;

/// The calls of scripts: one method per file, below one prefix, over one shared connection.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    conn: conn::Conn,
    keys: Arc<keys::Keys>,
}

impl Store {
    pub(crate) fn new(conn: conn::Conn, prefix: Prefix) -> Self {
        Self {
            conn,
            keys: Arc::new(keys::Keys::new(prefix)),
        }
    }

    pub(crate) const fn conn(&self) -> &conn::Conn {
        &self.conn
    }

    pub(crate) fn keys(&self) -> &keys::Keys {
        &self.keys
    }

    pub(crate) fn prefix(&self) -> &Prefix {
        self.keys.prefix()
    }
}

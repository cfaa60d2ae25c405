//! What keeps a queue in order besides running its tasks: taking over the work of dead servers,
//! bringing due tasks into the stream, and sweeping what is left behind.
//!
//! Layer 3: one loop a file, all Redis through `store`. It knows nothing of servers; whoever runs
//! its loops gives it a [`Host`]. Every loop is safe when run by many at once: the upkeep lock only
//! saves work.
//!
//! - `reclaim`: the work of servers that were silent for a lease
//! - `watch`: one holder per queue looks after it: due tasks, released work, pauses, sweeps
//! - `promote`: due tasks into the stream
//! - `sweep`: what is dead, expired or overdue
//! - `unpark`: tasks that were put aside and are known here
//! - `wakes`: hints that shorten a wait

mod pace;
mod promote;
mod reclaim;
mod sweep;
mod unpark;
mod wakes;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::id::{ConsumerId, QueueName, TaskId};
use crate::store::{Delivery, Store};

pub(crate) use pace::Pace;
pub(crate) use reclaim::reclaim;
pub(crate) use unpark::unpark;
pub(crate) use wakes::Wakes;
pub(crate) use watch::watch;

/// Where the upkeep of one queue runs, and by which numbers.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) store: Store,
    pub(crate) queue: QueueName,
    pub(crate) me: ConsumerId,
    pub(crate) times: Times,
    /// Ends every loop.
    pub(crate) stop: CancellationToken,
    pub(crate) wakes: Arc<Wakes>,
    /// How many servers were seen at the queue, which sets the pace of each.
    pub(crate) pace: Arc<Pace>,
}

/// The numbers of the upkeep.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    pub(crate) every: Duration,
    pub(crate) lock: Duration,
    pub(crate) lease: Duration,
    pub(crate) quiet: Duration,
    pub(crate) unknown_grace: Duration,
    pub(crate) archive_keep: Duration,
    pub(crate) archive_max: usize,
    pub(crate) client_dead_after: Duration,
}

/// Room for deliveries: slots, and the suspect lane if it was free.
pub(crate) struct Room {
    pub(crate) slots: OwnedSemaphorePermit,
    pub(crate) suspect: Option<OwnedSemaphorePermit>,
}

/// A task that was archived by the upkeep.
pub(crate) struct Archived {
    pub(crate) id: TaskId,
    pub(crate) name: Arc<str>,
    pub(crate) reason: &'static str,
    pub(crate) error: String,
}

/// What the upkeep asks of the server that runs it.
pub(crate) trait Host: Send + Sync + 'static {
    /// Waits for at least one free slot; `None` when the server stops.
    fn room(&self) -> BoxFuture<'_, Option<Room>>;

    /// Asks Redis for deliveries by `take`, which must not be mistaken for lost ones meanwhile, and
    /// runs what came.
    fn take<'a>(&'a self, room: Room, take: BoxFuture<'a, Vec<Delivery>>) -> BoxFuture<'a, usize>;

    /// Whether this server has a handler for tasks of this name.
    fn knows(&self, name: &str) -> bool;

    /// A task was archived.
    fn archived(&self, task: Archived);
}

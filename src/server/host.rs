//! What the upkeep may ask of this server.
//!
//! Layer 4.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::envelope::VERSION;
use crate::server::core::Core;
use crate::server::hooks::ArchivedTask;
use crate::server::report::add;
use crate::store::Delivery;
use crate::upkeep::{Archived, Host, Room};

/// The most deliveries of one look at dead work.
const RECLAIM_MOST: usize = 100;

/// One lane of the server, as its upkeep sees it.
pub(crate) struct LaneHost {
    pub(crate) core: Arc<Core>,
    pub(crate) lane: usize,
}

impl Host for LaneHost {
    fn room(&self) -> BoxFuture<'_, Option<Room>> {
        async {
            let slots = self.core.slots(RECLAIM_MOST).await?;
            let suspect = Arc::clone(&self.core.suspect_lane).try_acquire_owned().ok();
            Some(Room { slots, suspect })
        }
        .boxed()
    }

    fn take<'a>(&'a self, room: Room, take: BoxFuture<'a, Vec<Delivery>>) -> BoxFuture<'a, usize> {
        async move {
            let in_flight = self.core.deliveries_in_flight.read().await;
            let deliveries = take.await;
            let taken = deliveries.len();
            add(&self.core.counts.reclaimed, taken);
            self.core
                .admit(self.lane, deliveries, Some(room.slots), room.suspect);
            drop(in_flight);
            taken
        }
        .boxed()
    }

    fn knows(&self, name: &str) -> bool {
        // A task of a version that was not known is parked under `name@version`.
        let (name, version) = match name.split_once('@') {
            Some((name, version)) => (name, version.parse().unwrap_or(u8::MAX)),
            None => (name, VERSION),
        };
        version <= VERSION && self.core.handlers.contains_key(name)
    }

    fn archived(&self, task: Archived) {
        self.core.note_archived(&ArchivedTask {
            queue: self.core.lane(self.lane).queue.clone(),
            id: task.id,
            name: task.name.to_string(),
            reason: task.reason,
            error: task.error,
        });
    }
}

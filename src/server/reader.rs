//! Takes tasks out of the streams.
//!
//! Layer 4. One reader per blocking connection: one for all queues, or in a cluster one for each.
//! It never asks for more than there are free slots, and never drops a read that is under way: what
//! Redis handed out belongs to us, seen or not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::error::{BackendError, BackendKind};
use crate::server::choose::round;
use crate::server::core::{Core, Slot};
use crate::server::patience::Patience;
use crate::store::Delivery;
use crate::store::blocking::BlockingConn;
use crate::store::keys::GROUP;
use crate::store::reply::RawEntry;

/// The most entries of one read: enough to make the cost per entry flat, small enough that a reply
/// stays short (measured: COUNT above 100 gains nothing).
const READ_MOST: usize = 100;
/// How long a queue with a key of the wrong type is left out.
const BROKEN_FOR: Duration = Duration::from_secs(1);

/// Reads the given lanes until the server stops.
pub(crate) async fn read(core: Arc<Core>, reader: Arc<BlockingConn>, lanes: Vec<usize>) {
    let mut reader = Reader {
        reconnects: reader.reconnects(),
        keys: lanes
            .iter()
            .map(|lane| core.store.keys().queue(&core.lane(*lane).queue).stream())
            .collect(),
        core,
        conn: reader,
        lanes,
        patience: Patience::default(),
    };
    while !reader.core.is_stopping() {
        reader.round().await;
    }
}

struct Reader {
    core: Arc<Core>,
    conn: Arc<BlockingConn>,
    /// The lanes it reads, and their streams in the same order.
    lanes: Vec<usize>,
    keys: Vec<Bytes>,
    patience: Patience,
    /// The connection's reconnects; those before the round that failed are marked as seen.
    reconnects: watch::Receiver<u64>,
}

impl Reader {
    /// Released work first, then what is waiting, then a wait for more.
    async fn round(&mut self) {
        self.reconnects.mark_unchanged();
        let Some(slots) = self.core.slots(READ_MOST).await else {
            return;
        };
        let Some(slots) = self.take_released(slots).await else {
            return;
        };
        let Some(slots) = self.read_waiting(slots).await else {
            return;
        };
        self.read_blocking(slots).await;
    }

    /// Takes what was handed back by others. Answers the slots that are left.
    async fn take_released(&mut self, mut slots: Slot) -> Option<Slot> {
        for lane in self.lanes.clone() {
            let place = self.core.lane(lane);
            if !place.released.swap(false, Ordering::AcqRel) {
                continue;
            }
            let room = slots.num_permits();
            let in_flight = self.core.deliveries_in_flight.read().await;
            let taken = self
                .core
                .store
                .take_released(&place.queue, &self.core.me, room)
                .await;
            match taken {
                Ok(deliveries) => {
                    if deliveries.len() >= room {
                        place.released.store(true, Ordering::Release);
                    }
                    slots = self.admit(lane, deliveries, slots)?;
                    drop(in_flight);
                }
                Err(error) => {
                    drop(in_flight);
                    place.released.store(true, Ordering::Release);
                    self.recover(lane, &error).await;
                    return None;
                }
            }
        }
        Some(slots)
    }

    /// Asks the queues one by one without waiting, as long as there are slots. `None` when it found
    /// something or failed: then the next round starts.
    async fn read_waiting(&mut self, mut slots: Slot) -> Option<Slot> {
        let weights: Vec<u32> = self
            .lanes
            .iter()
            .map(|lane| self.core.lane(*lane).weight)
            .collect();
        let mut found = false;
        for position in round(self.core.order, &weights, fastrand::f64) {
            let lane = self.lanes[position];
            if self.core.lane(lane).is_broken() {
                continue;
            }
            let core = Arc::clone(&self.core);
            let in_flight = core.deliveries_in_flight.read().await;
            let key = std::slice::from_ref(&self.keys[position]);
            let room = slots.num_permits();
            let reply = self
                .conn
                .read_group(GROUP, self.core.me.as_str(), room, None, key)
                .await;
            match reply {
                Ok(streams) => {
                    self.patience.reset();
                    for (_, entries) in streams {
                        found |= !entries.is_empty();
                        slots = self.admit(lane, self.deliveries(lane, entries), slots)?;
                    }
                }
                Err(error) => {
                    drop(in_flight);
                    self.recover(lane, &error).await;
                    return None;
                }
            }
        }
        (!found).then_some(slots)
    }

    /// Waits until one of the queues has something.
    async fn read_blocking(&mut self, mut slots: Slot) {
        // One is enough to wake up, and the others stay free for reclaimed work meanwhile.
        let spare = slots.num_permits().saturating_sub(1);
        drop(slots.split(spare));
        let ready: Vec<usize> = (0..self.lanes.len())
            .filter(|position| !self.core.lane(self.lanes[*position]).is_broken())
            .collect();
        if ready.is_empty() {
            self.pause(BROKEN_FOR).await;
            return;
        }
        let keys: Vec<Bytes> = ready
            .iter()
            .map(|position| self.keys[*position].clone())
            .collect();
        let core = Arc::clone(&self.core);
        let in_flight = core.deliveries_in_flight.read().await;
        // The stop and the released work set their flags before they end blocked reads, so a flag
        // that is not seen here ends the read below.
        let hinted = self
            .lanes
            .iter()
            .any(|lane| core.lane(*lane).released.load(Ordering::Acquire));
        if core.is_stopping() || hinted {
            return;
        }
        let block = Some(core.settings.block);
        let reply = self
            .conn
            .read_group(GROUP, core.me.as_str(), 1, block, &keys)
            .await;
        match reply {
            Ok(streams) => {
                self.patience.reset();
                let mut slots = Some(slots);
                for (position, entries) in streams {
                    let lane = self.lanes[ready[position]];
                    let deliveries = self.deliveries(lane, entries);
                    slots = match slots {
                        Some(left) => self.admit(lane, deliveries, left),
                        None => {
                            // More queues answered than there are slots here: they wait for one.
                            core.admit(lane, deliveries, None, None);
                            None
                        }
                    };
                }
            }
            Err(error) if error.kind() == BackendKind::Unblocked => {}
            Err(error) => {
                drop(in_flight);
                for position in ready {
                    self.recover(self.lanes[position], &error).await;
                }
            }
        }
    }

    /// Hands deliveries over to be run. Answers the slots that are left, if any.
    fn admit(&self, lane: usize, deliveries: Vec<Delivery>, mut slots: Slot) -> Option<Slot> {
        let used = deliveries.len().min(slots.num_permits());
        let taken = slots.split(used);
        self.core.admit(lane, deliveries, taken, None);
        (slots.num_permits() > 0).then_some(slots)
    }

    fn deliveries(&self, lane: usize, entries: Vec<RawEntry>) -> Vec<Delivery> {
        let queue = &self.core.lane(lane).queue;
        entries
            .into_iter()
            .filter_map(|entry| Delivery::first(queue, entry))
            .collect()
    }

    /// What a failed read calls for: the group made again, a broken queue left out, a lost reply
    /// looked for; and in any case a wait.
    async fn recover(&mut self, lane: usize, error: &BackendError) {
        let queue = self.core.lane(lane).queue.clone();
        match error.kind() {
            BackendKind::Group => match self.core.store.ensure(&queue).await {
                Ok(ensured) => {
                    tracing::warn!(%queue, created = ensured.created, "the queue was made again");
                    self.core.lane(lane).released.store(true, Ordering::Release);
                }
                Err(error) if error.kind() == BackendKind::WrongType => {
                    self.leave_out(lane, &error)
                }
                Err(error) => self.wait(&error).await,
            },
            BackendKind::WrongType => self.leave_out(lane, error),
            BackendKind::Ambiguous => {
                // For Redis the old connection may still wait, and would take the next entry.
                self.conn.kill_old(self.core.conn()).await;
                self.core.doubt.notify_one();
                self.wait(error).await;
            }
            _ => self.wait(error).await,
        }
    }

    fn leave_out(&mut self, lane: usize, error: &BackendError) {
        let lane = self.core.lane(lane);
        lane.leave_out_for(BROKEN_FOR);
        let queue = &lane.queue;
        self.patience.note(
            "a key of a queue holds another type",
            &format_args!("{queue}: {error}"),
        );
    }

    async fn wait(&mut self, error: &BackendError) {
        let wait = self.patience.note("failed to read tasks", error);
        self.pause(wait).await;
    }

    /// A wait after an error; it is over as soon as Redis is back.
    async fn pause(&mut self, time: Duration) {
        tokio::select! {
            () = self.core.stop.taking.cancelled() => {}
            _ = self.reconnects.changed() => {}
            () = tokio::time::sleep(time) => {}
        }
    }
}

//! What the parts of a running server share.
//!
//! Layer 4. The parts are owned tasks: readers, runs, settlers, the keeper, the reconciliation and
//! the upkeep. They meet here, in tables with one purpose each; none of them calls another.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, RwLock, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::Client;
use crate::id::{ConsumerId, QueueName};
use crate::server::ahead::{InLine, Line};
use crate::server::bound::AnyHandler;
use crate::server::choose::Order;
use crate::server::clock::RedisClock;
use crate::server::held::HeldTable;
use crate::server::hooks::{ArchivedTask, Hooks, LostLease};
use crate::server::report::{Counts, add};
use crate::server::run_info::Held;
use crate::server::settings::Settings;
use crate::server::settler::Done;
use crate::server::signal::StopReason;
use crate::store::blocking::BlockingConn;
use crate::store::conn::Conn;
use crate::store::{Delivery, Lease, Store};
use crate::upkeep::Wakes;

/// A place for one running handler; free again when it is dropped.
pub(crate) type Slot = OwnedSemaphorePermit;

/// When a delivery may start.
pub(crate) enum Turn {
    Now(Slot),
    /// When there is a slot; soon, or it is handed back.
    InLine(InLine),
    /// When there is a slot, and no other suspect runs.
    Later,
}

/// Everything that is one per server.
pub(crate) struct Core {
    /// Commands and scripts, except renewals and blocking reads.
    pub(crate) store: Store,
    /// Who we are for Redis.
    pub(crate) me: ConsumerId,
    pub(crate) settings: Settings,
    pub(crate) order: Order,
    /// The queues, in the order they were configured. A lane's position names it everywhere.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) handlers: HashMap<&'static str, Box<dyn AnyHandler>>,
    pub(crate) hooks: Hooks,
    pub(crate) counts: Counts,
    /// For the children that handlers enqueue.
    pub(crate) client: Client,
    pub(crate) clock: RedisClock,
    /// One permit for each handler that may run.
    pub(crate) slots: Arc<Semaphore>,
    /// The deliveries that wait for a slot.
    pub(crate) line: Line,
    /// Suspects run one at a time, so that a crash has one cause.
    pub(crate) suspect_lane: Arc<Semaphore>,
    /// Held for reading by whoever waits for a reply that brings deliveries, for writing by the
    /// reconciliation: it must not mistake a delivery that is still on the wire for a lost one.
    pub(crate) deliveries_in_flight: RwLock<()>,
    /// The runs, to be awaited at the stop.
    pub(crate) runs: TaskTracker,
    /// The stop, in its stages.
    pub(crate) stop: Stop,
    /// Set when a reply may have been lost; wakes the reconciliation.
    pub(crate) doubt: Notify,
    /// The readers' connections, so that a blocked read can be ended.
    pub(crate) readers: Mutex<Vec<Arc<BlockingConn>>>,
}

/// One queue of a server.
pub(crate) struct Lane {
    pub(crate) queue: QueueName,
    pub(crate) weight: u32,
    pub(crate) held: HeldTable,
    /// To this queue's settler. Bounded: a slow Redis slows the runs down.
    pub(crate) done: mpsc::Sender<Done>,
    /// Released work may be waiting. Set by wake-ups, taken by the reader.
    pub(crate) released: AtomicBool,
    /// Hints for the upkeep of this queue.
    pub(crate) wakes: Arc<Wakes>,
    /// Until when settles of this queue are strict, after a failover.
    strict_until: Mutex<Option<Instant>>,
    /// Until when the queue is left out of reads, because a key of it holds another type.
    broken_until: Mutex<Option<Instant>>,
}

/// The stages of a stop, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    /// No new work is taken, nothing that was not started is started.
    pub(crate) taking: CancellationToken,
    /// All runs have ended: settlers write what is left and end.
    pub(crate) settling: CancellationToken,
    /// Nothing is held any more: the keeper ends.
    pub(crate) keeping: CancellationToken,
    /// The keeper has ended, in order or not.
    pub(crate) kept: CancellationToken,
}

impl Lane {
    pub(crate) fn new(queue: QueueName, weight: u32, done: mpsc::Sender<Done>) -> Self {
        Self {
            queue,
            weight,
            held: HeldTable::default(),
            done,
            // At the start there may be some that nobody was told of.
            released: AtomicBool::new(true),
            wakes: Arc::default(),
            strict_until: Mutex::default(),
            broken_until: Mutex::default(),
        }
    }

    pub(crate) fn is_strict(&self) -> bool {
        is_ahead(&self.strict_until)
    }

    pub(crate) fn be_strict_for(&self, time: Duration) {
        set_ahead(&self.strict_until, time);
    }

    pub(crate) fn is_broken(&self) -> bool {
        is_ahead(&self.broken_until)
    }

    pub(crate) fn broken_until(&self) -> Option<Instant> {
        *self
            .broken_until
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    pub(crate) fn leave_out_for(&self, time: Duration) {
        set_ahead(&self.broken_until, time);
    }
}

fn is_ahead(until: &Mutex<Option<Instant>>) -> bool {
    let until = until.lock().unwrap_or_else(|broken| broken.into_inner());
    until.is_some_and(|until| Instant::now() < until)
}

fn set_ahead(until: &Mutex<Option<Instant>>, time: Duration) {
    let mut until = until.lock().unwrap_or_else(|broken| broken.into_inner());
    *until = Some(Instant::now() + time);
}

impl Core {
    pub(crate) fn lane(&self, lane: usize) -> &Lane {
        &self.lanes[lane]
    }

    pub(crate) fn conn(&self) -> &Conn {
        self.store.conn()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.taking.is_cancelled()
    }

    /// The right to finish a held delivery, as the scripts check it.
    pub(crate) fn lease(&self, held: &Held) -> Lease {
        Lease {
            queue: self.lane(held.lane).queue.clone(),
            entry: held.entry,
            count: held.count(),
        }
    }

    /// Takes deliveries in: each is held from here on and run as soon as it has a slot, for which
    /// those without one wait in line. A delivery that is held already is dropped, because it is the
    /// same one found twice.
    pub(crate) fn admit(
        self: &Arc<Self>,
        lane: usize,
        deliveries: Vec<Delivery>,
        mut slots: Option<Slot>,
        mut suspect: Option<OwnedSemaphorePermit>,
    ) {
        for delivery in deliveries {
            let held = Arc::new(Held::new(lane, delivery.entry, delivery.count));
            if !self.lane(lane).held.insert(&held) {
                continue;
            }
            let slot = slots.as_mut().and_then(|slots| slots.split(1));
            let turn = match slot {
                Some(slot) => Turn::Now(slot),
                None if delivery.suspect => Turn::Later,
                None => Turn::InLine(InLine::new(self)),
            };
            let suspect = if delivery.suspect {
                suspect.take()
            } else {
                None
            };
            let core = Arc::clone(self);
            self.runs
                .spawn(crate::server::run::run(core, held, delivery, turn, suspect));
        }
    }

    /// Up to `most` slots: waits, in turn with others who wait, until at least one is free.
    /// `None` when the server stops first.
    pub(crate) async fn slots(&self, most: usize) -> Option<Slot> {
        let first = tokio::select! {
            biased;
            () = self.stop.taking.cancelled() => return None,
            slot = Arc::clone(&self.slots).acquire_owned() => slot.ok()?,
        };
        Some(self.more_slots(first, most))
    }

    /// Adds what is free right now, up to `most` in all.
    pub(crate) fn more_slots(&self, mut slots: Slot, most: usize) -> Slot {
        if let Some(more) = self.free_slots(most.saturating_sub(slots.num_permits())) {
            slots.merge(more);
        }
        slots
    }

    /// The slots that are free right now, up to `most`, but for those that the line will take;
    /// `None` if there are none.
    pub(crate) fn free_slots(&self, most: usize) -> Option<Slot> {
        let spare = self
            .slots
            .available_permits()
            .saturating_sub(self.line.len());
        let free = most.min(spare);
        let free = u32::try_from(free).unwrap_or(u32::MAX);
        let taken = Arc::clone(&self.slots).try_acquire_many_owned(free).ok();
        taken.filter(|slots| slots.num_permits() > 0)
    }

    /// Ends the blocked reads, so that readers look around.
    pub(crate) async fn wake_readers(&self) {
        let readers: Vec<Arc<BlockingConn>> = self
            .readers
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .clone();
        for reader in readers {
            if let Err(error) = self.conn().unblock(&reader.unblock_target()).await {
                tracing::debug!(%error, "failed to wake a reader; its read ends by itself");
            }
        }
    }

    /// The run of a delivery lost its lease: it is told, and so is the owner of the server.
    pub(crate) fn lose(&self, held: &Held) {
        if !held.signal.stop(StopReason::LeaseLost) {
            return;
        }
        add(&self.counts.leases_lost, 1);
        let lost = LostLease {
            queue: self.lane(held.lane).queue.clone(),
            fence: held.fence(),
        };
        tracing::warn!(queue = %lost.queue, entry = %lost.fence.entry, "lease lost");
        self.hooks.tell_lease_lost(&lost);
    }

    /// A task was archived.
    pub(crate) fn note_archived(&self, task: &ArchivedTask) {
        add(&self.counts.archived, 1);
        tracing::warn!(queue = %task.queue, task = %task.id, name = %task.name, reason = task.reason, "task archived");
        self.hooks.tell_archived(task);
    }

    /// How many deliveries are held in all queues.
    pub(crate) fn held(&self) -> usize {
        self.lanes.iter().map(|lane| lane.held.len()).sum()
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("me", &self.me)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

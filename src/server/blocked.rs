//! Reads that wait for new tasks: one for each blocking connection, side by side.
//!
//! Layer 4. In a cluster one read cannot span queues, so several wait at a time. Each is a task of
//! its own, which takes in what the read brings as soon as it is there, whatever the reader does
//! meanwhile; a node that does not answer holds up its own queues only. Called by `reader`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument;

use crate::error::{BackendError, BackendKind};
use crate::server::core::{Core, Slot};
use crate::store::Delivery;
use crate::store::blocking::BlockingConn;
use crate::store::entries::RawEntry;
use crate::store::keys::GROUP;

/// How long reads that shall end are waited for; one that does not end goes on waiting.
const RECALL: Duration = Duration::from_millis(250);
/// How often they are told: to a read that is only about to be sent, it says nothing.
const TELL_AGAIN: Duration = Duration::from_millis(20);

/// How one read ended.
pub(crate) struct Landed {
    /// The position of its connection.
    pub(crate) group: usize,
    pub(crate) result: Result<Found, BackendError>,
}

/// How much of what was there a read took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Less than it asked for.
    All,
    /// As much as it asked for: there may be more.
    Some,
}

/// The reads that wait.
pub(crate) struct Blocked {
    core: Arc<Core>,
    reads: JoinSet<Landed>,
    /// The connections that wait, by position.
    waiting: HashSet<usize>,
    /// The slots for whichever read brings something first.
    spare: Arc<Mutex<Option<Slot>>>,
}

impl Blocked {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            reads: JoinSet::new(),
            waiting: HashSet::new(),
            spare: Arc::default(),
        }
    }

    /// Whether a read of this connection waits.
    pub(crate) fn has(&self, group: usize) -> bool {
        self.waiting.contains(&group)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Keeps slots free for what comes first.
    pub(crate) fn reserve(&self, slot: Slot) {
        *lock(&self.spare) = Some(slot);
    }

    /// Gives up the slots that were kept.
    pub(crate) fn give_up_slots(&self) {
        *lock(&self.spare) = None;
    }

    /// Starts a read of some lanes, for at most `count` entries of each.
    pub(crate) fn start(
        &mut self,
        group: usize,
        conn: Arc<BlockingConn>,
        lanes: Vec<usize>,
        keys: Vec<Bytes>,
        count: usize,
    ) {
        let (core, spare) = (Arc::clone(&self.core), Arc::clone(&self.spare));
        // Boxed here: the task would be moved several times on its way to its place, 6 KB each time.
        let read = Box::pin(async move {
            let result = read(&core, &conn, &lanes, &keys, count, &spare).await;
            Landed { group, result }
        });
        self.waiting.insert(group);
        self.reads.spawn(read.in_current_span());
    }

    /// Waits for one of them to end; for ever if there is none.
    pub(crate) async fn landed(&mut self) -> Landed {
        loop {
            match self.reads.join_next().await {
                Some(Ok(landed)) => {
                    self.waiting.remove(&landed.group);
                    return landed;
                }
                Some(Err(error)) => {
                    if let Ok(panic) = error.try_into_panic() {
                        std::panic::resume_unwind(panic);
                    }
                }
                None => std::future::pending().await,
            }
        }
    }

    /// Ends them, for a moment at most: without a slot nothing more shall be taken.
    pub(crate) async fn recall(&mut self, conns: &[Arc<BlockingConn>]) -> Vec<Landed> {
        let until = Instant::now() + RECALL;
        let mut all = Vec::new();
        while !self.is_empty() && Instant::now() < until {
            let targets: Vec<_> = self
                .waiting
                .iter()
                .map(|group| conns[*group].unblock_target())
                .collect();
            let core = Arc::clone(&self.core);
            let tell = async {
                for target in &targets {
                    if let Err(error) = core.conn().unblock(target).await {
                        tracing::debug!(%error, "failed to end a read");
                    }
                }
                tokio::time::sleep(TELL_AGAIN).await;
            };
            tokio::select! {
                biased;
                landed = self.landed() => all.push(landed),
                () = tell => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
        all
    }
}

/// One read, and what it brings handed over to be run.
async fn read(
    core: &Arc<Core>,
    conn: &BlockingConn,
    lanes: &[usize],
    keys: &[Bytes],
    count: usize,
    spare: &Mutex<Option<Slot>>,
) -> Result<Found, BackendError> {
    // Until what came is held, nobody may take it for lost.
    let in_flight = core.deliveries_in_flight.read().await;
    if core.is_stopping() {
        return Ok(Found::All);
    }
    let block = Some(core.settings.block);
    let reply = conn
        .read_group(GROUP, core.me.as_str(), count, block, keys)
        .await;
    let streams = match reply {
        Ok(streams) => streams,
        Err(error) if error.kind() == BackendKind::Unblocked => return Ok(Found::All),
        Err(error) => return Err(error),
    };
    let mut found = Found::All;
    for (position, entries) in streams {
        if entries.len() >= count {
            found = Found::Some;
        }
        let lane = lanes[position];
        let deliveries = deliveries(core, lane, entries);
        if deliveries.is_empty() {
            continue;
        }
        // Where several reads bring something at once there may be too few slots: the run waits
        // for one then.
        let slot = lock(spare).take();
        let slot = slot.or_else(|| Arc::clone(&core.slots).try_acquire_owned().ok());
        core.admit(lane, deliveries, slot, None);
    }
    drop(in_flight);
    // What came runs first: a lone task is settled before Redis has to look at the next read.
    tokio::task::yield_now().await;
    Ok(found)
}

/// What the entries of a read are.
pub(crate) fn deliveries(core: &Core, lane: usize, entries: Vec<RawEntry>) -> Vec<Delivery> {
    let queue = &core.lane(lane).queue;
    entries
        .into_iter()
        .filter_map(|entry| Delivery::first(queue, entry))
        .collect()
}

fn lock(spare: &Mutex<Option<Slot>>) -> std::sync::MutexGuard<'_, Option<Slot>> {
    spare.lock().unwrap_or_else(PoisonError::into_inner)
}

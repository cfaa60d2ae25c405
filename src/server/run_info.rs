//! One run of one task: everything its handler, its executor and its keeper share.
//!
//! Layer 4. One allocation per run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::time::Instant;

use crate::id::{EntryId, Fence, Millis, TaskId};
use crate::server::signal::StopSignal;

/// A delivery that this server holds, from the reply that brought it until the final answer.
#[derive(Debug)]
pub(crate) struct Held {
    /// The position of the queue among the server's queues.
    pub(crate) lane: usize,
    /// The entry that was delivered.
    pub(crate) entry: EntryId,
    /// How often it was delivered when it came here. Stays, because it is part of the fence.
    pub(crate) delivered: u64,
    /// How often it was delivered as far as we know now. Written by the keeper when the count
    /// moved while the entry stayed ours.
    count: AtomicU64,
    /// Whether a settle, fail, release or park is on its way: then an entry that is gone is no loss.
    ending: AtomicBool,
    /// Tells the run to stop.
    pub(crate) signal: StopSignal,
}

impl Held {
    pub(crate) fn new(lane: usize, entry: EntryId, delivered: u64) -> Self {
        Self {
            lane,
            entry,
            delivered,
            count: AtomicU64::new(delivered),
            ending: AtomicBool::new(false),
            signal: StopSignal::default(),
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn adopt_count(&self, count: u64) {
        self.count.fetch_max(count, Ordering::AcqRel);
    }

    /// From here on the final answer is on its way.
    pub(crate) fn start_ending(&self) {
        self.ending.store(true, Ordering::Release);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    pub(crate) const fn fence(&self) -> Fence {
        Fence {
            entry: self.entry,
            count: self.delivered,
        }
    }
}

/// What a handler may know about its run.
#[derive(Debug)]
pub(crate) struct RunFacts {
    /// The task's id.
    pub(crate) id: TaskId,
    /// Failed attempts before this one.
    pub(crate) failed: u32,
    /// How many failures are followed by another attempt.
    pub(crate) max_retries: u32,
    /// When Redis took the task, as the client saw it.
    pub(crate) enqueued_at: Millis,
    /// When this run is cut off: the earlier of its timeout and the task's deadline.
    pub(crate) cut_off: Instant,
    /// What the enqueue sent along.
    pub(crate) headers: BTreeMap<String, String>,
}

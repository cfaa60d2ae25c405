//! All the client holds for one queue: the way to its enqueuer, the waiters, and how far its
//! receiver was read.
//!
//! Layer 4. Plain state with short locks that are never held across an await; the loops that use
//! it are `enqueuer`, `receiver`, `repair` and `heartbeat`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::batch::Parcel;
use super::waiter::{Outcome, Waiter};
use crate::error::EnqueueError;
use crate::id::{ClientId, EntryId, QueueName, TaskId};

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) queue: QueueName,
    /// To the enqueuer. Not bounded by itself: `buffered` is.
    inbox: mpsc::UnboundedSender<Parcel>,
    /// Tasks that were not answered yet.
    buffered: AtomicUsize,
    /// The most tasks in `buffered`.
    limit: usize,
    waiters: DashMap<TaskId, Arc<Waiter>>,
    /// The size of `waiters`, so that nobody has to lock its shards to know it.
    waiting: AtomicUsize,
    /// Under which name this client is known in this queue. Replaced only when another process
    /// turned out to use it too.
    identity: RwLock<Identity>,
    /// What `ensure` or the last reply said; none when it has to be asked for.
    epoch: Mutex<Option<String>>,
    /// The last notice read. Written by the receiver loop, and by `rewind`.
    read: watch::Sender<EntryId>,
    /// Whether outcomes may have been missed. Set by whoever sees a gap, cleared by `repair`.
    gap: AtomicBool,
    /// Wakes `repair` when a gap was seen. One for the whole client.
    gap_seen: Arc<Notify>,
    /// Wakes the receiver loop of this lane when its first waiter comes.
    pub(super) wake: Arc<Notify>,
    /// Whether the receiver loop of this lane runs.
    pub(super) receiving: AtomicBool,
    silence: Mutex<Silence>,
}

/// A client's name in one queue, and the key of its receiver there.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) client: ClientId,
    pub(super) receiver: Bytes,
}

/// When the waiters of a lane are looked up though nothing went wrong visibly.
#[derive(Debug)]
struct Silence {
    heard: Instant,
    looked: Instant,
    /// Look-ups since the last notice; each doubles the patience.
    quiet_looks: u32,
}

/// How often the patience is doubled at most.
const MAX_DOUBLINGS: u32 = 4;

impl Lane {
    pub(super) fn new(
        queue: QueueName,
        identity: Identity,
        limit: usize,
        inbox: mpsc::UnboundedSender<Parcel>,
        wake: Arc<Notify>,
        gap_seen: Arc<Notify>,
    ) -> Self {
        let now = Instant::now();
        Self {
            queue,
            inbox,
            buffered: AtomicUsize::new(0),
            limit,
            waiters: DashMap::new(),
            waiting: AtomicUsize::new(0),
            identity: RwLock::new(identity),
            epoch: Mutex::new(None),
            read: watch::Sender::new(EntryId::default()),
            gap: AtomicBool::new(false),
            gap_seen,
            wake,
            receiving: AtomicBool::new(false),
            silence: Mutex::new(Silence {
                heard: now,
                looked: now,
                quiet_looks: 0,
            }),
        }
    }

    // ---- the way out

    /// Takes room for `count` tasks, or says that there is none.
    pub(super) fn reserve(&self, count: usize) -> Result<(), EnqueueError> {
        let taken = self.buffered.fetch_add(count, Ordering::Relaxed);
        if taken + count > self.limit {
            self.buffered.fetch_sub(count, Ordering::Relaxed);
            return Err(EnqueueError::BufferFull {
                queue: self.queue.clone(),
                limit: self.limit,
            });
        }
        Ok(())
    }

    /// Sends tasks for which room was taken.
    pub(super) fn post(&self, parcel: Parcel) -> Result<(), EnqueueError> {
        let count = parcel.count();
        self.inbox.send(parcel).map_err(|_| {
            self.free(count);
            EnqueueError::Closed
        })
    }

    /// Gives room back, when tasks were answered.
    pub(super) fn free(&self, count: usize) {
        self.buffered.fetch_sub(count, Ordering::Relaxed);
    }

    pub(super) fn client(&self) -> ClientId {
        self.identity
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .client
            .clone()
    }

    /// The key of this client's receiver.
    pub(super) fn receiver(&self) -> Bytes {
        self.identity
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .receiver
            .clone()
    }

    /// Takes another name, because somebody else uses this one. Whoever waits under the old one
    /// is looked up.
    pub(super) fn rename(&self, identity: Identity) {
        *self
            .identity
            .write()
            .unwrap_or_else(PoisonError::into_inner) = identity;
        self.rewind();
        self.mark_gap();
    }

    // ---- waiters

    pub(super) fn insert(&self, waiter: Arc<Waiter>) {
        // Counted first: whoever takes it out subtracts at once.
        let first = self.waiting.fetch_add(1, Ordering::AcqRel) == 0;
        self.waiters.insert(waiter.id.clone(), waiter);
        if first {
            self.wake.notify_one();
        }
    }

    /// Takes a waiter out; only one caller gets it.
    pub(super) fn take(&self, id: &TaskId) -> Option<Arc<Waiter>> {
        let (_, waiter) = self.waiters.remove(id)?;
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        Some(waiter)
    }

    /// Ends the wait for a task. A task nobody waits for any more is passed over.
    pub(super) fn end(&self, id: &TaskId, outcome: Outcome) {
        if let Some(waiter) = self.take(id) {
            waiter.end(outcome);
        }
    }

    /// Ends every wait, as with `Closed`.
    pub(super) fn end_all(&self, outcome: &Outcome) {
        let ids: Vec<TaskId> = self
            .waiters
            .iter()
            .map(|entry| entry.key().clone())
            .collect();
        for id in ids {
            self.end(&id, outcome.clone());
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// The waiters whose tasks Redis has.
    pub(super) fn outstanding(&self) -> Vec<Arc<Waiter>> {
        let waiters = self.waiters.iter().map(|entry| Arc::clone(entry.value()));
        waiters.filter(|waiter| waiter.stored().is_some()).collect()
    }

    // ---- how far the receiver was read

    pub(super) fn read_to(&self) -> EntryId {
        *self.read.borrow()
    }

    /// The receiver loop read from `from` to `to`. Passed over if the cursor was moved meanwhile.
    pub(super) fn advance(&self, from: EntryId, to: EntryId) {
        self.read.send_if_modified(|cursor| {
            let moves = *cursor == from;
            if moves {
                *cursor = to;
            }
            moves
        });
    }

    /// Reads the receiver from its start again: it is a new one, or its clock stepped back.
    pub(super) fn rewind(&self) {
        self.read.send_replace(EntryId::default());
        self.wake.notify_one();
    }

    pub(super) fn watch_read(&self) -> watch::Receiver<EntryId> {
        self.read.subscribe()
    }

    // ---- gaps

    pub(super) fn mark_gap(&self) {
        self.gap.store(true, Ordering::Release);
        self.gap_seen.notify_one();
    }

    /// Clears the mark and says whether it was set.
    pub(super) fn take_gap(&self) -> bool {
        self.gap.swap(false, Ordering::AcqRel)
    }

    pub(super) fn epoch(&self) -> Option<String> {
        self.epoch_slot().clone()
    }

    /// Remembers the epoch of a reply. Another one than before means that data was lost.
    pub(super) fn note_epoch(&self, epoch: &str) {
        let mut slot = self.epoch_slot();
        let changed = slot.as_deref().is_some_and(|known| known != epoch);
        if slot.as_deref() != Some(epoch) {
            *slot = Some(epoch.to_owned()).filter(|epoch| !epoch.is_empty());
        }
        drop(slot);
        if changed {
            tracing::warn!(queue = %self.queue, "the queue was made anew: redis lost data");
            self.mark_gap();
        }
    }

    /// The epoch has to be asked for again.
    pub(super) fn forget_epoch(&self) {
        *self.epoch_slot() = None;
    }

    fn epoch_slot(&self) -> MutexGuard<'_, Option<String>> {
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- silence

    pub(super) fn note_heard(&self) {
        let mut silence = self.silence_slot();
        silence.heard = Instant::now();
        silence.quiet_looks = 0;
    }

    pub(super) fn note_looked(&self) {
        let mut silence = self.silence_slot();
        silence.looked = Instant::now();
        silence.quiet_looks = (silence.quiet_looks + 1).min(MAX_DOUBLINGS);
    }

    /// Whether the waiters are to be looked up: after silence, backing off; and rarely even while
    /// other outcomes arrive, because a single one may have been lost.
    pub(super) fn is_overdue(&self, patience: Duration) -> bool {
        let silence = self.silence_slot();
        let since = silence.heard.max(silence.looked).elapsed();
        since >= patience * 2_u32.pow(silence.quiet_looks)
            || silence.looked.elapsed() >= patience * 2_u32.pow(MAX_DOUBLINGS)
    }

    fn silence_slot(&self) -> MutexGuard<'_, Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

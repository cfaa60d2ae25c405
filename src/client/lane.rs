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
    /// How far the receiver was read. Written by the receiver loop, and by `rewind`.
    progress: watch::Sender<Progress>,
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

/// How far a receiver was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Progress {
    /// The last notice read.
    pub(super) last: EntryId,
    /// Reads that ended with nothing behind `last`.
    pub(super) empty_reads: u64,
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
            progress: watch::Sender::new(Progress::default()),
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
        self.progress.borrow().last
    }

    /// The receiver loop read from `from` to `to`. Passed over if the cursor was moved meanwhile.
    pub(super) fn advance(&self, from: EntryId, to: EntryId) {
        self.progress.send_if_modified(|progress| {
            let moves = progress.last == from;
            if moves {
                progress.last = to;
            }
            moves
        });
    }

    /// Reads the receiver from its start again: it is a new one, or its clock stepped back.
    pub(super) fn rewind(&self) {
        self.progress
            .send_modify(|progress| progress.last = EntryId::default());
        self.wake.notify_one();
    }

    /// The receiver loop read, and there was nothing.
    pub(super) fn note_empty_read(&self) {
        self.progress
            .send_modify(|progress| progress.empty_reads += 1);
    }

    pub(super) fn watch_progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
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

    pub(super) fn note_heard(&self, now: Instant) {
        let mut silence = self.silence_slot();
        silence.heard = now;
        silence.quiet_looks = 0;
    }

    pub(super) fn note_looked(&self, now: Instant) {
        let mut silence = self.silence_slot();
        silence.looked = now;
        silence.quiet_looks = (silence.quiet_looks + 1).min(MAX_DOUBLINGS);
    }

    /// Whether the waiters are to be looked up: after silence, backing off; and rarely even while
    /// other outcomes arrive, because a single one may have been lost.
    pub(super) fn is_overdue(&self, now: Instant, patience: Duration) -> bool {
        let silence = self.silence_slot();
        let since = now.saturating_duration_since(silence.heard.max(silence.looked));
        since >= patience * 2_u32.pow(silence.quiet_looks)
            || now.saturating_duration_since(silence.looked) >= patience * 2_u32.pow(MAX_DOUBLINGS)
    }

    fn silence_slot(&self) -> MutexGuard<'_, Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::waiter::Ticket;
    use super::*;

    fn lane() -> Arc<Lane> {
        let identity = Identity {
            client: ClientId::from_random(Uuid::nil()),
            receiver: Bytes::new(),
        };
        let (inbox, _) = mpsc::unbounded_channel();
        let notify = || Arc::new(Notify::new());
        Arc::new(Lane::new(
            QueueName::default(),
            identity,
            10,
            inbox,
            notify(),
            notify(),
        ))
    }

    fn ticket(lane: &Arc<Lane>) -> Ticket {
        Ticket::register(lane, TaskId::from_uuid(Uuid::new_v4()), None)
    }

    #[test]
    fn a_waiter_leaves_with_its_last_ticket() {
        let lane = lane();
        for _ in 0..100_000 {
            drop(ticket(&lane));
        }
        let first = ticket(&lane);
        let second = first.clone();
        drop(first);
        assert_eq!((lane.waiting(), lane.waiters.len()), (1, 1));
        drop(second);
        assert_eq!((lane.waiting(), lane.waiters.len()), (0, 0));
    }

    #[test]
    fn a_waiter_gets_the_first_outcome_and_leaves() {
        let lane = lane();
        let ticket = ticket(&lane);
        lane.end(&ticket.waiter.id, Outcome::Lost);
        lane.end(&ticket.waiter.id, Outcome::Closed);
        assert!(matches!(ticket.waiter.outcome(), Some(Outcome::Lost)));
        drop(ticket);
        assert_eq!((lane.waiting(), lane.waiters.len()), (0, 0));
    }

    #[test]
    fn only_tasks_that_redis_has_are_looked_up() {
        let lane = lane();
        let (sent, _on_its_way) = (ticket(&lane), ticket(&lane));
        sent.set_stored(None);
        let outstanding = lane.outstanding();
        assert_eq!(outstanding.len(), 1);
        assert_eq!(outstanding[0].id, sent.waiter.id);
    }

    #[test]
    fn a_full_buffer_takes_no_more_until_some_were_answered() {
        let lane = lane();
        lane.reserve(10).unwrap();
        assert!(matches!(
            lane.reserve(1),
            Err(EnqueueError::BufferFull { limit: 10, .. })
        ));
        lane.free(1);
        lane.reserve(1).unwrap();
    }

    #[test]
    fn a_cursor_that_was_rewound_is_not_moved_by_an_older_read() {
        let lane = lane();
        let (first, second) = (
            EntryId {
                millis: 5,
                sequence: 0,
            },
            EntryId {
                millis: 9,
                sequence: 0,
            },
        );
        lane.advance(EntryId::default(), first);
        lane.rewind();
        lane.advance(first, second);
        assert_eq!(lane.read_to(), EntryId::default());
    }

    #[test]
    fn another_epoch_is_a_gap_and_the_first_is_not() {
        let lane = lane();
        lane.note_epoch("a");
        lane.note_epoch("a");
        assert!(!lane.take_gap());
        lane.note_epoch("b");
        assert!(lane.take_gap());
        lane.note_epoch("");
        assert!(lane.take_gap());
        assert_eq!(lane.epoch(), None);
    }

    #[test]
    fn silence_is_overdue_later_and_later() {
        let (lane, patience) = (lane(), Duration::from_secs(30));
        let mut now = Instant::now();
        assert!(!lane.is_overdue(now, patience));
        let mut waits = Vec::new();
        for _ in 0..6 {
            let since = now;
            while !lane.is_overdue(now, patience) {
                now += Duration::from_millis(500);
            }
            waits.push((now - since).as_secs());
            lane.note_looked(now);
        }
        assert_eq!(waits, [30, 60, 120, 240, 480, 480]);
        lane.note_heard(now);
        assert!(!lane.is_overdue(now + patience / 2, patience));
        assert!(lane.is_overdue(now + patience, patience));
    }
}

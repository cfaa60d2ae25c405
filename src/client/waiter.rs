//! One awaited task: its waiter, and the ticket that each handle holds.
//!
//! Layer 4. The waiter is registered before the task is sent, so an outcome can never be earlier
//! than whoever waits for it. It leaves the lane's map when it has its outcome, or when the last
//! ticket is dropped: a rejected or abandoned enqueue leaves nothing behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use super::lane::Lane;
use crate::envelope::Ending;
use crate::id::{EntryId, Millis, TaskId};

/// How the wait for a task was over.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// The task ended, and this is how.
    Ended(Ending),
    /// The task ended, but the notice is of a version that this client does not know.
    Unreadable(String),
    /// The task is gone and nobody knows how it ended.
    Lost,
    /// The client was closed first.
    Closed,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) id: TaskId,
    /// The task's deadline, which a look-up needs to end it.
    pub(super) deadline: Option<Millis>,
    /// Tickets alive; the last one takes the waiter out of the map.
    tickets: AtomicUsize,
    /// Set once Redis has the task; its entry unless it is scheduled. Before, a look-up would
    /// take a task on its way for one that is gone.
    stored: OnceLock<Option<EntryId>>,
    /// Set once, by whoever took the waiter out of the map.
    outcome: OnceLock<Outcome>,
    arrived: Notify,
}

impl Waiter {
    fn new(id: TaskId, deadline: Option<Millis>) -> Arc<Self> {
        Arc::new(Self {
            id,
            deadline,
            tickets: AtomicUsize::new(1),
            stored: OnceLock::new(),
            outcome: OnceLock::new(),
            arrived: Notify::new(),
        })
    }

    pub(super) fn stored(&self) -> Option<Option<EntryId>> {
        self.stored.get().copied()
    }

    /// Called once, by whoever took the waiter out of the map.
    pub(super) fn end(&self, outcome: Outcome) {
        // A second outcome cannot come: only one caller got the waiter out of the map.
        let _ = self.outcome.set(outcome);
        self.arrived.notify_waiters();
    }

    pub(super) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.get()
    }

    pub(super) async fn wait(&self) -> &Outcome {
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            // Listen first, look second: an outcome in between is seen either way.
            arrived.as_mut().enable();
            if let Some(outcome) = self.outcome.get() {
                return outcome;
            }
            arrived.await;
        }
    }
}

/// A share in a waiter.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) lane: Arc<Lane>,
    pub(super) waiter: Arc<Waiter>,
}

impl Ticket {
    /// Registers a new waiter.
    pub(super) fn register(lane: &Arc<Lane>, id: TaskId, deadline: Option<Millis>) -> Self {
        let waiter = Waiter::new(id, deadline);
        lane.insert(Arc::clone(&waiter));
        Self {
            lane: Arc::clone(lane),
            waiter,
        }
    }

    /// Redis has the task.
    pub(super) fn set_stored(&self, entry: Option<EntryId>) {
        // Set by the one future that sent the task.
        let _ = self.waiter.stored.set(entry);
    }
}

impl Clone for Ticket {
    fn clone(&self) -> Self {
        self.waiter.tickets.fetch_add(1, Ordering::Relaxed);
        Self {
            lane: Arc::clone(&self.lane),
            waiter: Arc::clone(&self.waiter),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let last = self.waiter.tickets.fetch_sub(1, Ordering::AcqRel) == 1;
        if last && self.waiter.outcome.get().is_none() {
            self.lane.take(&self.waiter.id);
        }
    }
}

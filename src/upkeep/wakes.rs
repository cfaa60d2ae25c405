//! Hints that shorten a wait of the upkeep.
//!
//! Layer 3. Set by whoever hears wake-ups, read by the `watch` loop of the same queue.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::id::Millis;

/// The hints of one queue.
#[derive(Debug)]
pub(crate) struct Wakes {
    /// The earliest due time heard of, in milliseconds; `u64::MAX` when none.
    due: AtomicU64,
    heard: Notify,
}

impl Default for Wakes {
    fn default() -> Self {
        Self {
            due: AtomicU64::new(u64::MAX),
            heard: Notify::new(),
        }
    }
}

impl Wakes {
    /// A task is due at this time, maybe earlier than all known ones.
    pub(crate) fn due(&self, due: Millis) {
        if self.due.fetch_min(due.0, Ordering::AcqRel) > due.0 {
            self.heard.notify_one();
        }
    }

    /// Waits for a due time that is earlier than what was known.
    pub(crate) async fn heard(&self) {
        self.heard.notified().await;
    }

    /// The earliest due time heard of; forgets it.
    pub(crate) fn take_due(&self) -> Option<Millis> {
        let due = self.due.swap(u64::MAX, Ordering::AcqRel);
        (due != u64::MAX).then_some(Millis(due))
    }
}

//! Reading ahead: tasks that are here before there is a slot for them.
//!
//! Layer 4. Between the end of one handler and the start of the next lies a round trip to Redis, for
//! which the slot stands still. So where slots become free fast, the reader takes what will find one
//! within 3 ms; it waits in line here, held and renewed like what runs. Where handlers take long,
//! nothing is read ahead: it would wait here while another server has nothing to do. What waits in
//! vain, because handlers became slow, is handed back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::server::core::{Core, Slot};

/// How far ahead is read: several round trips, in which handlers that wait for one tick of the clock
/// may end together.
const HORIZON: Duration = Duration::from_millis(3);
/// How long the pace is measured before it is believed.
const WINDOW: Duration = Duration::from_millis(20);
/// How long a delivery waits in line before it is handed back.
const PATIENCE: Duration = Duration::from_millis(50);

/// How fast a server without a free slot takes tasks in, which is how fast slots become free.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Since when `taken` counts.
    since: Option<Instant>,
    taken: usize,
    /// Tasks per second in the last window.
    rate: f64,
}

impl Pace {
    /// Notes tasks that were taken in.
    pub(crate) fn note(&mut self, count: usize, now: Instant) {
        let Some(since) = self.since else {
            // Nobody knows how long these slots took to become free.
            self.since = Some(now);
            return;
        };
        self.taken += count;
        let passed = now.saturating_duration_since(since);
        if passed >= WINDOW {
            self.rate = self.taken as f64 / passed.as_secs_f64();
            self.since = Some(now);
            self.taken = 0;
        }
    }

    /// How many deliveries will find a slot soon, at most `most`. None when the pace is not known or
    /// was not looked at lately.
    pub(crate) fn ahead(&self, most: usize, now: Instant) -> usize {
        match self.since {
            Some(since) if now.saturating_duration_since(since) <= 2 * WINDOW => {
                ((self.rate * HORIZON.as_secs_f64()) as usize).min(most)
            }
            _ => 0,
        }
    }

    /// The pace has changed: it is measured anew.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// The deliveries of a server that wait for a slot.
#[derive(Debug, Default)]
pub(crate) struct Line {
    // One total order: the reader writes `few` and then looks at `waiting`, who leaves does the reverse.
    waiting: AtomicUsize,
    /// The reader is told when no more than so many wait.
    few: AtomicUsize,
    shorter: Notify,
    gave_up: AtomicBool,
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Waits until no more than `few` are left. One caller at a time.
    pub(crate) async fn shrink_to(&self, few: usize) {
        self.few.store(few, Ordering::SeqCst);
        while self.len() > few {
            self.shorter.notified().await;
        }
    }

    /// Whether one waited in vain since this was last asked.
    pub(crate) fn take_gave_up(&self) -> bool {
        self.gave_up.swap(false, Ordering::SeqCst)
    }
}

/// A delivery's place in the line; it leaves the line when it is dropped.
pub(crate) struct InLine(Arc<Core>);

impl InLine {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        core.line.waiting.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(core))
    }

    /// Waits for a slot, in turn. `None` when the server stops or none came in time: then the
    /// delivery is to be handed back.
    pub(crate) async fn slot(self) -> Option<Slot> {
        match tokio::time::timeout(PATIENCE, self.0.slots(1)).await {
            Ok(slot) => slot,
            Err(_) => {
                self.0.line.gave_up.store(true, Ordering::SeqCst);
                None
            }
        }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let line = &self.0.line;
        let left = line.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
        if left <= line.few.load(Ordering::SeqCst) {
            line.shorter.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A pace of `count` tasks each millisecond, and when it was last seen.
    fn pace(count: usize) -> (Pace, Instant) {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        for _ in 0..=40 {
            now += MS;
            pace.note(count, now);
        }
        (pace, now)
    }

    #[test]
    fn as_much_is_read_ahead_as_finds_a_slot_in_three_milliseconds() {
        let (fast, now) = pace(9);
        assert_eq!(fast.ahead(100, now), 27);
        assert_eq!(fast.ahead(10, now), 10);
    }

    #[test]
    fn nothing_is_read_ahead_of_slow_handlers() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        for _ in 0..100 {
            now += 10 * MS;
            pace.note(3, now);
            assert_eq!(pace.ahead(100, now), 0);
        }
    }

    #[test]
    fn a_pace_that_is_old_or_not_known_counts_for_nothing() {
        let (fast, now) = pace(9);
        assert_eq!(fast.ahead(100, now + 41 * MS), 0);
        let mut new = Pace::default();
        new.note(1_000, now);
        assert_eq!(new.ahead(100, now), 0);
        let (mut fast, now) = pace(9);
        fast.forget();
        assert_eq!(fast.ahead(100, now), 0);
    }
}

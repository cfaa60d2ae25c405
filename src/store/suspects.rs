//! Commands that got no reply: when they mean that a server is frozen.
//!
//! Layer 2, used by `link`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Commands that got no reply, by slot, so that one frozen node of a cluster shows while the
/// others answer. Without a cluster everything is in slot 0.
#[derive(Default)]
pub(super) struct Suspects {
    /// How many slots are in the map: the price of a success is one load.
    len: AtomicUsize,
    by_slot: Mutex<HashMap<u16, (u32, Instant)>>,
}

impl Suspects {
    pub(super) fn clear(&self, slot: u16) {
        if self.len.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut map = self.by_slot.lock().unwrap_or_else(PoisonError::into_inner);
        map.remove(&slot);
        self.len.store(map.len(), Ordering::Release);
    }

    /// How long nothing succeeded, from the second timeout on.
    pub(super) fn add(&self, slot: u16, since: Instant) -> Duration {
        let mut map = self.by_slot.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, first) = map.entry(slot).or_insert((0, since));
        *count += 1;
        let silent = if *count < 2 {
            Duration::ZERO
        } else {
            first.elapsed()
        };
        self.len.store(map.len(), Ordering::Release);
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_answers_does_not_hide_one_that_does_not() {
        let suspects = Suspects::default();
        let long_ago = Instant::now().checked_sub(Duration::from_secs(6)).unwrap();
        assert_eq!(
            suspects.add(7, long_ago),
            Duration::ZERO,
            "one timeout is an accident"
        );
        suspects.clear(8);
        assert!(suspects.add(7, Instant::now()) >= Duration::from_secs(6));
        suspects.clear(7);
        assert_eq!(suspects.add(7, long_ago), Duration::ZERO);
    }
}

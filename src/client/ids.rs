//! Makes task ids: UUIDv7 that rise within a client, without asking the operating system each time.
//!
//! Layer 4. 74 random bits are drawn once for each client; the ids of one millisecond count up
//! from there. Called by `plan` for each task.

use std::sync::atomic::{AtomicU64, Ordering};

use uuid::{Builder, Uuid};

use crate::id::{Millis, TaskId};

/// The bits of the last field of a UUIDv7 beside its variant.
const COUNTER_BITS: u32 = 62;

/// The source of one client's task ids.
#[derive(Debug)]
pub(super) struct IdSource {
    /// Random; tells apart clients that count the same numbers.
    salt: [u8; 2],
    /// Starts at random; counts the ids of this client.
    next: AtomicU64,
}

impl IdSource {
    pub(super) fn new(random: Uuid) -> Self {
        let (high, low) = random.as_u64_pair();
        let [.., first, second] = high.to_be_bytes();
        // A start in the lower half of the range: a client would need 2^61 ids to wrap around.
        let start = low & ((1 << (COUNTER_BITS - 1)) - 1);
        Self {
            salt: [first, second],
            next: AtomicU64::new(start),
        }
    }

    pub(super) fn next(&self, now: Millis) -> TaskId {
        let count = self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut tail = [0; 10];
        tail[..2].copy_from_slice(&self.salt);
        tail[2..].copy_from_slice(&count);
        TaskId::from_uuid(Builder::from_unix_timestamp_millis(now.0, &tail).into_uuid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuid_v7_and_rise_within_a_millisecond() {
        let source = IdSource::new(Uuid::max());
        let ids: Vec<TaskId> = (0..1_000)
            .map(|_| source.next(Millis(1_700_000_000_000)))
            .collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert!(
            ids.iter()
                .all(|id| id.as_uuid().unwrap().get_version_num() == 7)
        );
    }

    #[test]
    fn two_clients_make_different_ids_in_the_same_millisecond() {
        let (one, other) = (IdSource::new(Uuid::new_v4()), IdSource::new(Uuid::new_v4()));
        assert_ne!(one.next(Millis(1)), other.next(Millis(1)));
    }
}

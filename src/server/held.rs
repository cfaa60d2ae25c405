//! The table of deliveries this server holds, one for each queue.
//!
//! Layer 4. A delivery is in the table from the reply that brought it until the final answer about
//! it; the keeper renews exactly what is here. Written by whoever admits deliveries and by whoever
//! got the final answer; read by the keeper and by the reconciliation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::id::EntryId;
use crate::server::run_info::Held;

/// The deliveries of one queue, by entry and by the delivery count they came with.
#[derive(Debug, Default)]
pub(crate) struct HeldTable {
    held: Mutex<BTreeMap<(EntryId, u64), Arc<Held>>>,
}

impl HeldTable {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(EntryId, u64), Arc<Held>>> {
        // A poisoned lock means a panic between two map operations, none of which can leave the map torn.
        self.held
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    /// Takes in a delivery. `false` if the very same delivery is here already: then it must not be
    /// run a second time.
    pub(crate) fn insert(&self, held: &Arc<Held>) -> bool {
        use std::collections::btree_map::Entry;
        match self.lock().entry((held.entry, held.delivered)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(slot) => {
                slot.insert(Arc::clone(held));
                true
            }
        }
    }

    /// Forgets a delivery, once the final answer about it is here.
    pub(crate) fn remove(&self, held: &Held) {
        self.lock().remove(&(held.entry, held.delivered));
    }

    /// Forgets many deliveries under one lock.
    pub(crate) fn remove_all<'a>(&self, held: impl Iterator<Item = &'a Held>) {
        let mut table = self.lock();
        for held in held {
            table.remove(&(held.entry, held.delivered));
        }
    }

    /// All deliveries in the order of their entries; of an entry held more than once (an old run
    /// that lost its lease still ends) the newest comes last.
    pub(crate) fn all(&self) -> Vec<Arc<Held>> {
        self.lock().values().map(Arc::clone).collect()
    }

    /// The deliveries of one entry, the newest last.
    pub(crate) fn of_entry(&self, entry: EntryId) -> Vec<Arc<Held>> {
        self.lock()
            .range((entry, 0)..=(entry, u64::MAX))
            .map(|(_, held)| Arc::clone(held))
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(entry: u64, delivered: u64) -> Arc<Held> {
        let entry = EntryId {
            millis: entry,
            sequence: 0,
        };
        Arc::new(Held::new(0, entry, delivered))
    }

    #[test]
    fn the_same_delivery_is_taken_in_once() {
        let table = HeldTable::default();
        assert!(table.insert(&held(5, 1)));
        assert!(!table.insert(&held(5, 1)));
        assert!(table.insert(&held(5, 2)));
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn the_newest_delivery_of_an_entry_comes_last() {
        let table = HeldTable::default();
        table.insert(&held(5, 2));
        table.insert(&held(5, 1));
        table.insert(&held(4, 9));
        let counts: Vec<u64> = table
            .of_entry(EntryId {
                millis: 5,
                sequence: 0,
            })
            .iter()
            .map(|held| held.delivered)
            .collect();
        assert_eq!(counts, [1, 2]);
        assert_eq!(table.all()[0].entry.millis, 4);
    }
}

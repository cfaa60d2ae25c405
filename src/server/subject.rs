//! The task that a delivery is about, as far as it can be read.
//!
//! Layer 4. Made by `run`; whatever ends a delivery needs its id, its name and whom to tell.

use std::sync::Arc;

use bytes::Bytes;

use crate::envelope::{Ending, Envelope, Head, Limits, Notice};
use crate::id::{ClientId, TaskId};
use crate::store::Delivery;

/// The task that a run was about. Small, because every run holds one: what only a failure needs is
/// read from the envelope again.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) id: TaskId,
    pub(crate) name: Arc<str>,
    pub(crate) client: Option<ClientId>,
    pub(crate) has_record: bool,
    /// The envelope as it is stored.
    pub(crate) raw: Bytes,
}

impl Subject {
    /// A task whose envelope is not, or could not be, decoded. Its head can be read in every
    /// version; if not even that, it is named after its entry, so that it can be found.
    pub(crate) fn of(delivery: &Delivery) -> Self {
        let (id, name, client) = match Head::decode(&delivery.envelope) {
            Ok(head) => (head.id, head.name, head.client),
            Err(_) => (
                TaskId::of_entry(delivery.entry),
                Arc::from("malformed"),
                None,
            ),
        };
        Self {
            id,
            name,
            client,
            has_record: delivery.has_record,
            raw: delivery.envelope.clone(),
        }
    }

    /// The envelope, if this version can read it.
    pub(crate) fn envelope(&self) -> Option<Envelope> {
        let limits = Limits {
            max_bytes: usize::MAX,
        };
        Envelope::decode(&self.raw, &limits).ok()
    }

    /// What a waiter is told.
    pub(crate) fn notice(&self, ending: Ending) -> Bytes {
        Notice {
            task: self.id.clone(),
            ending,
        }
        .encode()
    }
}

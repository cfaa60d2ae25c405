//! The task that a delivery is about, as far as it can be read.
//!
//! Layer 4. Made by `run`; whatever ends a delivery needs its id, its name and whom to tell.

use std::sync::Arc;

use bytes::Bytes;

use crate::envelope::{Ending, Envelope, Head, Notice};
use crate::id::{ClientId, TaskId};
use crate::store::Delivery;

/// The task that a run was about, as far as it could be read.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) id: TaskId,
    pub(crate) name: Arc<str>,
    pub(crate) client: Option<ClientId>,
    pub(crate) has_record: bool,
    /// The envelope as it is stored.
    pub(crate) raw: Bytes,
    /// The envelope, if this version can read it.
    pub(crate) envelope: Option<Envelope>,
}

impl Subject {
    /// A task that was read.
    pub(crate) fn of(envelope: Envelope, delivery: &Delivery) -> Self {
        Self {
            id: envelope.id.clone(),
            name: Arc::clone(&envelope.name),
            client: envelope.client.clone(),
            has_record: delivery.has_record,
            raw: delivery.envelope.clone(),
            envelope: Some(envelope),
        }
    }

    /// A task that was not, or could not be, read. Its head can be read in every version; if not
    /// even that, it is named after its entry, so that it can be found.
    pub(crate) fn undecoded(delivery: &Delivery) -> Self {
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
            envelope: None,
        }
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

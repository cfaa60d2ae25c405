//! The names of all queues, as `ensure` wrote them.
//!
//! Layer 2, called by `inspect`. One set for the whole prefix, in a slot of its own.

use bytes::Bytes;

use super::Store;
use crate::error::BackendError;
use crate::id::QueueName;

impl Store {
    /// All queues, sorted. A name that could not be ours is left out.
    pub(crate) async fn queues(&self) -> Result<Vec<QueueName>, BackendError> {
        let key = self.keys().queues();
        let names = self.conn().members(&key).await?;
        let text = |name: &Bytes| QueueName::new(std::str::from_utf8(name).ok()?).ok();
        let mut queues: Vec<QueueName> = names.iter().filter_map(text).collect();
        queues.sort();
        Ok(queues)
    }
}

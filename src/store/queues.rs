//! The names of all queues, as `ensure` wrote them.
//!
//! Layer 2, called by `inspect`. One set for the whole prefix, in a slot of its own.

use super::Store;
use crate::error::BackendError;
use crate::id::QueueName;

impl Store {
    /// All queues, sorted. A name that could not be ours is left out.
    pub(crate) async fn queues(&self) -> Result<Vec<QueueName>, BackendError> {
        let key = self.keys().queues();
        let reply = self.conn().command("SMEMBERS", Some(&key), vec![key.clone()]).await?;
        let mut queues: Vec<QueueName> = reply
            .array()?
            .iter()
            .filter_map(|name| QueueName::new(name.text().ok()?).ok())
            .collect();
        queues.sort();
        Ok(queues)
    }
}

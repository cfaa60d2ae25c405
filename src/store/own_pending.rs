//! What Redis thinks a server holds.
//!
//! Layer 2. Called after a reconnect, to be compared with what the server knows: a reply that was
//! lost on the wire left its entries with us. `XREADGROUP … 0` would raise their counts.

use super::Store;
use super::conn::number;
use super::lease::{Delivery, behind, text};
use super::script::script;
use crate::error::BackendError;
use crate::id::{ConsumerId, EntryId, QueueName};

script!(OWN_PENDING, "own_pending", allow_oom, ["look", "fence", "forget", "delivery"]);

impl Store {
    /// The next deliveries of `me` behind an id, at most `n` (and 100, and 256 KiB); empty only at
    /// the end.
    pub(crate) async fn own_pending(
        &self,
        q: &QueueName,
        me: &ConsumerId,
        after: EntryId,
        n: usize,
    ) -> Result<Vec<Delivery>, BackendError> {
        let queue = self.keys().queue(q);
        let mut from = after;
        loop {
            let keys = vec![queue.stream(), queue.crashes(), queue.cancel()];
            let args = vec![text(me.as_str()), behind(Some(from)), number(n.max(1) as u64)];
            let [last, found] = self.conn().run(&OWN_PENDING, keys, args).await?.into_parts()?;
            let found = Delivery::list(q, found)?;
            // A page of nothing but entries that were deleted by hand is not the end.
            if !found.is_empty() || last.bytes()?.is_empty() {
                return Ok(found);
            }
            from = last.entry_id()?;
        }
    }
}

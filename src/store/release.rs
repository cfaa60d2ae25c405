//! Hands deliveries back that were not finished: shutdown, pause, no slot.
//!
//! Layer 2. Called by a server; no attempt and no delivery is counted.

use super::Store;
use super::arg;
use super::conn::number;
use super::script::script;
use crate::error::BackendError;
use crate::id::{ConsumerId, EntryId, QueueName};

/// Entries per script.
const PAGE: usize = 100;

script!(
    RELEASE,
    "release",
    allow_oom,
    ["look", "fence", "forget", "claim"]
);

impl Store {
    /// Hands back what is still mine of `deliveries` (entry, delivery count, whether `begin` was
    /// called) and says how many those were. Wakes the servers that may take them.
    pub(crate) async fn release(
        &self,
        q: &QueueName,
        me: &ConsumerId,
        deliveries: &[(EntryId, u64, bool)],
    ) -> Result<usize, BackendError> {
        let queue = self.keys().queue(q);
        let mut released = 0;
        for page in deliveries.chunks(PAGE) {
            let mut args = Vec::with_capacity(1 + 3 * page.len());
            args.push(arg::text(me.as_str()));
            for (id, count, begun) in page {
                args.extend([arg::shown(*id), number(*count), arg::flag(*begun)]);
            }
            let keys = vec![queue.stream(), queue.crashes(), queue.cancel()];
            let reply = self.conn().run(&RELEASE, keys, args).await?;
            released += usize::try_from(reply.u64()?).unwrap_or(usize::MAX);
        }
        Ok(released)
    }
}

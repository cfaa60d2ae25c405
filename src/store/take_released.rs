//! Takes what other servers handed back.
//!
//! Layer 2. Called by a server at start, on the wake-up `released`, and before it reads new entries.

use super::Store;
use super::arg;
use super::conn::number;
use super::lease::Delivery;
use super::script::script;
use crate::error::BackendError;
use crate::id::{ConsumerId, QueueName};

script!(
    TAKE_RELEASED,
    "take_released",
    allow_oom,
    ["look", "fence", "forget", "delivery"]
);

impl Store {
    /// At most `room` (and 100, and 256 KiB) of them, lowest ids first; none while paused.
    pub(crate) async fn take_released(
        &self,
        q: &QueueName,
        me: &ConsumerId,
        room: usize,
    ) -> Result<Vec<Delivery>, BackendError> {
        let queue = self.keys().queue(q);
        let keys = vec![queue.stream(), queue.cfg(), queue.crashes(), queue.cancel()];
        let args = vec![arg::text(me.as_str()), number(room as u64)];
        Delivery::list(q, self.conn().run(&TAKE_RELEASED, keys, args).await?)
    }
}

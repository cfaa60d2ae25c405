//! A server says goodbye to a queue.
//!
//! Layer 2. Called at the end of a shutdown, after everything was settled or released.

use super::Store;
use super::arg;
use super::script::script;
use crate::error::BackendError;
use crate::id::{ConsumerId, QueueName};

script!(SERVER_LEAVE, "server_leave", allow_oom, ["look", "fence"]);

impl Store {
    /// Takes `me` out of the list of servers, gives up the upkeep, and removes the consumer; `false`
    /// if it still holds entries, whose leases then end by themselves.
    pub(crate) async fn server_leave(
        &self,
        q: &QueueName,
        me: &ConsumerId,
    ) -> Result<bool, BackendError> {
        let queue = self.keys().queue(q);
        let keys = vec![queue.stream(), queue.servers(), queue.cfg()];
        let reply = self
            .conn()
            .run(&SERVER_LEAVE, keys, vec![arg::text(me.as_str())])
            .await?;
        Ok(reply.int()? == 1)
    }
}

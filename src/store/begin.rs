//! Counts a crash of a suspect before it runs.
//!
//! Layer 2. Called by the executor of a server, for suspects only: a task that kills its server
//! cannot say so afterwards.

use super::Store;
use super::arg;
use super::conn::number;
use super::lease::Lease;
use super::script::script;
use crate::error::BackendError;
use crate::id::ConsumerId;

script!(BEGIN, "begin", allow_oom, ["look", "fence"]);

impl Store {
    /// The crashes of the task, this run counted as one; `None` if the delivery is not mine any more.
    pub(crate) async fn begin(
        &self,
        lease: &Lease,
        me: &ConsumerId,
    ) -> Result<Option<u32>, BackendError> {
        let keys = self.keys().queue(&lease.queue);
        let args = vec![
            arg::text(me.as_str()),
            arg::shown(lease.entry),
            number(lease.count),
        ];
        let reply = self
            .conn()
            .run(&BEGIN, vec![keys.stream(), keys.crashes()], args)
            .await?;
        reply.optional(|crashes| Ok(u32::try_from(crashes.int()?.max(0)).unwrap_or(u32::MAX)))
    }
}

//! Makes a queue's stream, group and epoch.
//!
//! Layer 2. Called by clients and servers before their first use of a queue, and again whenever
//! Redis says that a stream or its group is gone.

use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::Store;
use super::arg;
use super::conn::number;
use super::script::script;
use crate::error::BackendError;
use crate::id::{Millis, QueueName, duration_ms};

/// The version of the layout of keys that this library reads and writes.
const LAYOUT: &[u8] = b"1";

script!(
    ENSURE,
    "ensure",
    allow_oom,
    ["look", "fence", "clock", "grace"]
);
script!(REGISTER, "register", allow_oom, ["look"]);

/// A queue that is there now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ensured {
    /// Random text that changes when the queue's data was lost.
    pub(crate) epoch: String,
    /// The queue was known, but its stream or group was missing: data was lost.
    pub(crate) created: bool,
    pub(crate) now: Millis,
}

impl Store {
    /// Makes what is missing of a queue. It is no sign of a server: clients call it too.
    pub(crate) async fn ensure(&self, q: &QueueName) -> Result<Ensured, BackendError> {
        self.ensure_with(q, Bytes::new(), Bytes::new()).await
    }

    /// The same for a server that starts: it also compares the last sign of any server.
    pub(crate) async fn ensure_serving(
        &self,
        q: &QueueName,
        quiet: Duration,
        lease: Duration,
    ) -> Result<Ensured, BackendError> {
        self.ensure_with(q, number(duration_ms(quiet)), number(duration_ms(lease)))
            .await
    }

    async fn ensure_with(
        &self,
        q: &QueueName,
        quiet: Bytes,
        lease: Bytes,
    ) -> Result<Ensured, BackendError> {
        let keys = self.keys().queue(q);
        let epoch = arg::text(&Uuid::new_v4().simple().to_string());
        let reply = self
            .conn()
            .run(
                &ENSURE,
                vec![keys.stream(), keys.cfg()],
                vec![epoch, Bytes::from_static(LAYOUT), quiet, lease],
            )
            .await?;
        let [now, lost, epoch] = reply.into_parts()?;
        let ensured = Ensured {
            epoch: epoch.text()?.to_owned(),
            created: lost.int()? == 1,
            now: Millis(now.u64()?),
        };
        // Another slot of a cluster, so another command; written each time, never remembered.
        let queues = self.keys().queues();
        self.conn()
            .run(&REGISTER, vec![queues], vec![arg::text(q.as_str())])
            .await?;
        Ok(ensured)
    }
}

//! Puts a task aside whose name or version this server does not know.
//!
//! Layer 2. Called by the executor of a server during rolling deploys; `unpark` brings it back.

use bytes::Bytes;

use super::Store;
use super::arg;
use super::conn::number;
use super::lease::Lease;
use super::script::script;
use crate::error::BackendError;
use crate::id::{ClientId, ConsumerId, TaskId};

script!(
    PARK,
    "park",
    allow_oom,
    [
        "look", "fence", "clock", "count", "notify", "record", "forget"
    ]
);

/// One delivery that goes aside.
#[derive(Clone, Debug)]
pub(crate) struct Parking<'a> {
    pub(crate) lease: &'a Lease,
    pub(crate) task: &'a TaskId,
    pub(crate) name: &'a str,
    /// The envelope's version, if that is what this server does not know.
    pub(crate) version: Option<u8>,
    pub(crate) client: Option<&'a ClientId>,
    /// The envelope as it came.
    pub(crate) envelope: &'a Bytes,
    /// What the client hears if the task turns out to be cancelled: then it ends here.
    pub(crate) cancelled_notice: &'a Bytes,
}

impl Store {
    /// Puts it where servers look for its name, or for `name@version`: no name has an `@`.
    ///
    /// Whether the delivery was mine and is off my hands now.
    pub(crate) async fn park(
        &self,
        park: &Parking<'_>,
        me: &ConsumerId,
    ) -> Result<bool, BackendError> {
        let queue = self.keys().queue(&park.lease.queue);
        let place = match park.version {
            Some(version) => format!("{}@{version}", park.name),
            None => park.name.to_owned(),
        };
        let mut keys = vec![
            queue.stream(),
            queue.tasks(),
            queue.unknown(),
            queue.unknown_name(&place),
            queue.cancel(),
            queue.crashes(),
            queue.clients(),
            queue.counters(),
        ];
        keys.extend(park.client.map(|client| queue.receiver(client)));
        let args = vec![
            arg::text(me.as_str()),
            arg::shown(park.lease.entry),
            number(park.lease.count),
            arg::text(&park.task.to_string()),
            arg::text(&place),
            arg::text(park.client.map_or("", ClientId::as_str)),
            park.envelope.clone(),
            park.cancelled_notice.clone(),
        ];
        Ok(self.conn().run(&PARK, keys, args).await?.int()? == 1)
    }
}

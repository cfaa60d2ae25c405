//! Who does a queue's upkeep.
//!
//! Layer 2. Called by the upkeep loop of every server. The lock only saves work: every upkeep
//! script is safe when many run it.

use std::time::Duration;

use super::Store;
use super::arg;
use super::conn::number;
use super::script::script;
use crate::error::BackendError;
use crate::id::{ConsumerId, Millis, QueueName, duration_ms};

script!(
    UPKEEP_LOCK,
    "upkeep_lock",
    allow_oom,
    ["look", "fence", "clock", "grace", "due"]
);

/// The answer to one try.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Upkeep {
    /// The lock is mine until `now` + `hold`.
    pub(crate) mine: bool,
    /// Servers that renewed within two leases: tries are spread by their number.
    pub(crate) servers_seen: usize,
    pub(crate) now: Millis,
    /// When the first scheduled or retry task is due.
    pub(crate) next_due: Option<Millis>,
    pub(crate) paused: bool,
    /// The pause has reached its end: somebody should resume the queue.
    pub(crate) pause_is_over: bool,
}

impl Store {
    /// Tries to get or keep the upkeep of a queue. The holder also repeats the wake-up for released
    /// work that nobody took yet.
    pub(crate) async fn upkeep_lock(
        &self,
        q: &QueueName,
        me: &ConsumerId,
        hold: Duration,
        quiet: Duration,
        lease: Duration,
    ) -> Result<Upkeep, BackendError> {
        let queue = self.keys().queue(q);
        let keys = vec![
            queue.stream(),
            queue.cfg(),
            queue.servers(),
            queue.scheduled(),
            queue.retry(),
        ];
        let args = vec![
            arg::text(me.as_str()),
            number(duration_ms(hold)),
            number(duration_ms(quiet)),
            number(duration_ms(lease)),
        ];
        let reply = self.conn().run(&UPKEEP_LOCK, keys, args).await?;
        let [mine, servers, now, next_due, paused, over] = reply.into_parts()?;
        Ok(Upkeep {
            mine: mine.int()? == 1,
            servers_seen: usize::try_from(servers.u64()?).unwrap_or(usize::MAX),
            now: Millis(now.u64()?),
            next_due: u64::try_from(next_due.int()?).ok().map(Millis),
            paused: paused.int()? == 1,
            pause_is_over: over.int()? == 1,
        })
    }
}

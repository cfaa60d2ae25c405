//! Takes over the work of dead servers.
//!
//! Layer 2. Called by the upkeep loop of every server that has free slots.

use std::time::Duration;

use super::Store;
use super::arg;
use super::conn::number;
use super::lease::Delivery;
use super::script::script;
use crate::error::BackendError;
use crate::id::{ConsumerId, EntryId, Millis, QueueName, duration_ms};

script!(
    RECLAIM,
    "reclaim",
    allow_oom,
    [
        "look", "fence", "clock", "count", "forget", "grace", "claim", "delivery"
    ]
);

/// Where the next probe goes on. One per queue and server, kept between rounds: a probe that always
/// began at the lowest id might never reach the dead owner's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ReclaimCursor {
    behind: Option<EntryId>,
}

/// The times an owner is judged by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReclaimTimes {
    /// How long an entry may be idle before its owner is taken for dead.
    pub(crate) lease: Duration,
    /// No sign of any server for longer means that Redis was away.
    pub(crate) quiet: Duration,
}

/// What one round took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reclaimed {
    pub(crate) deliveries: Vec<Delivery>,
    /// Entries that came although they were not asked for and must not be started.
    pub(crate) refreshed: u32,
    /// There is more to look at: call again.
    pub(crate) more: bool,
    /// Nobody is taken for dead before this time.
    pub(crate) grace_until: Option<Millis>,
    pub(crate) paused: bool,
}

impl Store {
    /// Takes at most `room` entries whose owner let the lease run out, among them at most one suspect
    /// and only with `suspect_room`. Nothing while paused or in grace.
    pub(crate) async fn reclaim(
        &self,
        q: &QueueName,
        me: &ConsumerId,
        room: usize,
        suspect_room: bool,
        times: &ReclaimTimes,
        cursor: &mut ReclaimCursor,
    ) -> Result<Reclaimed, BackendError> {
        let queue = self.keys().queue(q);
        let keys = vec![
            queue.stream(),
            queue.cfg(),
            queue.crashes(),
            queue.cancel(),
            queue.counters(),
        ];
        let args = vec![
            arg::text(me.as_str()),
            number(room as u64),
            arg::flag(suspect_room),
            number(duration_ms(times.lease)),
            number(duration_ms(times.quiet)),
            arg::behind(cursor.behind),
        ];
        let reply = self.conn().run(&RECLAIM, keys, args).await?;
        let [_now, next, more, refreshed, deliveries, grace_end, paused] = reply.into_parts()?;
        cursor.behind = EntryId::parse_bytes(next.bytes()?.strip_prefix(b"(").unwrap_or_default());
        let grace_end = grace_end.u64()?;
        Ok(Reclaimed {
            deliveries: Delivery::list(q, deliveries)?,
            refreshed: u32::try_from(refreshed.u64()?).unwrap_or(u32::MAX),
            more: more.int()? == 1,
            grace_until: (grace_end > 0).then_some(Millis(grace_end)),
            paused: paused.int()? == 1,
        })
    }
}

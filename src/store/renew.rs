//! Keeps my deliveries mine.
//!
//! Layer 2. Called by the keeper of a server at every beat, also when nothing is held: it is the
//! server's sign of life, and it finds deliveries that nobody here saw.

use std::time::Duration;

use bytes::Bytes;

use super::Store;
use super::arg;
use super::conn::number;
use super::lease::Delivery;
use super::reply::Reply;
use super::script::script;
use crate::error::BackendError;
use crate::id::{ConsumerId, EntryId, Millis, QueueName, duration_ms};

/// Held entries per script.
const PAGE: usize = 100;

script!(
    RENEW,
    "renew",
    allow_oom,
    [
        "look", "fence", "clock", "forget", "grace", "claim", "delivery"
    ]
);

/// The times a beat is judged by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RenewTimes {
    /// Between two beats. Only what is idle for half of it is extended.
    pub(crate) interval: Duration,
    /// No sign of any server for longer means that Redis was away.
    pub(crate) quiet: Duration,
    /// How long an entry may be idle before its owner is taken for dead.
    pub(crate) lease: Duration,
}

/// What one beat found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Renewed {
    /// Held entries that are not mine any more.
    pub(crate) lost: Vec<EntryId>,
    /// Held entries that are mine under another delivery count, with that count.
    pub(crate) moved: Vec<(EntryId, u64)>,
    /// Held entries that somebody asked to cancel.
    pub(crate) cancelled: Vec<EntryId>,
    /// Mine, not held by the caller, and idle for more than one interval.
    pub(crate) unlisted: Vec<Delivery>,
    pub(crate) paused: bool,
    pub(crate) now: Millis,
}

impl Store {
    /// Extends what is mine of `held`, which is ascending and may be of any length or empty.
    /// Nothing is ever taken from another owner.
    pub(crate) async fn renew(
        &self,
        q: &QueueName,
        me: &ConsumerId,
        held: &[(EntryId, u64)],
        times: &RenewTimes,
    ) -> Result<Renewed, BackendError> {
        let queue = self.keys().queue(q);
        let fixed = [
            arg::text(me.as_str()),
            number(duration_ms(times.interval)),
            number(duration_ms(times.quiet)),
            number(duration_ms(times.lease)),
        ];
        let mut renewed = Renewed::default();
        let mut rest = held;
        let mut from = None;
        loop {
            let page = &rest[..page_len(rest)];
            let last_page = page.len() == rest.len();
            let to = page.last().filter(|_| !last_page).map(|(id, _)| *id);
            let mut args = fixed.to_vec();
            args.push(arg::behind(from));
            args.push(to.map_or(Bytes::from_static(b"+"), arg::shown));
            for (id, count) in page {
                args.extend([arg::shown(*id), number(*count)]);
            }
            let keys = vec![
                queue.stream(),
                queue.cfg(),
                queue.servers(),
                queue.cancel(),
                queue.crashes(),
            ];
            let reply = self.conn().run(&RENEW, keys, args).await?;
            match renewed.add(q, reply)? {
                // More of mine were in this range than one script looks at: go on behind the last.
                Some(judged) => {
                    rest = &rest[rest.partition_point(|(id, _)| *id <= judged)..];
                    from = Some(judged);
                }
                None if last_page => return Ok(renewed),
                None => {
                    rest = &rest[page.len()..];
                    from = to;
                }
            }
        }
    }
}

/// One page, never cut between two deliveries of one entry.
fn page_len(held: &[(EntryId, u64)]) -> usize {
    let mut len = held.len().min(PAGE);
    while len < held.len() && len > 0 && held[len].0 == held[len - 1].0 {
        len -= 1;
    }
    if len == 0 { held.len().min(PAGE) } else { len }
}

impl Renewed {
    /// Adds the answer for one page and says up to where it judged, if not to the end of the page.
    fn add(&mut self, q: &QueueName, reply: Reply) -> Result<Option<EntryId>, BackendError> {
        let [now, paused, judged, lost, moved, cancelled, unlisted] = reply.into_parts()?;
        self.now = Millis(now.u64()?);
        self.paused = paused.int()? == 1;
        for id in lost.array()? {
            self.lost.push(id.entry_id()?);
        }
        for pair in moved.array()?.chunks_exact(2) {
            self.moved.push((pair[0].entry_id()?, pair[1].u64()?));
        }
        for id in cancelled.array()? {
            self.cancelled.push(id.entry_id()?);
        }
        self.unlisted.extend(Delivery::list(q, unlisted)?);
        if judged.bytes()?.is_empty() {
            return Ok(None);
        }
        judged.entry_id().map(Some)
    }
}

//! Ends one delivery that did not succeed.
//!
//! Layer 2. Called by the executor of a server with what `lifecycle` decided; also for a poison,
//! expired, undecodable or cancelled task. A stale owner is refused.

use std::time::Duration;

use bytes::Bytes;

use super::Store;
use super::arg;
use super::conn::number;
use super::lease::Lease;
use super::script::script;
use crate::envelope::{MAX_TEXT_BYTES, cut_text};
use crate::error::BackendError;
use crate::id::{ClientId, ConsumerId, TaskId, duration_ms};
use crate::store::class::unexpected;

script!(
    FAIL,
    "fail",
    allow_oom,
    [
        "look", "fence", "clock", "count", "notify", "record", "forget", "due", "archive"
    ]
);

/// One delivery and how it ends.
#[derive(Clone, Debug)]
pub(crate) struct Fail<'a> {
    pub(crate) lease: &'a Lease,
    pub(crate) task: &'a TaskId,
    pub(crate) name: &'a str,
    pub(crate) client: Option<&'a ClientId>,
    /// The envelope to store: already with the attempt it goes on with.
    pub(crate) envelope: &'a Bytes,
    pub(crate) verdict: &'a Verdict<'a>,
    /// What the client hears if the task turns out to be cancelled.
    pub(crate) cancelled_notice: &'a Bytes,
    /// How many archived tasks are kept, and for how long.
    pub(crate) archive_most: usize,
    pub(crate) archive_keep: Duration,
}

/// What happens to the task.
#[derive(Clone, Debug)]
pub(crate) enum Verdict<'a> {
    /// It waits in Redis for its next attempt.
    Retry {
        delay: Duration,
        error: &'a str,
        reason: &'a str,
    },
    /// It waits; no attempt is used up.
    Snooze { delay: Duration },
    /// It ends and is kept.
    Archive {
        reason: &'a str,
        error: &'a str,
        notice: Bytes,
    },
    /// It ends because somebody asked for it.
    Cancel { notice: Bytes },
    /// It ends because its deadline is over.
    Expire { notice: Bytes },
    /// It ends without success and is not kept.
    Discard { notice: Bytes },
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failed {
    /// As the verdict said.
    Done,
    /// The task was flagged as cancelled: it ended so, whatever the verdict.
    Cancelled,
    /// The delivery is not mine any more; nothing was written.
    Refused,
}

/// A verdict as arguments; what it does not need is empty.
struct Words<'a> {
    verdict: &'static str,
    delay: Duration,
    reason: &'a str,
    error: &'a str,
    notice: Bytes,
}

impl<'a> Words<'a> {
    fn of(verdict: &Verdict<'a>) -> Self {
        let end = |verdict, notice: &Bytes| Self {
            verdict,
            delay: Duration::ZERO,
            reason: "",
            error: "",
            notice: notice.clone(),
        };
        match verdict {
            Verdict::Retry {
                delay,
                error,
                reason,
            } => Self {
                verdict: "retry",
                delay: *delay,
                reason,
                error,
                notice: Bytes::new(),
            },
            Verdict::Snooze { delay } => Self {
                delay: *delay,
                ..end("snooze", &Bytes::new())
            },
            Verdict::Archive {
                reason,
                error,
                notice,
            } => Self {
                reason,
                error,
                ..end("archive", notice)
            },
            Verdict::Cancel { notice } => end("cancel", notice),
            Verdict::Expire { notice } => end("expire", notice),
            Verdict::Discard { notice } => end("discard", notice),
        }
    }
}

impl Store {
    /// Ends a delivery that is still mine: owner and delivery count must be equal.
    pub(crate) async fn fail(
        &self,
        fail: &Fail<'_>,
        me: &ConsumerId,
    ) -> Result<Failed, BackendError> {
        let queue = self.keys().queue(&fail.lease.queue);
        let mut keys = vec![
            queue.stream(),
            queue.tasks(),
            queue.scheduled(),
            queue.retry(),
            queue.archived(),
            queue.cancel(),
            queue.crashes(),
            queue.clients(),
            queue.counters(),
        ];
        keys.extend(fail.client.map(|client| queue.receiver(client)));
        let words = Words::of(fail.verdict);
        let args = vec![
            arg::text(me.as_str()),
            arg::shown(fail.lease.entry),
            number(fail.lease.count),
            arg::text(words.verdict),
            arg::text(&fail.task.to_string()),
            arg::text(fail.name),
            arg::text(fail.client.map_or("", ClientId::as_str)),
            fail.envelope.clone(),
            number(duration_ms(words.delay).min(MAX_DELAY_MS)),
            arg::text(words.reason),
            arg::text(cut_text(words.error, MAX_TEXT_BYTES)),
            words.notice,
            fail.cancelled_notice.clone(),
            arg::shown(fail.archive_most),
            arg::millis(fail.archive_keep),
        ];
        match self.conn().run(&FAIL, keys, args).await?.int()? {
            0 => Ok(Failed::Refused),
            1 => Ok(Failed::Done),
            2 => Ok(Failed::Cancelled),
            other => Err(unexpected("0, 1 or 2", &other.to_string())),
        }
    }
}

/// A hundred years: beyond it a score of a zset would not be exact to the millisecond any more.
const MAX_DELAY_MS: u64 = 100 * 366 * 24 * 3600 * 1000;

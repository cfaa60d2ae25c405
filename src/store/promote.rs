//! Promote: due tasks go into the stream.
//!
//! Layer 2, called by `upkeep`, again while more is due. Script: `scripts/promote.lua`.

use super::Store;
use super::arg;
use super::enqueue::MAX_BATCH_BYTES;
use super::script::script;
use crate::error::BackendError;
use crate::id::{Millis, QueueName};

script!(
    PROMOTE,
    "promote",
    allow_oom,
    ["look", "clock", "count", "due", "record"]
);

/// The most tasks of one call.
pub(crate) const MAX_PROMOTED: usize = 100;

/// What one call did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Promoted {
    pub(crate) moved: usize,
    /// When the next task is due.
    pub(crate) next_due: Option<Millis>,
    pub(crate) now: Millis,
}

impl Promoted {
    /// Whether more is due at once, because the call was full.
    pub(crate) fn more(&self) -> bool {
        self.next_due.is_some_and(|due| due <= self.now)
    }
}

impl Store {
    /// Moves what is due by the clock of Redis, the longest due first.
    pub(crate) async fn promote(&self, q: &QueueName) -> Result<Promoted, BackendError> {
        let keys = self.keys().queue(q);
        let reply = self
            .conn()
            .run(
                &PROMOTE,
                vec![
                    keys.stream(),
                    keys.tasks(),
                    keys.scheduled(),
                    keys.retry(),
                    keys.archived(),
                    keys.counters(),
                ],
                vec![arg::shown(MAX_PROMOTED), arg::shown(MAX_BATCH_BYTES)],
            )
            .await?;
        let [moved, next_due, now] = reply.into_parts()?;
        Ok(Promoted {
            moved: usize::try_from(moved.int()?).map_err(|_| moved.wrong("a number of tasks"))?,
            next_due: u64::try_from(next_due.int()?).ok().map(Millis),
            now: Millis(now.u64()?),
        })
    }
}

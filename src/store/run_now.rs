//! Run now: a task that waits, or was archived, goes into the stream at once.
//!
//! Layer 2, called by `inspect`. Script: `scripts/run_now.lua`.

use super::Store;
use super::arg;
use super::reply::Reply;
use super::script::script;
use crate::error::BackendError;
use crate::id::{EntryId, QueueName, TaskId};
use crate::state::TaskState;

script!(RUN_NOW, "run_now", allow_oom, ["look", "record"]);

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunNow {
    /// It is pending, as this entry.
    Moved(EntryId),
    /// It is in a state in which there is nothing to put forward.
    WrongState(TaskState),
    Gone,
}

impl Store {
    /// Moves a scheduled, failed, archived or parked task into the stream.
    pub(crate) async fn run_now(
        &self,
        q: &QueueName,
        task: &TaskId,
    ) -> Result<RunNow, BackendError> {
        let keys = self.keys().queue(q);
        let reply = self
            .conn()
            .run(
                &RUN_NOW,
                vec![
                    keys.stream(),
                    keys.tasks(),
                    keys.scheduled(),
                    keys.retry(),
                    keys.archived(),
                    keys.unknown(),
                    keys.crashes(),
                ],
                vec![arg::shown(task)],
            )
            .await?;
        let parts = reply.into_array()?;
        match parts.as_slice() {
            [word, entry] if word.text()? == "moved" => Ok(RunNow::Moved(entry.entry_id()?)),
            [word, state] if word.text()? == "state" => TaskState::from_word(state.text()?)
                .map(RunNow::WrongState)
                .ok_or_else(|| state.wrong("a state")),
            [word] if word.text()? == "gone" => Ok(RunNow::Gone),
            _ => Err(Reply::Array(parts).wrong("an answer to run_now")),
        }
    }
}

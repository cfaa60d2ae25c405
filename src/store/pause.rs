//! Pause and resume of a queue: exact, because the group's position itself is moved away.
//!
//! Layer 2, called by `inspect`, and by `upkeep` for a pause whose time is over. What is running
//! goes on. Scripts: `scripts/pause.lua`, `scripts/resume.lua`.

use super::Store;
use super::arg;
use super::reply::Reply;
use super::script::script;
use crate::error::{BackendError, BackendKind};
use crate::id::{Millis, QueueName};

script!(
    PAUSE,
    "pause",
    allow_oom,
    ["look", "fence", "clock", "position"]
);
script!(RESUME, "resume", allow_oom, ["look", "fence", "clock"]);

impl Store {
    /// Stops delivery. On a paused queue it only changes by whom, why and until when.
    pub(crate) async fn pause(
        &self,
        q: &QueueName,
        by: &str,
        why: &str,
        until: Option<Millis>,
    ) -> Result<(), BackendError> {
        let until = until.map_or_else(String::new, |until| until.0.to_string());
        for _ in 0..2 {
            let keys = self.keys().queue(q);
            let args = vec![arg::text(by), arg::text(why), arg::text(&until)];
            let keys = vec![keys.stream(), keys.cfg()];
            if self.conn().run(&PAUSE, keys, args).await?.int()? == 1 {
                return Ok(());
            }
            self.ensure(q).await?;
        }
        Err(group_lost())
    }

    /// Goes on where the pause stopped delivery. Says whether the queue was paused.
    pub(crate) async fn resume(&self, q: &QueueName) -> Result<bool, BackendError> {
        self.resume_if(q, false).await
    }

    /// Ends a pause whose time is over, and no other.
    pub(crate) async fn resume_due(&self, q: &QueueName) -> Result<bool, BackendError> {
        self.resume_if(q, true).await
    }

    async fn resume_if(&self, q: &QueueName, only_due: bool) -> Result<bool, BackendError> {
        for _ in 0..2 {
            let keys = self.keys().queue(q);
            let keys = vec![keys.stream(), keys.cfg()];
            let reply = self
                .conn()
                .run(&RESUME, keys, vec![arg::flag(only_due)])
                .await?;
            match reply {
                Reply::Int(1) => return Ok(true),
                Reply::Int(0) => return Ok(false),
                _ => self.ensure(q).await?,
            };
        }
        Err(group_lost())
    }
}

/// Somebody deletes the queue as fast as it is made again.
fn group_lost() -> BackendError {
    BackendError::new(BackendKind::Group, "the queue was lost twice in a row")
}

//! Brings parked tasks back for a server that knows them.
//!
//! Layer 2. Called by a server at start and every few seconds, for the names it knows.

use super::Store;
use super::arg;
use super::conn::number;
use super::script::script;
use crate::error::BackendError;
use crate::id::QueueName;

script!(UNPARK, "unpark", allow_oom, ["look", "record"]);

impl Store {
    /// Puts at most `n` (and 100, and 256 KiB) tasks of a name (or `name@version`) back into the stream and says how
    /// many: call again until none.
    pub(crate) async fn unpark(
        &self,
        q: &QueueName,
        name: &str,
        n: usize,
    ) -> Result<usize, BackendError> {
        let queue = self.keys().queue(q);
        let keys = vec![
            queue.stream(),
            queue.tasks(),
            queue.unknown(),
            queue.unknown_name(name),
            queue.crashes(),
        ];
        let reply = self
            .conn()
            .run(&UNPARK, keys, vec![arg::text(name), number(n as u64)])
            .await?;
        Ok(usize::try_from(reply.u64()?).unwrap_or(usize::MAX))
    }

    /// The names, or `name@version`, that tasks are parked under.
    pub(crate) async fn parked_names(&self, q: &QueueName) -> Result<Vec<String>, BackendError> {
        let key = self.keys().queue(q).unknown();
        let names = self.conn().members(&key).await?;
        Ok(names
            .iter()
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect())
    }
}

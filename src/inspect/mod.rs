//! Looks at queues and tasks, and acts on them for a person.
//!
//! Layer 4. It reads what the store knows and decodes it; rules about tasks are in the scripts and
//! in `lifecycle`. Got from a client by [`Client::inspect`](crate::Client::inspect).
//!
//! - `queue`: counts of a queue, pause and resume
//! - `cancel`: what came of ending a task
//! - `task`: one task: a look, run now, cancel, archive, delete
//! - `page`: lists of tasks in one state

mod cancel;
mod page;
mod queue;
mod task;

pub use cancel::CancelOutcome;
pub(crate) use cancel::OWNER_DEAD_AFTER;
pub use page::{Page, TaskPage};
pub use queue::{PauseInfo, QueueCounts};
pub use task::TaskInfo;

use std::fmt;

use crate::error::InspectError;
use crate::id::{ClientId, QueueName};
use crate::store::Store;

/// Looks at queues and tasks, and acts on them.
///
/// ```no_run
/// # async fn example(client: streamfleet::Client) -> Result<(), streamfleet::InspectError> {
/// let inspect = client.inspect();
/// for queue in inspect.queues().await? {
///     let counts = inspect.counts(queue.as_str()).await?;
///     println!("{queue}: {} pending, {} archived", counts.pending, counts.archived);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Inspector {
    store: Store,
    /// Shown as who paused a queue.
    by: ClientId,
}

impl Inspector {
    pub(crate) const fn new(store: Store, by: ClientId) -> Self {
        Self { store, by }
    }

    /// The names of all queues that were ever used, sorted.
    ///
    /// # Errors
    /// [`InspectError`] if Redis refuses or does not answer.
    pub async fn queues(&self) -> Result<Vec<QueueName>, InspectError> {
        Ok(self.store.queues().await?)
    }
}

impl fmt::Debug for Inspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspector")
            .field("by", &self.by)
            .finish_non_exhaustive()
    }
}

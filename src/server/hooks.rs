//! What a server tells its owner while it runs.
//!
//! Layer 4. Hooks are called from the library's own tasks: they must not block. A hook that panics
//! is logged and forgotten.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::id::{Fence, QueueName, TaskId};

/// A task that was archived, by whichever way: its last failure, a handler's `never`, a poison
/// task found after a crash, a name nobody knew.
///
/// ```
/// # use streamfleet::ArchivedTask;
/// fn alarm(task: &ArchivedTask) {
///     println!("{} in {} was archived: {}", task.name, task.queue, task.reason);
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ArchivedTask {
    /// The queue it was in.
    pub queue: QueueName,
    /// The task.
    pub id: TaskId,
    /// The task's name.
    pub name: String,
    /// Why: `failed`, `panicked`, `timed_out`, `poison`, `no_handler`, `undecodable`, `output_too_large`.
    pub reason: &'static str,
    /// The error's text, at most 8 KiB.
    pub error: String,
}

/// A run that lost its lease: another server may run the task now.
///
/// ```
/// # use streamfleet::LostLease;
/// fn note(lost: &LostLease) {
///     println!("{} in {} is not ours any more", lost.fence.entry, lost.queue);
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LostLease {
    /// The queue it was in.
    pub queue: QueueName,
    /// The delivery that was lost.
    pub fence: Fence,
}

type Hook<E> = Arc<dyn Fn(&E) + Send + Sync>;

/// The hooks of a server.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) archived: Vec<Hook<ArchivedTask>>,
    pub(crate) lease_lost: Vec<Hook<LostLease>>,
}

impl Hooks {
    pub(crate) fn tell_archived(&self, task: &ArchivedTask) {
        tell(&self.archived, task);
    }

    pub(crate) fn tell_lease_lost(&self, lost: &LostLease) {
        tell(&self.lease_lost, lost);
    }
}

fn tell<E>(hooks: &[Hook<E>], event: &E) {
    for hook in hooks {
        if catch_unwind(AssertUnwindSafe(|| hook(event))).is_err() {
            tracing::warn!("a hook panicked");
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("archived", &self.archived.len())
            .field("lease_lost", &self.lease_lost.len())
            .finish()
    }
}

//! What came of ending a task from outside, for handles and for the inspector.
//!
//! Layer 4, words only.

use std::time::Duration;

use crate::store::EndReply;

/// From which time without a sign the owner of a running task counts as dead to whoever cancels
/// it: far more than the lease of any server that renews.
pub(crate) const OWNER_DEAD_AFTER: Duration = Duration::from_secs(60);

/// What a cancel did.
///
/// ```no_run
/// # async fn example<T: streamfleet::Task>(
/// #     handle: streamfleet::TaskHandle<T>,
/// # ) -> Result<(), streamfleet::InspectError> {
/// use streamfleet::CancelOutcome;
/// if handle.cancel().await? == CancelOutcome::Requested {
///     println!("it runs; its handler is told to stop");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum CancelOutcome {
    /// It was not running, and has ended now.
    Ended,
    /// It is running: its handler is told, and its server ends it.
    Requested,
    /// It had ended before.
    Gone,
}

impl CancelOutcome {
    pub(crate) const fn of(reply: EndReply) -> Self {
        match reply {
            EndReply::Ended => Self::Ended,
            EndReply::Running { .. } => Self::Requested,
            EndReply::Gone => Self::Gone,
        }
    }
}

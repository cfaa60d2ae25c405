//! What came of ending a task from outside, for handles and for the inspector.
//!
//! Layer 4, words only.

use crate::store::EndReply;
pub(crate) use crate::store::OWNER_DEAD_AFTER;

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

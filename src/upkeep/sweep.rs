//! Removes what has no owner any more, and ends what nobody runs into: receivers and producers of
//! dead clients, consumers of dead servers, fields of entries that are gone, old archived tasks,
//! expired tasks that still wait, and parked tasks whose grace is over.
//!
//! Layer 3. Called by `watch` now and then; every step is bounded, the cursors go on next time.

use std::sync::Arc;

use crate::envelope::{Ending, Envelope, Head, Limits, Notice};
use crate::error::BackendError;
use crate::store::{EndHow, EndReply, SweepCursors, SweepLimits};
use crate::upkeep::{Archived, Host, Post};

/// The cursors of one queue's sweep.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    cursors: SweepCursors,
}

impl Sweep {
    /// One pass.
    pub(crate) async fn sweep(&mut self, post: &Post, host: &dyn Host) -> Result<(), BackendError> {
        let limits = SweepLimits::of(&post.times);
        let swept = post.store.sweep(&post.queue, &limits, &mut self.cursors).await?;
        if swept.receivers + swept.consumers > 0 {
            tracing::info!(
                queue = %post.queue,
                receivers = swept.receivers,
                consumers = swept.consumers,
                "removed what dead clients and servers left"
            );
        }
        Ok(())
    }
}

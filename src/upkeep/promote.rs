//! Brings due tasks into the stream.
//!
//! Layer 3. Called by `watch`; in steps, so that a hundred thousand that are due at once block Redis
//! for no longer than a hundred do.

use crate::error::BackendError;
use crate::store::Promoted;
use crate::upkeep::Post;

/// Promotes until nothing is due any more.
pub(crate) async fn promote(post: &Post) -> Result<Promoted, BackendError> {
    loop {
        let promoted = post.store.promote(&post.queue).await?;
        if !promoted.more() || post.stop.is_cancelled() {
            return Ok(promoted);
        }
    }
}

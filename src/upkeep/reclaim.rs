//! Takes over the work of servers that were silent for a lease.
//!
//! Layer 3. It waits for a slot in turn with the reader, so new work does not starve old work, and
//! old work takes no more than its turn.

use std::time::Duration;

use futures_util::FutureExt;

use crate::store::{ReclaimCursor, ReclaimTimes, Reclaimed};
use crate::upkeep::{Host, Post};

/// Reclaims until the server stops.
pub(crate) async fn reclaim(post: Post, host: std::sync::Arc<dyn Host>) {
    let mut cursor = ReclaimCursor::default();
    let mut more = false;
    loop {
        let wait = if more {
            Duration::ZERO
        } else {
            post.pace.wait(post.times.every, fastrand::f64())
        };
        let slept = post
            .stop
            .run_until_cancelled(tokio::time::sleep(wait))
            .await;
        if slept.is_none() {
            return;
        }
        more = round(&post, &*host, &mut cursor).await;
    }
}

/// One look. Answers whether there is more to take at once.
async fn round(post: &Post, host: &dyn Host, cursor: &mut ReclaimCursor) -> bool {
    let Some(room) = host.room().await else {
        return false;
    };
    let slots = room.slots.num_permits();
    let suspects = room.suspect.is_some();
    let times = ReclaimTimes {
        lease: post.times.lease,
        quiet: post.times.quiet,
    };
    let mut more = false;
    let take = async {
        let reclaimed = post
            .store
            .reclaim(&post.queue, &post.me, slots, suspects, &times, cursor)
            .await;
        match reclaimed {
            Ok(Reclaimed {
                deliveries,
                more: rest,
                ..
            }) => {
                more = rest && !deliveries.is_empty();
                deliveries
            }
            Err(error) => {
                tracing::debug!(queue = %post.queue, %error, "failed to look for dead work");
                Vec::new()
            }
        }
    };
    let taken = host.take(room, take.boxed()).await;
    if taken > 0 {
        tracing::info!(queue = %post.queue, taken, "took over work of a silent server");
    }
    more
}

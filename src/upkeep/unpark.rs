//! Takes back tasks that were put aside until a server came that knows them.
//!
//! Layer 3. At the start and every few seconds, so a rolling deploy needs no order.

use std::sync::Arc;
use std::time::Duration;

use crate::error::BackendError;
use crate::upkeep::{Host, Post};

/// How often a server looks for what it knows.
const EVERY: Duration = Duration::from_secs(3);
/// Tasks of one call.
const PAGE: usize = 100;

/// Unparks until the server stops.
pub(crate) async fn unpark(post: Post, host: Arc<dyn Host>) {
    loop {
        if let Err(error) = round(&post, &*host).await {
            tracing::debug!(queue = %post.queue, %error, "failed to look for parked tasks");
        }
        let wait = post.pace.wait(post.times.every.max(EVERY), fastrand::f64());
        let slept = post
            .stop
            .run_until_cancelled(tokio::time::sleep(wait))
            .await;
        if slept.is_none() {
            return;
        }
    }
}

async fn round(post: &Post, host: &dyn Host) -> Result<(), BackendError> {
    for name in post.store.parked_names(&post.queue).await? {
        if !host.knows(&name) {
            continue;
        }
        while post.store.unpark(&post.queue, &name, PAGE).await? >= PAGE
            && !post.stop.is_cancelled()
        {}
        tracing::info!(queue = %post.queue, %name, "took back parked tasks");
    }
    Ok(())
}

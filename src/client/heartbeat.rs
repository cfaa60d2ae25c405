//! Tells each queue that this client is alive, and learns what it may have missed.
//!
//! Layer 4, one loop for the client. Without it a server would take the client for dead and remove
//! its receivers.

use std::sync::Arc;
use std::time::Duration;

use super::lane::Lane;
use super::shared::Shared;

/// The longest time between two beats.
const LONGEST_INTERVAL: Duration = Duration::from_secs(30);

pub(super) async fn run(shared: Arc<Shared>) {
    let interval = (shared.settings.client_dead_after / 10).min(LONGEST_INTERVAL);
    let mut failed = 0;
    // The first beat is early: it signs in, and an enqueue that signed in before does no harm.
    while shared
        .pause(interval.mul_f64(0.8 + 0.2 * fastrand::f64()))
        .await
    {
        for lane in shared.lanes() {
            if shared.is_closed() {
                return;
            }
            match beat(&shared, &lane).await {
                Ok(()) => failed = 0,
                Err(error) => {
                    failed += 1;
                    shared.count_error("client heartbeat", &lane.queue, &error, failed);
                }
            }
        }
    }
}

async fn beat(shared: &Shared, lane: &Lane) -> Result<(), crate::error::BackendError> {
    let beat = shared
        .store
        .client_beat(&lane.queue, &lane.client())
        .await?;
    lane.note_epoch(&beat.epoch);
    if !beat.known {
        // A server swept the receiver: outcomes since then were not written.
        lane.mark_gap();
    }
    Ok(())
}

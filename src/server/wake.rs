//! Listens to the wake-ups of the queues.
//!
//! Layer 4. Hints only: each has a poll behind it, so a lost one delays and loses nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::id::EntryId;
use crate::server::core::Core;
use crate::server::signal::StopReason;
use tokio::sync::mpsc;

use crate::store::subscriber::{ChannelMessage, Subscriber};
use crate::store::wake::Wake;

/// Passes wake-ups on until the server stops.
pub(crate) async fn listen(
    core: Arc<Core>,
    subscriber: Subscriber,
    mut wakes: mpsc::Receiver<ChannelMessage>,
) {
    let channels: Vec<_> = core
        .lanes
        .iter()
        .map(|lane| core.store.keys().queue(&lane.queue).wake())
        .collect();
    loop {
        let next = tokio::select! {
            biased;
            () = core.stop.settling.cancelled() => None,
            next = wakes.recv() => next,
        };
        let Some((channel, message)) = next else {
            // Without a subscription the polls remain; the loop itself ends only with the server.
            core.stop.settling.cancelled().await;
            subscriber.close().await;
            return;
        };
        let Some(lane) = channels.iter().position(|known| *known == channel) else {
            continue;
        };
        match Wake::parse(&message) {
            Some(Wake::Due(due)) => core.lane(lane).wakes.due(due),
            Some(Wake::Cancel(entry)) => cancel(&core, lane, entry),
            Some(Wake::Released) => {
                core.lane(lane).released.store(true, Ordering::Release);
                // Only who has room looks at once; the others will when a slot is free.
                if core.slots.available_permits() > 0 {
                    core.wake_readers().await;
                }
            }
            Some(Wake::Resume) => core.wake_readers().await,
            None => tracing::debug!("a wake-up of an unknown kind"),
        }
    }
}

fn cancel(core: &Core, lane: usize, entry: EntryId) {
    if let Some(held) = core.lane(lane).held.of_entry(entry).last() {
        held.signal.stop(StopReason::Cancelled);
    }
}

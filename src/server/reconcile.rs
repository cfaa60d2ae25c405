//! Finds deliveries that Redis made to us and we never saw.
//!
//! Layer 4. A reply that is lost on the wire leaves its entries pending with us. After each
//! connection that broke, and whenever a renewal saw an entry we do not know, the own pending list
//! is compared with the table of held deliveries. It costs milliseconds instead of a lease.
//!
//! The list is read by XPENDING and XRANGE; reading it by `XREADGROUP … 0` would raise the delivery
//! counts, and so break the fences of everything that runs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::error::BackendError;
use crate::id::EntryId;
use crate::server::core::Core;
use crate::server::patience::Patience;
use crate::server::report::add;
use crate::store::Delivery;
use crate::store::conn::Node;

/// Entries of one look at the pending list.
const PAGE: usize = 100;

/// Looks whenever there is doubt, and once more after a read that may still have been under way.
pub(crate) async fn reconcile(core: Arc<Core>) {
    let mut reconnects = core.conn().reconnects();
    let mut patience = Patience::default();
    let mut again = false;
    let mut nodes = Nodes::default();
    // Remembered from the start, so that a failover later is seen as one.
    let _ = watch_failover(&core, &mut nodes).await;
    loop {
        let late = core.settings.block + Duration::from_secs(1);
        tokio::select! {
            biased;
            () = core.stop.taking.cancelled() => return,
            () = core.doubt.notified() => again = true,
            _ = reconnects.changed() => again = true,
            () = tokio::time::sleep(late), if again => again = false,
        }
        loop {
            match look(&core, &mut nodes).await {
                Ok(()) => break patience.reset(),
                Err(error) => {
                    let wait = patience.note("failed to look for lost deliveries", &error);
                    let stop = &core.stop.taking;
                    if stop
                        .run_until_cancelled(tokio::time::sleep(wait))
                        .await
                        .is_none()
                    {
                        return;
                    }
                }
            }
        }
    }
}

/// Which Redis process served each lane when we last looked.
type Nodes = HashMap<usize, Node>;

async fn look(core: &Arc<Core>, nodes: &mut Nodes) -> Result<(), BackendError> {
    watch_failover(core, nodes).await?;
    // Reads that wait are ended, so that this does not wait for them.
    core.wake_readers().await;
    let alone = core.deliveries_in_flight.write().await;
    for lane in 0..core.lanes.len() {
        if !core.lane(lane).is_broken() {
            look_at(core, lane).await?;
        }
    }
    drop(alone);
    Ok(())
}

async fn look_at(core: &Arc<Core>, lane: usize) -> Result<(), BackendError> {
    let place = core.lane(lane);
    let mut after = EntryId::default();
    loop {
        // Also what we held when Redis was asked: it may end before the answer is here.
        let held: HashSet<EntryId> = place.held.all().iter().map(|held| held.entry).collect();
        let page = match core
            .store
            .own_pending(&place.queue, &core.me, after, PAGE)
            .await
        {
            Ok(page) => page,
            Err(error) if !error.kind().is_transient() => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = last.entry;
        let full = page.len() >= PAGE;
        let unseen: Vec<Delivery> = page
            .into_iter()
            .filter(|delivery| !is_held(core, lane, delivery) && !held.contains(&delivery.entry))
            .collect();
        if !unseen.is_empty() {
            tracing::info!(queue = %place.queue, count = unseen.len(), "found deliveries again whose reply was lost");
            add(&core.counts.found_again, unseen.len());
            core.admit(lane, unseen, None, None);
        }
        if !full {
            return Ok(());
        }
    }
}

/// Whether a pending entry is one that we hold. A count that is ahead of ours is a refresh.
fn is_held(core: &Core, lane: usize, delivery: &Delivery) -> bool {
    match core.lane(lane).held.of_entry(delivery.entry).last() {
        Some(held) => {
            held.adopt_count(delivery.count);
            true
        }
        None => false,
    }
}

/// After a failover entry ids may have been given out again, so for one lease a completion must be
/// of an entry that is pending with us.
async fn watch_failover(core: &Core, nodes: &mut Nodes) -> Result<(), BackendError> {
    for lane in 0..core.lanes.len() {
        let place = core.lane(lane);
        let key = core.store.keys().queue(&place.queue).stream();
        let node = core.conn().node(&key).await?;
        match nodes.insert(lane, node.clone()) {
            Some(before) if before != node => {
                tracing::warn!(queue = %place.queue, "another redis process serves this queue now");
                place.be_strict_for(core.settings.lease);
            }
            _ => {}
        }
    }
    Ok(())
}

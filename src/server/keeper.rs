//! Keeps the leases of everything this server holds.
//!
//! Layer 4. It has an OS thread, a runtime and a connection of its own: a handler that blocks every
//! worker thread of the application, or a large reply on the command connection, starves nobody's
//! lease. It also brings home what the renewals answer: lost leases, cancels, the time of Redis.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::join_all;

use crate::error::{BackendError, BackendKind};
use crate::id::EntryId;
use crate::server::core::Core;
use crate::server::patience::Patience;
use crate::server::run_info::Held;
use crate::server::signal::StopReason;
use crate::store::conn::{Conn, Options as ConnOptions};
use crate::store::{RenewTimes, Renewed, Store};

/// Starts the keeper's thread. It ends when everything held has been answered.
pub(crate) fn spawn(core: Arc<Core>, options: ConnOptions) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("streamfleet-keeper".to_owned())
        .spawn(move || {
            // Fires also when this thread panics.
            let _ended = core.stop.kept.clone().drop_guard();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            match runtime {
                Ok(runtime) => runtime.block_on(keep(core, options)),
                Err(error) => tracing::error!(%error, "the keeper has no runtime"),
            }
        })
}

async fn keep(core: Arc<Core>, options: ConnOptions) {
    let stop = core.stop.keeping.clone();
    let mut patience = Patience::default();
    let conn = loop {
        match Conn::connect(&options).await {
            Ok(conn) => break conn,
            Err(error) => {
                let wait = patience.note("the keeper failed to connect", &error);
                if stop
                    .run_until_cancelled(tokio::time::sleep(wait))
                    .await
                    .is_none()
                {
                    return;
                }
            }
        }
    };
    let mut reconnects = conn.reconnects();
    let store = Store::new(conn.clone(), core.store.prefix().clone());
    while !stop.is_cancelled() {
        // Renewals that are late because Redis was away are made up for at once.
        reconnects.mark_unchanged();
        let wait = match beat(&core, &store, &mut patience).await {
            Ok(()) => core.settings.renew_every,
            Err(wait) => wait,
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            _ = reconnects.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
    conn.close().await;
}

/// Makes the server known in every queue, before it takes anything there: whoever dies within its
/// first moments is then looked after like any other.
pub(crate) async fn announce(core: &Core) {
    for lane in 0..core.lanes.len() {
        if let Err(error) = renew(core, &core.store, lane).await {
            tracing::debug!(queue = %core.lane(lane).queue, %error, "failed to announce the server; the keeper will do it");
        }
    }
}

/// One renewal of every lane. After an error it says how long to wait for the next.
async fn beat(core: &Core, store: &Store, patience: &mut Patience) -> Result<(), Duration> {
    let lanes = (0..core.lanes.len()).map(|lane| renew(core, store, lane));
    let mut result = Ok(());
    for renewed in join_all(lanes).await {
        if let Err(error) = renewed {
            let wait = patience.note("failed to renew leases", &error);
            // Often enough that a short outage costs no lease.
            result = Err(wait.min(core.settings.renew_every / 4));
        }
    }
    if result.is_ok() {
        patience.reset();
    }
    result
}

async fn renew(core: &Core, store: &Store, lane: usize) -> Result<(), BackendError> {
    let place = core.lane(lane);
    let all = place.held.all();
    let listed = newest_of_each(&all);
    let times = RenewTimes {
        interval: core.settings.renew_every,
        quiet: core.settings.quiet_gap,
        lease: core.settings.lease,
    };
    let renewed = store.renew(&place.queue, &core.me, &listed, &times).await;
    match renewed {
        Ok(renewed) => {
            take_home(core, lane, &renewed);
            Ok(())
        }
        // A key of one queue that holds another type must not keep the others from being renewed;
        // a group that is gone has nothing to renew, and the reader makes it again.
        Err(error) if matches!(error.kind(), BackendKind::WrongType | BackendKind::Group) => {
            tracing::debug!(queue = %place.queue, %error, "nothing to renew");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Of an entry that is held twice only the newest delivery can have the lease.
fn newest_of_each(all: &[Arc<Held>]) -> Vec<(EntryId, u64)> {
    let mut listed: Vec<(EntryId, u64)> = Vec::with_capacity(all.len());
    for held in all {
        match listed.last_mut() {
            Some(last) if last.0 == held.entry => last.1 = held.count(),
            _ => listed.push((held.entry, held.count())),
        }
    }
    listed
}

/// Passes on what a renewal answered.
fn take_home(core: &Core, lane: usize, renewed: &Renewed) {
    core.clock.set(renewed.now);
    let table = &core.lane(lane).held;
    for entry in &renewed.lost {
        for held in table.of_entry(*entry) {
            // What has its final answer on the way may well be gone already.
            if !held.is_ending() {
                core.lose(&held);
            }
        }
    }
    for (entry, count) in &renewed.moved {
        if let Some(held) = table.of_entry(*entry).last() {
            held.adopt_count(*count);
        }
    }
    for entry in &renewed.cancelled {
        if let Some(held) = table.of_entry(*entry).last() {
            held.signal.stop(StopReason::Cancelled);
        }
    }
    if !renewed.unlisted.is_empty() {
        // Deliveries that nobody here saw. The reconciliation looks again, when no reply is on the way.
        core.doubt.notify_one();
    }
    // An older run of an entry that came back to this very server lost its lease too.
    lose_outdated(core, lane);
}

fn lose_outdated(core: &Core, lane: usize) {
    let all = core.lane(lane).held.all();
    for pair in all.windows(2) {
        if pair[0].entry == pair[1].entry && !pair[0].is_ending() {
            core.lose(&pair[0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_delivery_of_an_entry_is_renewed() {
        let entry = |millis| EntryId {
            millis,
            sequence: 0,
        };
        let all = [
            Arc::new(Held::new(0, entry(1), 1)),
            Arc::new(Held::new(0, entry(2), 1)),
            Arc::new(Held::new(0, entry(2), 3)),
        ];
        assert_eq!(newest_of_each(&all), [(entry(1), 1), (entry(2), 3)]);
    }
}

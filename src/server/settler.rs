//! Writes successes: one script for what finished while the last one flew.
//!
//! Layer 4. One settler per queue, fed by the runs. A lone success is written at once, a flood of
//! them in batches; there is no timer. What is written is held, and so renewed, until Redis answered.
//! A second script is sent behind the first only when it is full: that hides the way there and back
//! under load, and costs Redis no smaller batches.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Fuse, FusedFuture, FutureExt};
use tokio::sync::mpsc;

use crate::error::{BackendError, BackendKind};
use crate::server::core::Core;
use crate::server::patience::Patience;
use crate::server::report::add;
use crate::server::run_info::Held;
use crate::store::settle::{SETTLE_MOST, page_len};
use crate::store::{Settled, Success};

/// How many successes may wait for a settler before their runs wait with them.
pub(crate) const SETTLE_BUFFER: usize = 1024;

/// A run that succeeded.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) held: Arc<Held>,
    pub(crate) success: Success,
}

/// Settles one lane until all runs have ended and everything is written.
pub(crate) async fn settle(core: Arc<Core>, lane: usize, mut done: mpsc::Receiver<Done>) {
    // The scripts under way. Each writes other entries, so their order does not matter.
    let mut first = pin!(Fuse::terminated());
    let mut second = pin!(Fuse::terminated());
    let mut patience = Patience::default();
    // One for all batches: to register a new one costs as much as to take a batch.
    let mut ends = pin!(core.stop.settling.cancelled());
    loop {
        let idle = first.is_terminated() && second.is_terminated();
        let room = first.is_terminated() || second.is_terminated();
        if idle || (room && done.len() >= SETTLE_MOST) {
            let batch = next_batch(&mut done, ends.as_mut()).await;
            // Only when nothing is under way: a second batch is taken only when it is there.
            if batch.is_empty() {
                return;
            }
            let flight = fly(&core, lane, batch, std::mem::take(&mut patience)).fuse();
            match first.is_terminated() {
                true => first.set(flight),
                false => second.set(flight),
            }
            continue;
        }
        patience = tokio::select! {
            rested = &mut first, if !first.is_terminated() => rested,
            rested = &mut second, if !second.is_terminated() => rested,
        };
    }
}

/// What waits, up to the limit of a script; at least one, unless all has ended.
async fn next_batch(done: &mut mpsc::Receiver<Done>, ends: impl Future<Output = ()>) -> Vec<Done> {
    let mut batch = Vec::new();
    tokio::select! {
        biased;
        _ = done.recv_many(&mut batch, SETTLE_MOST) => {}
        () = ends => {
            while batch.len() < SETTLE_MOST && let Ok(last) = done.try_recv() {
                batch.push(last);
            }
        }
    }
    batch
}

/// Writes a batch in as many scripts as its bytes need, one after the other.
async fn fly(core: &Core, lane: usize, mut batch: Vec<Done>, mut patience: Patience) -> Patience {
    while !batch.is_empty() {
        let rest = batch.split_off(page_len(batch.iter().map(|done| &done.success)));
        write(core, lane, &batch, &mut patience).await;
        batch = rest;
    }
    patience
}

/// Writes one batch, however long Redis is away: the entries are ours until it answered.
async fn write(core: &Core, lane: usize, batch: &[Done], patience: &mut Patience) {
    let place = core.lane(lane);
    loop {
        let successes = batch.iter().map(|done| &done.success);
        match core
            .store
            .settle(&place.queue, &core.me, successes, place.is_strict())
            .await
        {
            Ok(settled) => {
                patience.reset();
                // Gone means that another run's completion, a cancel or a flush was first. Redis has
                // that outcome, so there is nothing to do about ours.
                let won = settled
                    .iter()
                    .filter(|settled| **settled == Settled::Won)
                    .count();
                add(&core.counts.succeeded, won);
                place.held.remove_all(batch.iter().map(|done| &*done.held));
                return;
            }
            Err(error) => {
                let wait = patience.note("failed to settle finished tasks", &error);
                recover(core, lane, &error).await;
                tokio::time::sleep(wait).await;
            }
        }
    }
}

/// A group that is gone took the pending entries with it; made again, the settle finds them gone.
async fn recover(core: &Core, lane: usize, error: &BackendError) {
    if error.kind() == BackendKind::Group
        && let Err(error) = core.store.ensure(&core.lane(lane).queue).await
    {
        tracing::debug!(%error, "failed to make the group again");
    }
}

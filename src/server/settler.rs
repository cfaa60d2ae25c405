//! Writes successes: one script for what finished while the last one flew.
//!
//! Layer 4. One settler per queue, fed by the runs. A lone success is written at once, a flood of
//! them in batches; there is no timer. What is written is held, and so renewed, until Redis answered.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::error::{BackendError, BackendKind};
use crate::server::core::Core;
use crate::server::patience::Patience;
use crate::server::report::add;
use crate::server::run_info::Held;
use crate::store::{Settled, Success};

/// The most successes of one script.
pub(crate) const SETTLE_MOST: usize = 100;
/// The most bytes of one script, unless a single success is larger.
const SETTLE_MOST_BYTES: usize = 256 * 1024;
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
    let mut batch = Vec::with_capacity(SETTLE_MOST);
    let mut patience = Patience::default();
    loop {
        let got = tokio::select! {
            biased;
            got = done.recv_many(&mut batch, SETTLE_MOST) => got,
            () = core.stop.settling.cancelled() => {
                while batch.len() < SETTLE_MOST && let Ok(last) = done.try_recv() {
                    batch.push(last);
                }
                batch.len()
            }
        };
        if got == 0 {
            return;
        }
        while !batch.is_empty() {
            let rest = batch.split_off(fitting(&batch));
            write(&core, lane, &batch, &mut patience).await;
            batch = rest;
        }
    }
}

/// How many of the first successes fit into one script.
fn fitting(batch: &[Done]) -> usize {
    let mut bytes = 0;
    batch
        .iter()
        .position(|done| {
            bytes += done.success.notice.len();
            bytes > SETTLE_MOST_BYTES
        })
        .map_or(batch.len(), |first_too_much| first_too_much.max(1))
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

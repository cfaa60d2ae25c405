//! Looks up whoever may have missed an outcome, so that no waiter hangs.
//!
//! Layer 4, one loop for the client. Reasons: a connection was made anew, a heartbeat answered that
//! the client was swept or the queue is a new one, an outcome could not be read, or silence. A task
//! that still exists is waited for; one that is gone, after the receiver was read past all it held
//! at that moment, is `Lost`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::lane::Lane;
use super::shared::{Shared, retry_pause};
use super::waiter::{Outcome, Waiter};
use crate::envelope::{Ending, Notice};
use crate::error::BackendError;
use crate::id::EntryId;
use crate::state::TaskState;
use crate::store::{Found, Wanted};

/// The most waiters of one look-up.
const PAGE: usize = 100;
/// How long the receiver loop has to catch up before the look-up is done again.
const CATCH_UP: Duration = Duration::from_secs(5);
/// The longest and shortest time between two checks for silence.
const LONGEST_TICK: Duration = Duration::from_secs(5);
const SHORTEST_TICK: Duration = Duration::from_millis(50);

pub(super) async fn run(shared: Arc<Shared>, gap_seen: Arc<Notify>) {
    let patience = shared.settings.waiter_silence;
    let tick = (patience / 8).clamp(SHORTEST_TICK, LONGEST_TICK);
    let mut reconnects = shared.store.conn().reconnects();
    let mut failed = 0;
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = gap_seen.notified() => {}
            () = tokio::time::sleep(tick) => {}
            changed = reconnects.changed() => {
                if changed.is_err() {
                    return;
                }
                shared.lanes().iter().for_each(|lane| lane.mark_gap());
            }
        }
        for lane in shared.lanes() {
            let now = Instant::now();
            if lane.waiting() == 0 || !(lane.take_gap() || lane.is_overdue(now, patience)) {
                continue;
            }
            lane.note_looked(now);
            match look(&shared, &lane).await {
                Ok(true) => failed = 0,
                // The receiver has not caught up: look again.
                Ok(false) => lane.mark_gap(),
                Err(error) => {
                    failed += 1;
                    shared.count_error("look-up of awaited tasks", &lane.queue, &error, failed);
                    lane.mark_gap();
                    if !shared.pause(retry_pause(failed)).await {
                        return;
                    }
                }
            }
        }
    }
}

/// Looks up all waiters of a queue. `false` if some verdict has to wait.
async fn look(shared: &Shared, lane: &Lane) -> Result<bool, BackendError> {
    let mut settled = true;
    for waiters in lane.outstanding().chunks(PAGE) {
        let wanted: Vec<Wanted> = waiters
            .iter()
            .map(|waiter| Wanted {
                id: waiter.id.clone(),
                entry: waiter.stored().flatten(),
                deadline: waiter.deadline,
            })
            .collect();
        let client = lane.client();
        let read_before = lane.read_to();
        let seen = shared
            .store
            .look_up(&lane.queue, Some(&client), &wanted)
            .await?;
        lane.note_epoch(&seen.epoch);
        if seen.receiver_last < read_before {
            // Ids below what was read: another receiver than the one that was read.
            lane.rewind();
        }
        let verdicts: Vec<(&Arc<Waiter>, Outcome)> = waiters
            .iter()
            .zip(seen.found)
            .filter_map(|(waiter, found)| Some((waiter, verdict(found)?)))
            .collect();
        if verdicts.is_empty() {
            continue;
        }
        // The notice itself is better than what a look-up knows, and it may be on its way.
        if !caught_up(shared, lane, seen.receiver_last).await {
            settled = false;
            continue;
        }
        for (waiter, outcome) in verdicts {
            if matches!(outcome, Outcome::Lost) && waiter.outcome().is_none() {
                tracing::warn!(queue = %lane.queue, task = %waiter.id, "the outcome of a task was lost");
            }
            lane.end(&waiter.id, outcome);
        }
    }
    Ok(settled)
}

/// What a look-up says about a waiter; none if its task still exists.
fn verdict(found: Found) -> Option<Outcome> {
    match found {
        Found::Gone => Some(Outcome::Lost),
        Found::At {
            state: TaskState::Archived,
            notice,
            error,
            ..
        } => {
            let notice = notice.and_then(|notice| Notice::decode(&notice).ok());
            // A record that somebody else wrote tells a text at most.
            let text = error.map(|(_, text)| text).unwrap_or_default();
            let ending = notice.map_or(Ending::Undecodable(text), |notice| notice.ending);
            Some(Outcome::Ended(ending))
        }
        Found::At { .. } => None,
    }
}

async fn caught_up(shared: &Shared, lane: &Lane, last: EntryId) -> bool {
    let mut progress = lane.watch_progress();
    // Somebody may have trimmed the receiver: then `last` is never read, but a read finds nothing.
    // One such read may have ended before the look-up, a second one cannot.
    let empty_reads = progress.borrow().empty_reads + 2;
    let reached = progress.wait_for(|now| now.last >= last || now.empty_reads >= empty_reads);
    tokio::select! {
        () = shared.stop.cancelled() => false,
        reached = tokio::time::timeout(CATCH_UP, reached) => matches!(reached, Ok(Ok(_))),
    }
}

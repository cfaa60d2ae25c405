//! The fenced calls of a held delivery, each repeated until Redis answered.
//!
//! Layer 4. All of them are refused when the delivery is not ours any more; then nothing was
//! written, and the run is told that it lost its lease. Called by `run` and `conclude`.
//!
//! Boxed, as is `conclude::end`: the future of every run would hold the largest of them.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::envelope::Ending;
use crate::error::{BackendError, BackendKind};
use crate::server::core::Core;
use crate::server::patience::Patience;
use crate::server::report::add;
use crate::server::run_info::Held;
use crate::server::subject::Subject;
use crate::store::{Fail, Failed, Parking, Verdict};

/// What became of a verdict.
pub(crate) enum Wrote {
    Done,
    /// A cancel came first; the task ended by it.
    Cancelled,
    /// The delivery is not ours any more.
    Refused,
    /// The server is gone; the lease ends by itself.
    GivenUp,
}

/// Sends the verdict until it is answered. A count that moved while the entry stayed ours is taken
/// over; a refusal after a lost reply means that the lost call was the one that did it.
pub(crate) async fn write(
    core: &Core,
    held: &Held,
    subject: &Subject,
    envelope: &Bytes,
    verdict: &Verdict<'_>,
) -> Wrote {
    let cancelled_notice = subject.notice(Ending::Cancelled);
    let mut patience = Patience::default();
    let mut maybe_done = false;
    loop {
        let lease = core.lease(held);
        let fail = Fail {
            lease: &lease,
            task: &subject.id,
            name: &subject.name,
            client: subject.client.as_ref(),
            envelope,
            verdict,
            cancelled_notice: &cancelled_notice,
            archive_most: core.settings.archive_max,
            archive_keep: core.settings.archive_keep,
        };
        let error = match core.store.fail(&fail, &core.me).await {
            Ok(Failed::Done) => return Wrote::Done,
            Ok(Failed::Cancelled) => return Wrote::Cancelled,
            Ok(Failed::Refused) => match still_ours(core, held, lease.count).await {
                Ok(true) => continue,
                Ok(false) if maybe_done => return Wrote::Done,
                Ok(false) => return Wrote::Refused,
                Err(error) => error,
            },
            Err(error) => {
                maybe_done |= error.kind() == BackendKind::Ambiguous;
                error
            }
        };
        if !back_off(
            core,
            held,
            &error,
            &mut patience,
            "failed to record how a task ended",
        )
        .await
        {
            return Wrote::GivenUp;
        }
    }
}

/// Whether an entry that was refused under `count` is still pending with us, under another count;
/// then that is taken over. Not if this process has a newer delivery of it: then ours is stale.
async fn still_ours(core: &Core, held: &Held, count: u64) -> Result<bool, BackendError> {
    if held.count() != count {
        return Ok(true);
    }
    let place = core.lane(held.lane);
    let newest = place
        .held
        .of_entry(held.entry)
        .last()
        .map_or(0, |newest| newest.delivered);
    if newest > held.delivered {
        return Ok(false);
    }
    let pending = core
        .store
        .own_pending_count(&place.queue, &core.me, held.entry)
        .await?;
    match pending {
        Some(moved) if moved != count => {
            held.adopt_count(moved);
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Hands a delivery back that was not started.
pub(crate) fn release<'a>(core: &'a Core, held: &'a Held, begun: bool) -> BoxFuture<'a, ()> {
    async move {
        hand_back(core, held, begun).await;
        add(&core.counts.released, 1);
    }
    .boxed()
}

/// Hands a delivery back: to be run elsewhere, without counting an attempt.
pub(crate) async fn hand_back(core: &Core, held: &Held, begun: bool) {
    held.start_ending();
    let place = core.lane(held.lane);
    let mut patience = Patience::default();
    loop {
        let handed = [(held.entry, held.count(), begun)];
        match core.store.release(&place.queue, &core.me, &handed).await {
            Ok(_) => break,
            Err(error) => {
                if !back_off(
                    core,
                    held,
                    &error,
                    &mut patience,
                    "failed to hand a task back",
                )
                .await
                {
                    break;
                }
            }
        }
    }
    place.held.remove(held);
}

/// Counts a suspect before it starts. `None` when it is not ours any more.
pub(crate) async fn begin(core: &Core, held: &Held) -> Option<u32> {
    let mut patience = Patience::default();
    loop {
        let lease = core.lease(held);
        match core.store.begin(&lease, &core.me).await {
            Ok(Some(crashes)) => return Some(crashes),
            Ok(None) => {
                core.lane(held.lane).held.remove(held);
                core.lose(held);
                return None;
            }
            Err(error) => {
                if !back_off(core, held, &error, &mut patience, "failed to begin a task").await {
                    core.lane(held.lane).held.remove(held);
                    return None;
                }
            }
        }
    }
}

/// Puts a task aside for a server that knows its name or its version.
pub(crate) fn park<'a>(
    core: &'a Core,
    held: &'a Held,
    subject: &'a Subject,
    version: Option<u8>,
) -> BoxFuture<'a, ()> {
    async move {
        held.start_ending();
        let place = core.lane(held.lane);
        let cancelled_notice = subject.notice(Ending::Cancelled);
        let mut patience = Patience::default();
        loop {
            let lease = core.lease(held);
            let parking = Parking {
                lease: &lease,
                task: &subject.id,
                name: &subject.name,
                version,
                client: subject.client.as_ref(),
                envelope: &subject.raw,
                cancelled_notice: &cancelled_notice,
            };
            match core.store.park(&parking, &core.me).await {
                Ok(_) => break,
                Err(error) => {
                    if !back_off(core, held, &error, &mut patience, "failed to park a task").await {
                        break;
                    }
                }
            }
        }
        tracing::info!(queue = %place.queue, task = %subject.id, name = %subject.name, ?version, "parked a task this server does not know");
        place.held.remove(held);
    }
    .boxed()
}

/// Waits after an error, and makes a group again that is gone. `false` when the server is gone and
/// there is no sense in going on.
async fn back_off(
    core: &Core,
    held: &Held,
    error: &BackendError,
    patience: &mut Patience,
    what: &'static str,
) -> bool {
    let wait: Duration = patience.note(what, error);
    if error.kind() == BackendKind::Group {
        // The pending entries went with the group, so the next call is refused.
        let _ = core.store.ensure(&core.lane(held.lane).queue).await;
    }
    core.stop
        .keeping
        .run_until_cancelled(tokio::time::sleep(wait))
        .await
        .is_some()
}

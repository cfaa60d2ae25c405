//! One delivery, from its slot to the final answer.
//!
//! Layer 4. Each delivery has a task of its own, so a handler that panics, hangs or takes its time
//! is alone with that. Runs are started by `Core::admit`; what a run's end leads to is decided by
//! `lifecycle` and written by `conclude`.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::envelope::Ending;
use crate::envelope::{Envelope, EnvelopeError, Limits};
use crate::lifecycle;
use crate::options::{DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT};
use crate::server::call::{Call, Cut};
use crate::server::context::Run;
use crate::server::core::{Core, Slot, Turn};
use crate::server::run_info::{Held, RunFacts};
use crate::server::subject::Subject;
use crate::server::{conclude, fenced};
use crate::store::Delivery;

/// Runs one delivery. The slot is free again when nothing of the handler runs any more.
pub(crate) async fn run(
    core: Arc<Core>,
    held: Arc<Held>,
    delivery: Delivery,
    turn: Turn,
    suspect: Option<OwnedSemaphorePermit>,
) {
    match turn {
        Turn::Now(slot) if !delivery.suspect && may_start(&core, &held) => {
            start(&core, &held, &delivery, slot, false).await;
        }
        turn => Box::pin(wait_and_run(&core, &held, &delivery, turn, suspect)).await,
    }
}

/// Neither the stop nor an end of this delivery came first.
fn may_start(core: &Core, held: &Held) -> bool {
    !core.is_stopping() && held.signal.reason().is_none()
}

/// The other ways: no slot yet, a suspect, or something that will not be started any more.
async fn wait_and_run(
    core: &Arc<Core>,
    held: &Arc<Held>,
    delivery: &Delivery,
    turn: Turn,
    suspect: Option<OwnedSemaphorePermit>,
) {
    let lane = match suspect {
        // One that was found again, or handed back by another server, comes without its lane.
        None if delivery.suspect => Arc::clone(&core.suspect_lane).acquire_owned().await.ok(),
        lane => lane,
    };
    let slot = match turn {
        Turn::Now(slot) => Some(slot),
        Turn::InLine(place) => place.slot().await,
        Turn::Later => core.slots(1).await,
    };
    match slot {
        Some(slot) if may_start(core, held) => {
            if delivery.suspect {
                run_suspect(core, held, delivery, slot).await;
            } else {
                start(core, held, delivery, slot, false).await;
            }
        }
        _ if held.signal.reason().is_some() => conclude::unstarted(core, held, delivery).await,
        _ => fenced::release(core, held, false).await,
    }
    drop(lane);
}

/// A task that was running when a process died, more than once: it is counted before it starts, and
/// it ends here, undecoded, when it took down too many.
async fn run_suspect(core: &Arc<Core>, held: &Arc<Held>, delivery: &Delivery, slot: Slot) {
    if delivery.crashes >= core.settings.max_crashes {
        let crashes = delivery.crashes;
        let poison = lifecycle::Run::Poison;
        conclude::end(
            core,
            held,
            &Subject::of(delivery),
            &poison,
            Ending::Poison { crashes },
        )
        .await;
    } else if let Some(begun) = fenced::begin(core, held).await {
        tracing::warn!(entry = %held.entry, crashes = begun, "running a task that was there when a process died");
        start(core, held, delivery, slot, true).await;
    }
}

/// Runs the handler, or ends what has none.
async fn start(core: &Arc<Core>, held: &Arc<Held>, delivery: &Delivery, slot: Slot, begun: bool) {
    match prepare(core, held, delivery) {
        Ok(Ready { subject, cut, call }) => {
            let ran = call.run(held, &cut, core.settings.handler_grace).await;
            conclude::conclude(core, held, &subject, ran, &cut, begun, slot).await;
        }
        Err(wrong) => Box::pin(wrong.end(core, held, &Subject::of(delivery))).await,
    }
}

/// What a handler is called with, and what is needed when it has ended.
struct Ready<'a> {
    subject: Subject,
    cut: Cut,
    call: Call<'a>,
}

/// Why no handler is called.
enum Unrunnable {
    /// No handler has this name, or, with a version, nobody here can read the envelope.
    Unknown(Option<u8>),
    Undecodable(String),
    Expired,
}

impl Unrunnable {
    async fn end(self, core: &Core, held: &Held, subject: &Subject) {
        match self {
            Self::Unknown(version) => fenced::park(core, held, subject, version).await,
            Self::Undecodable(wrong) => {
                let run = lifecycle::Run::Undecodable;
                conclude::end(core, held, subject, &run, Ending::Undecodable(wrong)).await;
            }
            Self::Expired => {
                let run = lifecycle::Run::Expired;
                conclude::end(core, held, subject, &run, Ending::Expired).await;
            }
        }
    }
}

/// Reads the envelope and finds the handler.
fn prepare<'a>(
    core: &'a Core,
    held: &Arc<Held>,
    delivery: &Delivery,
) -> Result<Ready<'a>, Unrunnable> {
    let limits = Limits {
        max_bytes: core.settings.max_payload,
    };
    let envelope = Envelope::decode(&delivery.envelope, &limits).map_err(|wrong| match wrong {
        EnvelopeError::UnsupportedVersion(version) => Unrunnable::Unknown(Some(version)),
        wrong => Unrunnable::Undecodable(wrong.to_string()),
    })?;
    let handler = core
        .handlers
        .get(&*envelope.name)
        .ok_or(Unrunnable::Unknown(None))?;
    let now = core.clock.now();
    let deadline = envelope.parts.deadline;
    if deadline.is_some_and(|deadline| deadline <= now) {
        return Err(Unrunnable::Expired);
    }
    let timeout = envelope.parts.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let cut = Cut::of(timeout, deadline, now);
    let subject = Subject {
        id: envelope.id.clone(),
        name: envelope.name,
        client: envelope.client,
        has_record: delivery.has_record,
        raw: delivery.envelope.clone(),
    };
    let facts = RunFacts {
        id: envelope.id,
        failed: envelope.attempt,
        max_retries: envelope.parts.max_retries.unwrap_or(DEFAULT_MAX_RETRIES),
        enqueued_at: envelope.enqueued_at,
        cut_off: cut.at,
        headers: envelope.parts.headers,
    };
    let run = Run {
        queue: delivery.queue.clone(),
        held: Arc::clone(held),
        facts,
        client: Some(core.client.clone()),
    };
    let call = Call::new(&**handler, Arc::new(run), envelope.payload, envelope.codec);
    Ok(Ready { subject, cut, call })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of what a function returns, without calling it.
    fn size_of_return<A, B, C, D, E, F>(_: impl FnOnce(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_future_of_a_run_is_small() {
        // Each delivery allocates one. At 9.5 KB, with rare ends inlined, it cost 4 of 28 µs per
        // task; up to 1 KB glibc keeps freed ones at hand.
        let bytes = size_of_return(run);
        assert!(bytes <= 1_024, "{bytes} bytes");
    }
}

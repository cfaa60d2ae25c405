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
use crate::server::call::{Cut, Ran, call};
use crate::server::context::Run;
use crate::server::core::{Core, Slot};
use crate::server::run_info::{Held, RunFacts};
use crate::server::subject::Subject;
use crate::server::{conclude, fenced};
use crate::store::Delivery;

/// Runs one delivery. The slot is free again when nothing of the handler runs any more.
pub(crate) async fn run(
    core: Arc<Core>,
    held: Arc<Held>,
    delivery: Delivery,
    slot: Option<Slot>,
    suspect: Option<OwnedSemaphorePermit>,
) {
    let lane = match suspect {
        // One that was found again, or handed back by another server, comes without its lane.
        None if delivery.suspect => Arc::clone(&core.suspect_lane).acquire_owned().await.ok(),
        lane => lane,
    };
    let slot = match slot {
        Some(slot) => Some(slot),
        None => core.slots(1).await,
    };
    // While this waited, the stop may have come, or the delivery may have been lost or cancelled.
    if slot.is_none() || core.is_stopping() {
        fenced::release(&core, &held, false).await;
    } else if held.signal.reason().is_some() {
        conclude::unstarted(&core, &held, &delivery).await;
    } else if delivery.suspect {
        run_suspect(&core, &held, delivery, slot).await;
    } else {
        start(&core, &held, delivery, slot, false).await;
    }
    drop(lane);
}

/// A task that was running when a process died, more than once: it is counted before it starts, and
/// it ends here, undecoded, when it took down too many.
async fn run_suspect(core: &Arc<Core>, held: &Arc<Held>, delivery: Delivery, slot: Option<Slot>) {
    if delivery.crashes >= core.settings.max_crashes {
        let subject = Subject::undecoded(&delivery);
        let crashes = delivery.crashes;
        conclude::end(
            core,
            held,
            &subject,
            &lifecycle::Run::Poison,
            Ending::Poison { crashes },
        )
        .await;
    } else if let Some(begun) = fenced::begin(core, held).await {
        tracing::warn!(entry = %held.entry, crashes = begun, "running a task that was there when a process died");
        start(core, held, delivery, slot, true).await;
    }
}

/// Reads the envelope and runs the handler, or finds out why it cannot.
async fn start(
    core: &Arc<Core>,
    held: &Arc<Held>,
    delivery: Delivery,
    slot: Option<Slot>,
    begun: bool,
) {
    let limits = Limits {
        max_bytes: core.settings.max_payload,
    };
    let envelope = match Envelope::decode(&delivery.envelope, &limits) {
        Ok(envelope) => envelope,
        Err(EnvelopeError::UnsupportedVersion(version)) => {
            let subject = Subject::undecoded(&delivery);
            return fenced::park(core, held, &subject, Some(version)).await;
        }
        Err(wrong) => {
            let subject = Subject::undecoded(&delivery);
            let ending = Ending::Undecodable(wrong.to_string());
            return conclude::end(core, held, &subject, &lifecycle::Run::Undecodable, ending).await;
        }
    };
    let Some(handler) = core.handlers.get(&*envelope.name) else {
        let subject = Subject::of(envelope, &delivery);
        return fenced::park(core, held, &subject, None).await;
    };
    let now = core.clock.now();
    let deadline = envelope.parts.deadline;
    if deadline.is_some_and(|deadline| deadline <= now) {
        let subject = Subject::of(envelope, &delivery);
        return conclude::end(
            core,
            held,
            &subject,
            &lifecycle::Run::Expired,
            Ending::Expired,
        )
        .await;
    }
    let cut = Cut::of(
        envelope.parts.timeout.unwrap_or(DEFAULT_TIMEOUT),
        deadline,
        now,
    );
    let run = Run {
        queue: delivery.queue.clone(),
        held: Arc::clone(held),
        facts: facts(&envelope, &cut),
        client: Some(core.client.clone()),
    };
    let payload = envelope.payload.clone();
    let codec = envelope.codec;
    let ran = call(
        &**handler,
        Arc::new(run),
        payload,
        codec,
        &cut,
        core.settings.handler_grace,
    )
    .await;
    if matches!(ran, Ran::Dropped(_)) {
        tracing::debug!(task = %envelope.id, "a handler did not stop when told and was dropped");
    }
    let subject = Subject::of(envelope, &delivery);
    conclude::conclude(core, held, &subject, ran, &cut, begun, slot).await;
}

fn facts(envelope: &Envelope, cut: &Cut) -> RunFacts {
    RunFacts {
        id: envelope.id.clone(),
        failed: envelope.attempt,
        max_retries: envelope.parts.max_retries.unwrap_or(DEFAULT_MAX_RETRIES),
        enqueued_at: envelope.enqueued_at,
        cut_off: cut.at,
        headers: envelope.parts.headers.clone(),
    }
}

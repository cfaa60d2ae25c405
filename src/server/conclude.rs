//! Writes how a run ended, and goes on until Redis answered.
//!
//! Layer 4. What an end leads to is decided by `lifecycle`; here it becomes one call of the store.
//! Successes go to the settler, which writes them in batches. Everything else is strictly fenced:
//! when another server owns the delivery by now, nothing is written.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::envelope::{Ending, Envelope, Head, Notice};
use crate::error::{BackendError, BackendKind};
use crate::id::{ClientId, TaskId};
use crate::lifecycle::{self, Next, decide};
use crate::options::DEFAULT_MAX_RETRIES;
use crate::server::call::{Cut, Ran};
use crate::server::core::{Core, Slot};
use crate::server::handler::HandlerEnd;
use crate::server::hooks::ArchivedTask;
use crate::server::patience::Patience;
use crate::server::report::add;
use crate::server::run_info::Held;
use crate::server::settler::Done;
use crate::server::signal::StopReason;
use crate::store::{Delivery, Fail, Failed, Parking, Success, Verdict};

/// The task that a run was about, as far as it could be read.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) id: TaskId,
    pub(crate) name: Arc<str>,
    pub(crate) client: Option<ClientId>,
    has_record: bool,
    /// The envelope as it is stored.
    raw: Bytes,
    /// The envelope, if this version can read it.
    envelope: Option<Envelope>,
}

impl Subject {
    /// A task that was read.
    pub(crate) fn of(envelope: Envelope, delivery: &Delivery) -> Self {
        Self {
            id: envelope.id.clone(),
            name: Arc::clone(&envelope.name),
            client: envelope.client.clone(),
            has_record: delivery.has_record,
            raw: delivery.envelope.clone(),
            envelope: Some(envelope),
        }
    }

    /// A task that was not, or could not be, read. Its head can be read in every version; if not
    /// even that, it is named after its entry, so that it can be found.
    pub(crate) fn undecoded(delivery: &Delivery) -> Self {
        let (id, name, client) = match Head::decode(&delivery.envelope) {
            Ok(head) => (head.id, head.name, head.client),
            Err(_) => (
                TaskId::of_entry(delivery.entry),
                Arc::from("malformed"),
                None,
            ),
        };
        Self {
            id,
            name,
            client,
            has_record: delivery.has_record,
            raw: delivery.envelope.clone(),
            envelope: None,
        }
    }

    fn notice(&self, ending: Ending) -> Bytes {
        Notice {
            task: self.id.clone(),
            ending,
        }
        .encode()
    }
}

/// Ends a run by what came out of the handler. The slot is kept until Redis has a failure, and given
/// back as soon as a success waits for its settler.
pub(crate) async fn conclude(
    core: &Arc<Core>,
    held: &Arc<Held>,
    subject: &Subject,
    ran: Ran,
    cut: &Cut,
    begun: bool,
    slot: Option<Slot>,
) {
    let told = held.signal.reason();
    let limit = core.settings.max_payload;
    let (run, ending) = match ran {
        // A success counts whatever the run was told meanwhile: the work is done, and the first
        // completion of an entry wins.
        Ran::Returned(HandlerEnd::Succeeded { codec, output }) => {
            if output.len() > limit {
                let bytes = output.len();
                (
                    lifecycle::Run::OutputTooLarge,
                    Ending::OutputTooLarge { bytes, limit },
                )
            } else {
                return succeed(
                    core,
                    held,
                    subject,
                    Ending::Succeeded { codec, output },
                    slot,
                )
                .await;
            }
        }
        Ran::Returned(HandlerEnd::Undecodable(wrong)) => {
            (lifecycle::Run::Undecodable, Ending::Undecodable(wrong))
        }
        Ran::Returned(HandlerEnd::OutputUnencodable(wrong)) => (
            lifecycle::Run::Undecodable,
            Ending::Undecodable(format!("output: {wrong}")),
        ),
        // Whoever was told to stop and then fails did not fail by itself.
        Ran::Returned(HandlerEnd::Failed {
            codec,
            error,
            text,
            retry,
        }) => match told {
            Some(reason) => return stopped(core, held, subject, reason, cut, begun).await,
            None => (
                lifecycle::Run::Failed { retry },
                Ending::Failed { codec, error, text },
            ),
        },
        Ran::Panicked(text) => match told {
            Some(reason) => return stopped(core, held, subject, reason, cut, begun).await,
            None => (lifecycle::Run::Panicked, Ending::Panicked(text)),
        },
        Ran::Dropped(reason) => return stopped(core, held, subject, reason, cut, begun).await,
    };
    end(core, held, subject, &run, ending).await;
    drop(slot);
}

/// Ends a run that was told to stop.
async fn stopped(
    core: &Core,
    held: &Held,
    subject: &Subject,
    reason: StopReason,
    cut: &Cut,
    begun: bool,
) {
    match reason {
        StopReason::Cancelled => {
            end(
                core,
                held,
                subject,
                &lifecycle::Run::Cancelled,
                Ending::Cancelled,
            )
            .await
        }
        StopReason::Expired => {
            end(
                core,
                held,
                subject,
                &lifecycle::Run::Expired,
                Ending::Expired,
            )
            .await
        }
        StopReason::TimedOut => {
            end(
                core,
                held,
                subject,
                &lifecycle::Run::TimedOut,
                Ending::TimedOut(cut.timeout),
            )
            .await;
        }
        StopReason::Shutdown => {
            hand_back(core, held, begun).await;
            add(&core.counts.interrupted, 1);
        }
        // Another server has the task; whatever was sent now would be refused.
        StopReason::LeaseLost => core.lane(held.lane).held.remove(held),
    }
}

/// Ends a delivery whose run was told to stop before it started.
pub(crate) async fn unstarted(core: &Core, held: &Held, delivery: &Delivery) {
    match held.signal.reason() {
        Some(StopReason::LeaseLost) => core.lane(held.lane).held.remove(held),
        Some(StopReason::Cancelled) => {
            let subject = Subject::undecoded(delivery);
            end(
                core,
                held,
                &subject,
                &lifecycle::Run::Cancelled,
                Ending::Cancelled,
            )
            .await;
        }
        _ => release(core, held, false).await,
    }
}

/// Hands a success to the settler.
async fn succeed(
    core: &Core,
    held: &Arc<Held>,
    subject: &Subject,
    ending: Ending,
    slot: Option<Slot>,
) {
    held.start_ending();
    let notice = match &subject.client {
        Some(_) => subject.notice(ending),
        None => Bytes::new(),
    };
    let done = Done {
        held: Arc::clone(held),
        success: Success {
            entry: held.entry,
            record: subject.has_record.then(|| subject.id.clone()),
            client: subject.client.clone(),
            notice,
        },
    };
    // The settler ends only after the last run, so the channel is open as long as there is one.
    if core.lane(held.lane).done.send(done).await.is_err() {
        tracing::error!(task = %subject.id, "a finished task found no settler; its lease will end");
    }
    drop(slot);
}

/// Ends a delivery otherwise than by success: retried, archived, cancelled, expired or discarded.
pub(crate) async fn end(
    core: &Core,
    held: &Held,
    subject: &Subject,
    run: &lifecycle::Run,
    ending: Ending,
) {
    held.start_ending();
    let parts = subject.envelope.as_ref().map(|envelope| &envelope.parts);
    let attempt = subject
        .envelope
        .as_ref()
        .map_or(0, |envelope| envelope.attempt);
    let next = decide(
        run,
        attempt,
        parts
            .and_then(|parts| parts.max_retries)
            .unwrap_or(DEFAULT_MAX_RETRIES),
        parts.and_then(|parts| parts.backoff).unwrap_or_default(),
        parts.and_then(|parts| parts.deadline),
        core.clock.now(),
        fastrand::f64(),
    );
    let error = ending.text();
    let reason = ending.word();
    let envelope = match (&next, &subject.envelope) {
        (Next::Retry { attempt, .. }, Some(envelope)) => envelope.with_attempt(*attempt),
        _ => subject.raw.clone(),
    };
    let verdict = match next {
        Next::Retry { delay, .. } => Verdict::Retry {
            delay,
            reason,
            error: &error,
        },
        Next::Snooze { delay } => Verdict::Snooze { delay },
        Next::Archive => Verdict::Archive {
            reason,
            error: &error,
            notice: subject.notice(ending),
        },
        Next::Cancel => Verdict::Cancel {
            notice: subject.notice(Ending::Cancelled),
        },
        Next::Expire => Verdict::Expire {
            notice: subject.notice(Ending::Expired),
        },
        Next::Discard => Verdict::Discard {
            notice: subject.notice(Ending::Discarded(error.clone())),
        },
        // `decide` answers these two only for runs that do not come here.
        Next::Settle | Next::Release => return release(core, held, false).await,
    };
    let wrote = write(core, held, subject, &envelope, &verdict).await;
    core.lane(held.lane).held.remove(held);
    match (wrote, &verdict) {
        (Wrote::Refused, _) => core.lose(held),
        (Wrote::GivenUp, _) => {}
        (Wrote::Cancelled, _) => add(&core.counts.ended, 1),
        (Wrote::Done, Verdict::Retry { .. }) => add(&core.counts.retried, 1),
        (Wrote::Done, Verdict::Snooze { .. }) => add(&core.counts.snoozed, 1),
        (Wrote::Done, Verdict::Archive { .. }) => core.note_archived(&ArchivedTask {
            queue: core.lane(held.lane).queue.clone(),
            id: subject.id.clone(),
            name: subject.name.to_string(),
            reason,
            error,
        }),
        (Wrote::Done, _) => add(&core.counts.ended, 1),
    }
}

enum Wrote {
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
async fn write(
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
pub(crate) async fn release(core: &Core, held: &Held, begun: bool) {
    hand_back(core, held, begun).await;
    add(&core.counts.released, 1);
}

/// Hands a delivery back: to be run elsewhere, without counting an attempt.
async fn hand_back(core: &Core, held: &Held, begun: bool) {
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
pub(crate) async fn park(core: &Core, held: &Held, subject: &Subject, version: Option<u8>) {
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

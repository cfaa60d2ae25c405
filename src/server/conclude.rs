//! From how a run ended to what is written about it.
//!
//! Layer 4. What an end leads to is decided by `lifecycle`. Successes go to the settler, which
//! writes them in batches; everything else is a call of `fenced`, one for each.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc::error::TrySendError;

use crate::envelope::Ending;
use crate::lifecycle::{self, Next, decide};
use crate::options::DEFAULT_MAX_RETRIES;
use crate::server::call::{Cut, Ran};
use crate::server::core::{Core, Slot};
use crate::server::fenced::{Wrote, hand_back, release, write};
use crate::server::handler::HandlerEnd;
use crate::server::hooks::ArchivedTask;
use crate::server::report::add;
use crate::server::run_info::Held;
use crate::server::settler::Done;
use crate::server::signal::StopReason;
use crate::server::subject::Subject;
use crate::store::{Delivery, Success, Verdict};

/// Ends a run by what came out of the handler. The slot is kept until Redis has a failure, and given
/// back as soon as a success waits for its settler.
pub(crate) async fn conclude(
    core: &Core,
    held: &Arc<Held>,
    subject: &Subject,
    ran: Ran,
    cut: &Cut,
    begun: bool,
    slot: Slot,
) {
    match ran {
        // A success counts whatever the run was told meanwhile: the work is done, and the first
        // completion of an entry wins.
        Ran::Returned(HandlerEnd::Succeeded { codec, output })
            if output.len() <= core.settings.max_payload =>
        {
            let ending = Ending::Succeeded { codec, output };
            if let Some(done) = offer(core, held, subject, ending) {
                Box::pin(hand_over(core, done)).await;
            }
        }
        ran => Box::pin(fail(core, held, subject, ran, cut, begun)).await,
    }
    drop(slot);
}

/// Ends a run that did not succeed.
async fn fail(core: &Core, held: &Held, subject: &Subject, ran: Ran, cut: &Cut, begun: bool) {
    let told = held.signal.reason();
    let limit = core.settings.max_payload;
    let (run, ending) = match ran {
        Ran::Returned(HandlerEnd::Succeeded { output, .. }) => {
            let bytes = output.len();
            (
                lifecycle::Run::OutputTooLarge,
                Ending::OutputTooLarge { bytes, limit },
            )
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
            None => {
                // The text is bounded by itself; as data an error may be as large as an output.
                let error = if error.len() > limit {
                    Bytes::new()
                } else {
                    error
                };
                let ending = Ending::Failed { codec, error, text };
                (lifecycle::Run::Failed { retry }, ending)
            }
        },
        Ran::Panicked(text) => match told {
            Some(reason) => return stopped(core, held, subject, reason, cut, begun).await,
            None => (lifecycle::Run::Panicked, Ending::Panicked(text)),
        },
        Ran::Dropped(reason) => return stopped(core, held, subject, reason, cut, begun).await,
    };
    end(core, held, subject, &run, ending).await;
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
            let subject = Subject::of(delivery);
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

/// Hands a success to the settler. Answers it back when the settler cannot take it now.
fn offer(core: &Core, held: &Arc<Held>, subject: &Subject, ending: Ending) -> Option<Done> {
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
    match core.lane(held.lane).done.try_send(done) {
        Ok(()) => None,
        Err(TrySendError::Full(done) | TrySendError::Closed(done)) => Some(done),
    }
}

/// Waits with a success until the settler takes it.
async fn hand_over(core: &Core, done: Done) {
    let entry = done.held.entry;
    // The settler ends only after the last run, so the channel is open as long as there is one.
    if core.lane(done.held.lane).done.send(done).await.is_err() {
        tracing::error!(%entry, "a finished task found no settler; its lease will end");
    }
}

/// Ends a delivery otherwise than by success: retried, archived, cancelled, expired or discarded.
pub(crate) fn end<'a>(
    core: &'a Core,
    held: &'a Held,
    subject: &'a Subject,
    run: &'a lifecycle::Run,
    ending: Ending,
) -> BoxFuture<'a, ()> {
    async move {
        held.start_ending();
        let stored = subject.envelope();
        let parts = stored.as_ref().map(|envelope| &envelope.parts);
        let attempt = stored.as_ref().map_or(0, |envelope| envelope.attempt);
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
        let envelope = match (&next, &stored) {
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
    .boxed()
}

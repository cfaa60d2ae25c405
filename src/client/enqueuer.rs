//! Sends the batches of one queue, one at a time, until Redis has answered each.
//!
//! Layer 4, one loop for each queue. A lone task is sent at once; what comes while a batch flies
//! becomes the next one. Through an outage the same number with the same content is repeated, so
//! that Redis can tell a repeat from a new batch; content that may have been written is never sent
//! under another number.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

use super::batch::{Batch, MAX_TASKS, Parcel, Refusal};
use super::lane::Lane;
use super::shared::{Shared, retry_pause};
use crate::envelope::{Envelope, Limits};
use crate::error::{BackendError, BackendKind};
use crate::id::{ClientId, EntryId};
use crate::store::{self, Enqueued};

/// How often a batch is tried under a new client id.
const MAX_RENAMES: u32 = 3;

/// One queue's sender.
pub(super) struct Enqueuer {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    inbox: mpsc::UnboundedReceiver<Parcel>,
    /// Came out of the inbox, but did not fit any more.
    next: Option<Parcel>,
    /// The last batch number used under the lane's client id.
    number: u64,
    /// Failed attempts since the last answer, whatever the batch: an outage is one row of errors.
    failed: u32,
}

/// What is known about the batch in flight.
struct Flight {
    number: u64,
    /// The epoch of its first attempt.
    epoch: String,
    /// Some attempt may have been executed: from then on each is a repeat.
    ambiguous: bool,
    renames: u32,
}

enum Step {
    Stored {
        first: Option<EntryId>,
        scheduled: Vec<usize>,
    },
    Refused(Refusal),
    Again(BackendError),
}

impl Enqueuer {
    pub(super) const fn new(
        shared: Arc<Shared>,
        lane: Arc<Lane>,
        inbox: mpsc::UnboundedReceiver<Parcel>,
    ) -> Self {
        Self {
            shared,
            lane,
            inbox,
            next: None,
            number: 0,
            failed: 0,
        }
    }

    pub(super) async fn run(mut self) {
        // One for all parcels: to register a new one costs as much as to take a parcel.
        let mut stopped = pin!(self.shared.stop.clone().cancelled_owned());
        while let Some(first) = self.first(stopped.as_mut()).await {
            let batch = self.collect(first);
            if !batch.tasks.is_empty() {
                self.deliver(batch).await;
            }
        }
        self.inbox.close();
        let rest = self.next.take();
        if let Some(parcel) = rest {
            self.refuse(parcel, Refusal::Closed);
        }
        while let Ok(parcel) = self.inbox.try_recv() {
            self.refuse(parcel, Refusal::Closed);
        }
    }

    /// The next parcel; none once the client stops.
    async fn first(&mut self, stopped: impl Future<Output = ()>) -> Option<Parcel> {
        if self.shared.stop.is_cancelled() {
            return None;
        }
        if let Some(parcel) = self.next.take() {
            return Some(parcel);
        }
        tokio::select! {
            biased;
            parcel = self.inbox.recv() => parcel,
            () = stopped => None,
        }
    }

    /// Everything that waits, up to the limits of a batch.
    fn collect(&mut self, first: Parcel) -> Batch {
        let mut batch = Batch::default();
        let mut parcel = first;
        loop {
            if parcel.since.elapsed() >= self.shared.settings.enqueue_deadline {
                // It was never sent: the batches before it used up its time.
                let waited = BackendError::new(
                    BackendKind::NotExecuted,
                    "redis did not answer within the enqueue deadline",
                );
                self.refuse(parcel, Refusal::Backend(waited));
            } else if batch.fits(&parcel) {
                batch.add(parcel);
            } else {
                self.next = Some(parcel);
                return batch;
            }
            if batch.is_full() {
                return batch;
            }
            match self.inbox.try_recv() {
                Ok(more) => parcel = more,
                Err(_) => return batch,
            }
        }
    }

    /// Sends one batch until everybody in it was answered.
    async fn deliver(&mut self, mut batch: Batch) {
        debug_assert!(
            batch.tasks.len() <= MAX_TASKS,
            "parcels are at most one batch"
        );
        let patience = self.shared.settings.enqueue_deadline;
        let mut count = batch.tasks.len();
        let mut flight = self.new_flight();
        loop {
            let error = match self.attempt(&mut batch, &mut flight).await {
                Step::Stored { first, scheduled } => {
                    self.failed = 0;
                    batch.answer_stored(first, &scheduled);
                    break;
                }
                Step::Refused(refusal) => {
                    batch.refuse(&refusal);
                    break;
                }
                Step::Again(error) => error,
            };
            self.failed += 1;
            self.shared
                .count_error("enqueue", &self.lane.queue, &error, self.failed);
            if flight.ambiguous {
                let unknown = Refusal::Unknown {
                    waited: Duration::ZERO,
                };
                batch.give_up_on_overdue(patience, &unknown);
            } else {
                let removed = batch.remove_overdue(patience, &Refusal::Backend(error));
                self.lane.free(removed);
                count -= removed;
                if removed > 0 {
                    flight = self.new_flight();
                }
            }
            if batch.is_answered() {
                break;
            }
            if !self.shared.pause(retry_pause(self.failed)).await {
                let unknown = Refusal::Unknown {
                    waited: Duration::ZERO,
                };
                batch.refuse(if flight.ambiguous {
                    &unknown
                } else {
                    &Refusal::Closed
                });
                break;
            }
        }
        self.lane.free(count);
    }

    async fn attempt(&mut self, batch: &mut Batch, flight: &mut Flight) -> Step {
        if !flight.ambiguous {
            // Also after a refusal: whatever is certainly not written may go under any epoch.
            flight.epoch = match self.epoch().await {
                Ok(epoch) => epoch,
                Err(error) => return refuse_or_repeat(error, false),
            };
        }
        match self.send(batch, flight).await {
            Ok(Enqueued::Stored {
                first_entry: first,
                scheduled,
                epoch,
                ..
            }) => {
                self.lane.note_epoch(&epoch);
                Step::Stored { first, scheduled }
            }
            Ok(Enqueued::Unknown { epoch }) => {
                self.lane.note_epoch(&epoch);
                Step::Refused(Refusal::Unknown {
                    waited: Duration::ZERO,
                })
            }
            Ok(Enqueued::ClientIdClash) => self.rename(batch, flight),
            Err(error) => {
                if error.kind() == BackendKind::Group {
                    self.lane.forget_epoch();
                }
                flight.ambiguous |= error.kind() == BackendKind::Ambiguous;
                refuse_or_repeat(error, flight.ambiguous)
            }
        }
    }

    async fn send(&self, batch: &Batch, flight: &Flight) -> Result<Enqueued, BackendError> {
        let client = self.lane.client();
        let stored = store::Batch {
            client: &client,
            number: flight.number,
            repeat: flight.ambiguous,
            epoch: &flight.epoch,
            tracked: batch.is_tracked(),
            tasks: &batch.tasks,
        };
        let call = self.shared.store.enqueue(&self.lane.queue, &stored);
        let patience = self.shared.settings.enqueue_deadline;
        let left = batch.deadline(patience).map_or(patience, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        if left >= self.shared.settings.command_timeout {
            return call.await;
        }
        // The command's own timeout would overrun the deadline of whoever waits.
        tokio::time::timeout(left, call).await.unwrap_or_else(|_| {
            Err(BackendError::new(
                BackendKind::Ambiguous,
                "redis did not answer within the enqueue deadline",
            ))
        })
    }

    async fn epoch(&self) -> Result<String, BackendError> {
        if let Some(epoch) = self.lane.epoch() {
            return Ok(epoch);
        }
        let ensured = self.shared.store.ensure(&self.lane.queue).await?;
        self.lane.note_epoch(&ensured.epoch);
        Ok(ensured.epoch)
    }

    fn new_flight(&mut self) -> Flight {
        self.number += 1;
        Flight {
            number: self.number,
            epoch: String::new(),
            ambiguous: false,
            renames: 0,
        }
    }

    /// Another process sends under our name, as after a copied memory image: take a new one.
    fn rename(&mut self, batch: &mut Batch, flight: &mut Flight) -> Step {
        let error = BackendError::new(BackendKind::Fatal, "another process uses this client's id");
        tracing::warn!(queue = %self.lane.queue, "{error}: a new one is taken");
        let client = ClientId::from_random(Uuid::new_v4());
        self.lane
            .rename(self.shared.identity(&self.lane.queue, client.clone()));
        self.number = 0;
        if flight.ambiguous {
            return Step::Refused(Refusal::Unknown {
                waited: Duration::ZERO,
            });
        }
        if flight.renames == MAX_RENAMES {
            return Step::Refused(Refusal::Backend(error));
        }
        let renames = flight.renames + 1;
        *flight = self.new_flight();
        flight.renames = renames;
        for task in batch.tasks.iter_mut().filter(|task| task.client.is_some()) {
            let limits = Limits {
                max_bytes: usize::MAX,
            };
            match Envelope::decode(&task.envelope, &limits) {
                Ok(mut envelope) => {
                    envelope.client = Some(client.clone());
                    task.envelope = envelope.encode();
                    task.client = Some(client.clone());
                }
                // It was encoded by this process, so it decodes.
                Err(_) => return Step::Refused(Refusal::Backend(error)),
            }
        }
        Step::Again(BackendError::new(
            BackendKind::NotExecuted,
            error.to_string(),
        ))
    }

    fn refuse(&self, parcel: Parcel, refusal: Refusal) {
        self.lane.free(parcel.count());
        parcel.refuse(refusal);
    }
}

/// What an error means for a batch that may or may not have been written before.
fn refuse_or_repeat(error: BackendError, ambiguous: bool) -> Step {
    let permanent = !error.kind().is_transient();
    match (permanent, ambiguous) {
        (false, false) if error.is_out_of_memory() => Step::Refused(Refusal::OutOfMemory(error)),
        (false, _) => Step::Again(error),
        (true, false) => Step::Refused(Refusal::Backend(error)),
        (true, true) => Step::Refused(Refusal::Unknown {
            waited: Duration::ZERO,
        }),
    }
}

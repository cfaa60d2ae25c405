//! What goes to Redis in one script call: parcels of tasks, collected within the limits of a batch.
//!
//! Layer 4. Owns which answer each sender gets; when a batch is sent, and sent again, is decided
//! by `enqueuer`.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::{BackendError, EnqueueError};
use crate::id::{EntryId, TaskId};
use crate::store::{Enqueued, NewTask};

pub(super) use crate::store::enqueue::{
    MAX_BATCH_BYTES as MAX_BYTES, MAX_BATCH_TASKS as MAX_TASKS,
};

/// Why the tasks of a parcel were not confirmed.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    OutOfMemory(BackendError),
    Unknown { waited: Duration },
    Closed,
    Backend(BackendError),
}

impl Refusal {
    pub(super) fn into_error(self, id: TaskId) -> EnqueueError {
        match self {
            Self::OutOfMemory(error) => EnqueueError::OutOfMemory(error),
            Self::Unknown { waited } => EnqueueError::Unknown { id, waited },
            Self::Closed => EnqueueError::Closed,
            Self::Backend(error) => EnqueueError::Backend(error),
        }
    }
}

/// Where the tasks of a parcel are: the entry of each, none for one that is scheduled.
#[derive(Debug)]
pub(super) enum Placed {
    One(Option<EntryId>),
    Many(Vec<Option<EntryId>>),
}

pub(super) type Answer = Result<Placed, Refusal>;

/// One task, or a part of a bulk that is at most one batch.
#[derive(Debug)]
pub(super) enum Tasks {
    One(NewTask),
    Many(Vec<NewTask>),
}

/// Tasks of one sender on their way to the enqueuer.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) tasks: Tasks,
    pub(super) bytes: usize,
    pub(super) since: Instant,
    pub(super) answer: oneshot::Sender<Answer>,
}

impl Parcel {
    pub(super) fn count(&self) -> usize {
        match &self.tasks {
            Tasks::One(_) => 1,
            Tasks::Many(tasks) => tasks.len(),
        }
    }

    /// Answers without sending it.
    pub(super) fn refuse(self, refusal: Refusal) {
        // The sender may have gone away; then nobody asks.
        let _ = self.answer.send(Err(refusal));
    }
}

/// Who sent the next `count` tasks of a batch.
#[derive(Debug)]
struct Sender {
    count: usize,
    one: bool,
    since: Instant,
    /// Taken when the answer was given.
    answer: Option<oneshot::Sender<Answer>>,
}

/// The content of one batch number.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) tasks: Vec<NewTask>,
    bytes: usize,
    senders: Vec<Sender>,
}

impl Batch {
    /// Whether another parcel still fits.
    pub(super) fn fits(&self, parcel: &Parcel) -> bool {
        self.tasks.is_empty()
            || (self.tasks.len() + parcel.count() <= MAX_TASKS
                && self.bytes + parcel.bytes <= MAX_BYTES)
    }

    pub(super) fn is_full(&self) -> bool {
        self.tasks.len() >= MAX_TASKS || self.bytes >= MAX_BYTES
    }

    pub(super) fn add(&mut self, parcel: Parcel) {
        self.bytes += parcel.bytes;
        self.senders.push(Sender {
            count: parcel.count(),
            one: matches!(parcel.tasks, Tasks::One(_)),
            since: parcel.since,
            answer: Some(parcel.answer),
        });
        match parcel.tasks {
            Tasks::One(task) => self.tasks.push(task),
            Tasks::Many(tasks) if self.tasks.is_empty() => self.tasks = tasks,
            Tasks::Many(mut tasks) => self.tasks.append(&mut tasks),
        }
    }

    /// Whether some task wants its outcome.
    pub(super) fn is_tracked(&self) -> bool {
        self.tasks.iter().any(|task| task.client.is_some())
    }

    /// Whether everybody was answered.
    pub(super) fn is_answered(&self) -> bool {
        self.senders.iter().all(|sender| sender.answer.is_none())
    }

    /// When the first sender that was not answered gives up.
    pub(super) fn deadline(&self, patience: Duration) -> Option<Instant> {
        let open = self.senders.iter().filter(|sender| sender.answer.is_some());
        open.map(|sender| sender.since + patience).min()
    }

    /// Redis has all of it.
    pub(super) fn answer_stored(self, first: Option<EntryId>, scheduled: &[usize]) {
        let mut entries = Enqueued::entries(first, scheduled, self.tasks.len()).into_iter();
        for sender in self.senders {
            let placed = if sender.one {
                Placed::One(entries.next().flatten())
            } else {
                Placed::Many(entries.by_ref().take(sender.count).collect())
            };
            if let Some(answer) = sender.answer {
                let _ = answer.send(Ok(placed));
            }
        }
    }

    /// Nobody gets more than this.
    pub(super) fn refuse(self, refusal: &Refusal) {
        let now = Instant::now();
        for sender in self.senders {
            sender.refuse(refusal, now);
        }
    }

    /// Answers whoever waited for `patience`, but keeps the content: it may be in Redis already,
    /// and its number stands for exactly this content.
    pub(super) fn give_up_on_overdue(&mut self, patience: Duration, refusal: &Refusal) {
        let now = Instant::now();
        for sender in &mut self.senders {
            if now.duration_since(sender.since) >= patience {
                sender.take().refuse(refusal, now);
            }
        }
    }

    /// Takes out whoever waited for `patience`. Only for content that is certainly not in Redis.
    /// Says how many tasks went.
    pub(super) fn remove_overdue(&mut self, patience: Duration, refusal: &Refusal) -> usize {
        let now = Instant::now();
        let before = self.tasks.len();
        let mut tasks = std::mem::take(&mut self.tasks).into_iter();
        let mut kept = Vec::with_capacity(before);
        self.senders.retain_mut(|sender| {
            let overdue = now.duration_since(sender.since) >= patience;
            let own = tasks.by_ref().take(sender.count);
            if overdue {
                own.for_each(drop);
                sender.take().refuse(refusal, now);
            } else {
                kept.extend(own);
            }
            !overdue
        });
        self.tasks = kept;
        self.bytes = self.tasks.iter().map(|task| task.envelope.len()).sum();
        before - self.tasks.len()
    }
}

impl Sender {
    /// The right to answer.
    fn take(&mut self) -> Self {
        Self {
            answer: self.answer.take(),
            ..*self
        }
    }

    fn refuse(self, refusal: &Refusal, now: Instant) {
        let refusal = match refusal {
            Refusal::Unknown { .. } => Refusal::Unknown {
                waited: now.duration_since(self.since),
            },
            other => other.clone(),
        };
        if let Some(answer) = self.answer {
            let _ = answer.send(Err(refusal));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use uuid::Uuid;

    use super::*;
    use crate::error::BackendKind;
    use crate::store::Start;

    fn task(bytes: usize) -> NewTask {
        NewTask {
            id: TaskId::from_uuid(Uuid::new_v4()),
            name: "t".into(),
            envelope: Bytes::from(vec![0; bytes]),
            client: None,
            start: Start::Now,
        }
    }

    fn parcel(tasks: Vec<NewTask>, since: Instant) -> (Parcel, oneshot::Receiver<Answer>) {
        let (answer, answered) = oneshot::channel();
        let bytes = tasks.iter().map(|task| task.envelope.len()).sum();
        let tasks = Tasks::Many(tasks);
        (
            Parcel {
                tasks,
                bytes,
                since,
                answer,
            },
            answered,
        )
    }

    #[test]
    fn a_batch_takes_100_tasks_or_256_kib_or_one_task_alone() {
        let now = Instant::now();
        let mut batch = Batch::default();
        batch.add(parcel((0..99).map(|_| task(1)).collect(), now).0);
        assert!(batch.fits(&parcel(vec![task(1)], now).0));
        assert!(!batch.fits(&parcel(vec![task(1), task(1)], now).0));
        assert!(!batch.fits(&parcel(vec![task(MAX_BYTES)], now).0));
        assert!(Batch::default().fits(&parcel(vec![task(MAX_BYTES + 1)], now).0));
    }

    #[test]
    fn an_overdue_sender_leaves_with_its_tasks_only() {
        let patience = Duration::from_secs(1);
        let now = Instant::now();
        let mut batch = Batch::default();
        let (late, mut late_answer) = parcel(vec![task(1), task(1)], now - patience);
        let (fresh, mut fresh_answer) = parcel(vec![task(7)], now);
        batch.add(late);
        batch.add(fresh);
        let error = BackendError::new(BackendKind::NotExecuted, "away");
        assert_eq!(batch.remove_overdue(patience, &Refusal::Backend(error)), 2);
        assert_eq!(batch.tasks.len(), 1);
        assert_eq!(batch.tasks[0].envelope.len(), 7);
        assert!(matches!(
            late_answer.try_recv(),
            Ok(Err(Refusal::Backend(_)))
        ));
        assert!(fresh_answer.try_recv().is_err());
    }

    #[test]
    fn an_overdue_sender_of_a_batch_that_may_be_stored_is_answered_and_its_tasks_stay() {
        let patience = Duration::from_secs(1);
        let mut batch = Batch::default();
        let (late, mut answer) = parcel(vec![task(1)], Instant::now() - patience);
        batch.add(late);
        batch.give_up_on_overdue(
            patience,
            &Refusal::Unknown {
                waited: Duration::ZERO,
            },
        );
        assert_eq!(batch.tasks.len(), 1);
        assert!(batch.is_answered());
        let answered = answer.try_recv().unwrap();
        assert!(matches!(answered, Err(Refusal::Unknown { waited }) if waited >= patience));
    }
}

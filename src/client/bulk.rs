//! Many tasks of one type at once.
//!
//! Layer 4. Tasks are cut into parts that are at most one batch each; the next part is encoded
//! while the last one flies. It waits for its own parts rather than filling the buffer.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::api::Client;
use super::batch::{Answer, MAX_BYTES, MAX_TASKS, Parcel, Placed, Refusal, Tasks};
use super::enqueue::{Awaited, Choice, Forgotten, option_methods};
use super::handle::TaskHandle;
use super::plan::{Awaits, Plan};
use super::shared::Owner;
use super::waiter::Ticket;
use crate::envelope::Arena;
use crate::error::EnqueueError;
use crate::id::TaskId;
use crate::options::{Backoff, Codec};
use crate::store::NewTask;
use crate::task::Task;

/// Holds the tasks of about half a part, if they are of the usual size. One that waits for long keeps
/// no more than this alive beside itself.
const ARENA_BLOCK: usize = 16 * 1024;
/// How many of its own parts a bulk has in the buffer at a time.
const MAX_FLYING: usize = 8;

/// The enqueue of many tasks. It is sent when it is awaited.
///
/// The outer error means that nothing was sent: a name or an option cannot work, or the client is
/// closed. Inside there is one result for each task, in order.
///
/// ```no_run
/// # #[cfg(feature = "macros")] {
/// # use serde::{Deserialize, Serialize};
/// # use streamfleet::{Client, Task};
/// # #[derive(Serialize, Deserialize, Task)]
/// # #[task(name = "square", output = u64)]
/// # struct Square(u64);
/// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut sum = 0;
/// for handle in client.enqueue_all((0..100).map(Square)).await? {
///     sum += handle?.result().await?;
/// }
/// # Ok(()) }
/// # }
/// ```
#[must_use = "an enqueue is sent when it is awaited"]
pub struct EnqueueAll<T, M = Awaited> {
    client: Client,
    tasks: Vec<T>,
    choice: Choice,
    mode: PhantomData<M>,
}

/// What became of each task, in order; or why nothing was sent.
type Results<O> = Result<Vec<Result<O, EnqueueError>>, EnqueueError>;

impl<T> EnqueueAll<T> {
    pub(super) fn new(client: Client, tasks: Vec<T>) -> Self {
        Self {
            client,
            tasks,
            choice: Choice::default(),
            mode: PhantomData,
        }
    }

    /// Asks for no notifications, see [`Enqueue::forget`](crate::Enqueue::forget).
    pub fn forget(self) -> EnqueueAll<T, Forgotten> {
        EnqueueAll {
            client: self.client,
            tasks: self.tasks,
            choice: self.choice,
            mode: PhantomData,
        }
    }
}

impl<T, M> EnqueueAll<T, M> {
    option_methods!();
}

impl<T: Task> IntoFuture for EnqueueAll<T> {
    type Output = Results<TaskHandle<T>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;
    fn into_future(self) -> Self::IntoFuture {
        let owner = Arc::clone(&self.client.owner);
        Box::pin(self.send(Awaits::Outcome, move |_, ticket| {
            // An awaited task always has its ticket.
            let ticket = ticket.ok_or(EnqueueError::Closed)?;
            Ok(TaskHandle::new(Arc::clone(&owner), ticket))
        }))
    }
}

impl<T: Task> IntoFuture for EnqueueAll<T, Forgotten> {
    type Output = Results<TaskId>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send(Awaits::Nothing, |id, _| Ok(id)))
    }
}

impl<T: Task, M> EnqueueAll<T, M> {
    fn send<O>(
        self,
        awaits: Awaits,
        finish: impl Fn(TaskId, Option<Ticket>) -> Result<O, EnqueueError>,
    ) -> impl Future<Output = Results<O>> {
        // Taken apart first, so that the marker type is not part of the future.
        let (client, tasks, choice) = (self.client, self.tasks, self.choice);
        async move {
            if let Some(error) = choice.refused {
                return Err(error);
            }
            let owner = client.owner;
            let plan = Plan::<T>::new(&owner, choice.options, choice.codec, awaits)?;
            let mut results = Vec::with_capacity(tasks.len());
            let mut flying: VecDeque<Part> = VecDeque::new();
            let mut part = Part::default();
            // A part that is larger than the buffer would never have room.
            let room = MAX_TASKS.min(owner.shared.settings.buffer);
            let mut arena = Arena::of_blocks(ARENA_BLOCK);
            for task in tasks {
                let new = match plan.new_task(&owner.shared, &task, &mut arena) {
                    Ok(new) => new,
                    Err(error) => {
                        part.items.push(Err(error));
                        continue;
                    }
                };
                if !part.fits(&new, room) {
                    let full = std::mem::take(&mut part);
                    post(&owner, &plan, full, &mut flying, &mut results, &finish).await;
                }
                let ticket = plan.ticket(&new);
                part.add(new, ticket);
            }
            post(&owner, &plan, part, &mut flying, &mut results, &finish).await;
            while let Some(part) = flying.pop_front() {
                part.finish(&mut results, &finish).await;
            }
            Ok(results)
        }
    }
}

/// Sends a part, when there is room for it.
async fn post<T: Task, O>(
    owner: &Owner,
    plan: &Plan<T>,
    mut part: Part,
    flying: &mut VecDeque<Part>,
    results: &mut Vec<Result<O, EnqueueError>>,
    finish: &impl Fn(TaskId, Option<Ticket>) -> Result<O, EnqueueError>,
) {
    let count = part.tasks.len();
    let room = loop {
        let room = if flying.len() < MAX_FLYING {
            plan.lane.reserve(count)
        } else {
            Ok(())
        };
        match (room, flying.len() >= MAX_FLYING) {
            (Ok(()), false) => break Ok(()),
            (room, _) => match flying.pop_front() {
                Some(earlier) => earlier.finish(results, finish).await,
                None => break room,
            },
        }
    };
    let sent = match room {
        Ok(()) if owner.shared.is_closed() => {
            plan.lane.free(count);
            Err(EnqueueError::Closed)
        }
        Ok(()) => part.post(&plan.lane),
        Err(error) => Err(error),
    };
    if let Err(error) = sent {
        part.refuse_all(&error);
    }
    flying.push_back(part);
}

/// At most one batch of a bulk.
#[derive(Default)]
struct Part {
    /// Each task that is sent, or why it is not.
    items: Vec<Result<(TaskId, Option<Ticket>), EnqueueError>>,
    tasks: Vec<NewTask>,
    bytes: usize,
    since: Option<Instant>,
    answered: Option<oneshot::Receiver<Answer>>,
}

impl Part {
    /// `room`: the tasks that a part may have.
    fn fits(&self, task: &NewTask, room: usize) -> bool {
        self.tasks.is_empty()
            || (self.tasks.len() < room && self.bytes + task.envelope.len() <= MAX_BYTES)
    }

    fn add(&mut self, task: NewTask, ticket: Option<Ticket>) {
        if self.tasks.is_empty() {
            self.tasks.reserve_exact(MAX_TASKS);
            self.items.reserve(MAX_TASKS);
        }
        self.bytes += task.envelope.len();
        self.items.push(Ok((task.id.clone(), ticket)));
        self.tasks.push(task);
    }

    fn post(&mut self, lane: &super::lane::Lane) -> Result<(), EnqueueError> {
        let tasks = std::mem::take(&mut self.tasks);
        if tasks.is_empty() {
            return Ok(());
        }
        let (answer, answered) = oneshot::channel();
        let since = Instant::now();
        self.since = Some(since);
        self.answered = Some(answered);
        lane.post(Parcel {
            tasks: Tasks::Many(tasks),
            bytes: self.bytes,
            since,
            answer,
        })
    }

    fn refuse_all(&mut self, error: &EnqueueError) {
        self.answered = None;
        for item in self.items.iter_mut().filter(|item| item.is_ok()) {
            *item = Err(error.clone());
        }
    }

    /// Waits for the answer and adds what became of each task.
    async fn finish<O>(
        self,
        results: &mut Vec<Result<O, EnqueueError>>,
        finish: &impl Fn(TaskId, Option<Ticket>) -> Result<O, EnqueueError>,
    ) {
        let answer = match self.answered {
            Some(answered) => answered.await.unwrap_or_else(|_| {
                // The enqueuer is gone without a word: what it did is not known.
                let waited = self.since.map_or(Duration::ZERO, |since| since.elapsed());
                Err(Refusal::Unknown { waited })
            }),
            None => Ok(Placed::Many(Vec::new())),
        };
        let mut answer = answer.map(|placed| match placed {
            Placed::One(entry) => vec![entry].into_iter(),
            Placed::Many(entries) => entries.into_iter(),
        });
        results.extend(self.items.into_iter().map(|item| {
            let (id, ticket) = item?;
            match &mut answer {
                Ok(entries) => {
                    let entry = entries.next().flatten();
                    if let Some(ticket) = &ticket {
                        ticket.set_stored(entry);
                    }
                    finish(id, ticket)
                }
                Err(refusal) => Err(refusal.clone().into_error(id)),
            }
        }));
    }
}

impl<T: Task, M> fmt::Debug for EnqueueAll<T, M> {
    /// Without the tasks, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnqueueAll")
            .field("task", &T::NAME)
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

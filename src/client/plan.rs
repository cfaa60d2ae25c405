//! Options resolved once, and tasks turned into what is stored.
//!
//! Layer 4. A bulk has one plan for all its tasks, so that a task costs its payload and one
//! envelope. Called by `enqueue` and `bulk`.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::SystemTime;

use super::lane::Lane;
use super::shared::{Owner, Shared};
use super::waiter::Ticket;
use crate::envelope::{Arena, Envelope, Parts, append_payload, resolve, wall_millis};
use crate::error::EnqueueError;
use crate::id::{ClientId, Millis, check_name};
use crate::options::{Codec, StartAt, TaskOptions};
use crate::store::{NewTask, Start};
use crate::task::Task;

/// What all tasks of one enqueue share.
pub(super) struct Plan<T> {
    pub(super) lane: Arc<Lane>,
    /// Whom to notify; none when nobody waits.
    client: Option<ClientId>,
    name: Arc<str>,
    codec: Codec,
    start: Start,
    parts: Parts,
    /// The host's time, which is only shown.
    now: Millis,
    of: PhantomData<fn(T)>,
}

impl<T: Task> Plan<T> {
    /// Checks names and options. `awaited`: somebody will wait for the outcome.
    pub(super) fn new(
        owner: &Owner,
        options: TaskOptions,
        codec: Option<Codec>,
        awaited: Awaits,
    ) -> Result<Self, EnqueueError> {
        let shared = &owner.shared;
        if shared.is_closed() {
            return Err(EnqueueError::Closed);
        }
        check_name("task name", T::NAME)?;
        let options = options.or(T::options());
        let now = SystemTime::now();
        let parts = resolve(&options, now)?;
        let lane = shared.lane(options.queue.as_ref().unwrap_or(&shared.default_queue));
        let client = match awaited {
            Awaits::Outcome => {
                shared.receive(&lane);
                Some(lane.client())
            }
            Awaits::Nothing => None,
        };
        Ok(Self {
            lane,
            client,
            name: Arc::from(T::NAME),
            codec: codec.unwrap_or(T::CODEC),
            start: start(options.start.unwrap_or_default()),
            parts,
            now: wall_millis(now).unwrap_or_default(),
            of: PhantomData,
        })
    }

    /// The stored form of one task, written into `arena`.
    pub(super) fn new_task(
        &self,
        shared: &Shared,
        task: &T,
        arena: &mut Arena,
    ) -> Result<NewTask, EnqueueError> {
        let payload = arena
            .try_write(|bytes| append_payload(self.codec, task, bytes))
            .map_err(|message| EnqueueError::Encode {
                name: T::NAME.to_owned(),
                message,
            })?;
        let limit = shared.settings.max_payload;
        if payload.len() > limit {
            return Err(EnqueueError::PayloadTooLarge {
                name: T::NAME.to_owned(),
                bytes: payload.len(),
                limit,
            });
        }
        let envelope = Envelope {
            id: shared.ids.next(self.now),
            name: Arc::clone(&self.name),
            client: self.client.clone(),
            enqueued_at: self.now,
            payload,
            codec: self.codec,
            attempt: 0,
            parts: self.parts.clone(),
        };
        Ok(NewTask {
            envelope: arena.write(|bytes| envelope.append_to(bytes)),
            id: envelope.id,
            name: envelope.name,
            client: envelope.client,
            start: self.start,
        })
    }

    /// Registers who waits for a task, before it is sent.
    pub(super) fn ticket(&self, task: &NewTask) -> Option<Ticket> {
        self.client.as_ref()?;
        Some(Ticket::register(
            &self.lane,
            task.id.clone(),
            self.parts.deadline,
        ))
    }
}

/// Whether somebody will wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaits {
    Outcome,
    Nothing,
}

fn start(at: StartAt) -> Start {
    match at {
        StartAt::Now => Start::Now,
        StartAt::After(delay) => Start::After(delay),
        // Before 1970 is long ago, and too far ahead was refused.
        StartAt::At(time) => wall_millis(time).map_or(Start::Now, Start::At),
    }
}

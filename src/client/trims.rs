//! Removes from the receivers what was read of them: behind the reads, and not for each notice.
//!
//! Layer 4. Owned by `receiver`. A removal that fails is made up for by the next; one that never
//! comes is the work of the sweep, which deletes the receivers of clients that are gone.

use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use crate::id::EntryId;
use crate::store::Store;

/// So many notices are not left behind for longer than it takes to send the removal.
const AT_ONCE: usize = 100;
/// How long fewer may lie there: a client with one task at a time would pay for each.
const LATEST: Duration = Duration::from_millis(100);
/// How long a client that closes waits for the last removals.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// What was read and not removed yet.
pub(super) struct Trims {
    store: Store,
    read: HashMap<Bytes, Read>,
    /// When the first of them has to go, if there is one. One timer for all: to arm a new one for each
    /// read would wake the runtime for each.
    timer: Pin<Box<Sleep>>,
    is_armed: bool,
    /// Removals under way; they end with their owner.
    flying: JoinSet<()>,
}

/// One receiver: its last notice that was read, and how many were since the last removal.
struct Read {
    last: EntryId,
    count: usize,
}

impl Trims {
    pub(super) fn new(store: Store) -> Self {
        Self {
            store,
            read: HashMap::new(),
            timer: Box::pin(tokio::time::sleep(LATEST)),
            is_armed: false,
            flying: JoinSet::new(),
        }
    }

    /// `count` notices of a receiver were read, up to and including `last`.
    pub(super) fn note(&mut self, key: &Bytes, last: EntryId, count: usize) {
        let before = self.read.get(key).map_or(0, |read| read.count);
        let count = before + count;
        if count >= AT_ONCE {
            self.read.remove(key);
            self.send(key.clone(), last);
        } else {
            self.read.insert(key.clone(), Read { last, count });
            if !self.is_armed {
                self.is_armed = true;
                self.timer.as_mut().reset(Instant::now() + LATEST);
            }
        }
    }

    /// Waits until something has to go; for ever if nothing does.
    pub(super) async fn due(&mut self) {
        if self.is_armed {
            self.timer.as_mut().await;
        } else {
            std::future::pending().await
        }
    }

    /// Sends all removals.
    pub(super) fn send_all(&mut self) {
        self.is_armed = false;
        for (key, read) in std::mem::take(&mut self.read) {
            self.send(key, read.last);
        }
    }

    /// Sends all removals and waits for them, but not for a Redis that is away.
    pub(super) async fn finish(mut self) {
        self.send_all();
        let sent = async { while self.flying.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_WAIT, sent).await;
    }

    fn send(&mut self, key: Bytes, last: EntryId) {
        while self.flying.try_join_next().is_some() {}
        let store = self.store.clone();
        self.flying.spawn(async move {
            if let Err(error) = store.trim_receiver(&key, last).await {
                tracing::debug!("trim of a receiver failed: {error}");
            }
        });
    }
}

//! Reads the notices of ended tasks and hands each to its waiter.
//!
//! Layer 4. One loop and one blocking connection for all queues; in a cluster one for each queue,
//! because one read cannot span slots. It reads only where somebody waits. Outputs are decoded by
//! whoever waits for them, not here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::lane::Lane;
use super::shared::{Shared, retry_pause};
use super::trims::Trims;
use super::waiter::Outcome;
use crate::envelope::{EnvelopeError, Notice};
use crate::error::{BackendError, BackendKind};
use crate::id::{EntryId, QueueName};
use crate::store::blocking::BlockingConn;
use crate::store::entries::StreamEntries;
use crate::store::keys::FIELD_NOTICE;

/// The most notices of one queue in one read.
const PAGE: usize = 1_000;
/// How long one read waits.
const BLOCK: Duration = Duration::from_secs(2);
/// How long a queue stays in the read after its last waiter has gone, so that a client with one
/// task at a time does not wake its reader for each.
const LINGER: Duration = Duration::from_secs(2);
/// How often CLIENT UNBLOCK is repeated: one that comes before the read does nothing.
const UNBLOCK_AGAIN: Duration = Duration::from_millis(50);

/// Which queues one loop reads.
pub(super) enum Scope {
    All,
    One(Arc<Lane>),
}

struct Receiver {
    shared: Arc<Shared>,
    scope: Scope,
    wake: Arc<Notify>,
    conn: BlockingConn,
    /// When somebody last waited in a queue.
    needed: HashMap<QueueName, Instant>,
    /// What is to be removed.
    trims: Trims,
    /// The connection's reconnects seen so far.
    reconnects: u64,
}

/// One lane in one read: where the read began.
struct Part {
    lane: Arc<Lane>,
    key: Bytes,
    from: EntryId,
}

/// What one read brought of one lane.
struct Seen {
    /// The position of its part.
    place: usize,
    /// The last notice.
    last: EntryId,
    count: usize,
}

pub(super) async fn run(shared: Arc<Shared>, scope: Scope, wake: Arc<Notify>) {
    let Some(conn) = connect(&shared).await else {
        return;
    };
    let reconnects = *conn.reconnects().borrow();
    let mut receiver = Receiver {
        trims: Trims::new(shared.store.clone()),
        shared,
        scope,
        wake,
        conn,
        needed: HashMap::new(),
        reconnects,
    };
    receiver.read_until_stop().await;
    receiver.conn.close().await;
    receiver.trims.finish().await;
}

async fn connect(shared: &Shared) -> Option<BlockingConn> {
    let mut attempt = 0;
    loop {
        let connecting = BlockingConn::connect(&shared.connect);
        let connected = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return None,
            connected = connecting => connected,
        };
        match connected {
            Ok(conn) => return Some(conn),
            Err(error) => {
                attempt += 1;
                if attempt == 1 {
                    tracing::warn!("the receiver could not connect, it tries again: {error}");
                }
                if !shared.pause(retry_pause(attempt)).await {
                    return None;
                }
            }
        }
    }
}

impl Receiver {
    async fn read_until_stop(&mut self) {
        let mut failed = 0;
        while !self.shared.is_closed() {
            let parts = self.parts();
            if parts.is_empty() {
                tokio::select! {
                    () = self.wake.notified() => {}
                    () = self.shared.stop.cancelled() => {}
                    () = self.trims.due() => self.trims.send_all(),
                }
                continue;
            }
            match Box::pin(self.read(&parts)).await {
                Ok(pages) => {
                    failed = 0;
                    let seen = end_all(&parts, pages);
                    // Whoever waited goes on first, before the next read and the removal of this one.
                    tokio::task::yield_now().await;
                    self.note(&parts, &seen);
                }
                Err(error) if error.kind() == BackendKind::Unblocked => self.note(&parts, &[]),
                Err(error) => {
                    failed += 1;
                    self.shared.count_error(
                        "read of outcomes",
                        &parts[0].lane.queue,
                        &error,
                        failed,
                    );
                    self.shared.pause(retry_pause(failed)).await;
                }
            }
            self.note_reconnects(&parts);
        }
    }

    /// What to read: nothing while nobody waits at all.
    fn parts(&mut self) -> Vec<Part> {
        let lanes = match &self.scope {
            Scope::All => self.shared.lanes(),
            Scope::One(lane) => vec![Arc::clone(lane)],
        };
        if lanes.iter().all(|lane| lane.waiting() == 0) {
            return Vec::new();
        }
        let now = Instant::now();
        let mut parts = Vec::with_capacity(lanes.len());
        for lane in lanes {
            if lane.waiting() > 0 {
                self.needed.insert(lane.queue.clone(), now);
            } else if self
                .needed
                .get(&lane.queue)
                .is_none_or(|at| now - *at >= LINGER)
            {
                self.needed.remove(&lane.queue);
                continue;
            }
            let (key, from) = (lane.receiver(), lane.read_to());
            parts.push(Part { lane, key, from });
        }
        parts
    }

    /// One read that waits. It is never dropped: to end it, Redis is asked to.
    async fn read(&mut self, parts: &[Part]) -> Result<Vec<StreamEntries>, BackendError> {
        let from: Vec<(Bytes, EntryId)> = parts
            .iter()
            .map(|part| (part.key.clone(), part.from))
            .collect();
        let read = self.conn.read(PAGE, BLOCK, &from);
        tokio::pin!(read);
        let target = self.conn.unblock_target();
        let mut end_it = false;
        loop {
            tokio::select! {
                biased;
                result = &mut read => return result,
                () = self.shared.stop.cancelled(), if !end_it => end_it = true,
                () = self.wake.notified(), if !end_it => {
                    end_it = is_outdated(&self.shared, &self.scope, parts);
                }
                () = tokio::time::sleep(UNBLOCK_AGAIN), if end_it => {}
                () = self.trims.due() => self.trims.send_all(),
            }
            if end_it {
                // It may fail while Redis is away; the read ends by its own deadline then.
                let unblock = self.shared.store.conn().unblock(&target);
                tokio::select! {
                    biased;
                    result = &mut read => return result,
                    _ = unblock => {}
                }
            }
        }
    }

    /// Notes how far the receivers were read.
    fn note(&mut self, parts: &[Part], seen: &[Seen]) {
        for (place, part) in parts.iter().enumerate() {
            match seen.iter().find(|seen| seen.place == place) {
                Some(seen) => {
                    part.lane.note_heard(Instant::now());
                    part.lane.advance(part.from, seen.last);
                    self.trims.note(&part.key, seen.last, seen.count);
                }
                None => part.lane.note_empty_read(),
            }
        }
    }

    /// A new connection may follow a restart or a failover: what was written before may be gone.
    fn note_reconnects(&mut self, parts: &[Part]) {
        let reconnects = *self.conn.reconnects().borrow();
        if reconnects != self.reconnects {
            self.reconnects = reconnects;
            parts.iter().for_each(|part| part.lane.mark_gap());
        }
    }
}

/// Ends the waits that the notices are for. Says what there was of each lane.
fn end_all(parts: &[Part], pages: Vec<StreamEntries>) -> Vec<Seen> {
    let mut seen = Vec::with_capacity(pages.len());
    for (place, entries) in pages {
        let (Some(part), Some(last)) = (parts.get(place), entries.last()) else {
            continue;
        };
        seen.push(Seen {
            place,
            last: last.id,
            count: entries.len(),
        });
        for entry in entries {
            let notice = entry.fields.and_then(|fields| fields.find(&[FIELD_NOTICE]));
            if let Some((_, bytes)) = notice {
                end_one(&part.lane, &bytes);
            }
        }
    }
    seen
}

/// Whether a read of these parts misses somebody who waits.
fn is_outdated(shared: &Shared, scope: &Scope, parts: &[Part]) -> bool {
    if parts.iter().any(|part| part.lane.read_to() != part.from) {
        return true;
    }
    match scope {
        Scope::One(_) => false,
        Scope::All => shared.lanes().iter().any(|lane| {
            lane.waiting() > 0 && !parts.iter().any(|part| Arc::ptr_eq(&part.lane, lane))
        }),
    }
}

/// Ends the wait that one notice is for. One of a newer version still says whose it is; whatever
/// else cannot be read is left to a look-up.
fn end_one(lane: &Lane, bytes: &Bytes) {
    match Notice::decode(bytes) {
        Ok(notice) => lane.end(&notice.task, Outcome::Ended(notice.ending)),
        Err(error) => {
            tracing::warn!(queue = %lane.queue, "an outcome could not be read: {error}");
            match (&error, Notice::task_of(bytes)) {
                (EnvelopeError::UnsupportedVersion(_), Ok(task)) => {
                    lane.end(&task, Outcome::Unreadable(error.to_string()));
                }
                _ => lane.mark_gap(),
            }
        }
    }
}

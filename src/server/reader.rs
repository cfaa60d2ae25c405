//! Takes tasks out of the streams.
//!
//! Layer 4. One reader for all queues, so that their order holds also in a cluster, where each
//! queue has a blocking connection of its own. It never asks for more than there is room for: free
//! slots, and places in line where slots become free fast (`ahead`). It never drops a read that is
//! under way: what Redis handed out belongs to us, seen or not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::error::{BackendError, BackendKind};
use crate::server::ahead::Pace;
use crate::server::blocked::{Blocked, Found, Landed, deliveries};
use crate::server::choose::round;
use crate::server::core::{Core, Slot};
use crate::server::patience::Patience;
use crate::store::Delivery;
use crate::store::blocking::BlockingConn;
use crate::store::keys::GROUP;

/// The most entries of one read: enough to make the cost per entry flat, small enough that a reply
/// stays short (measured: COUNT above 100 gains nothing).
const READ_MOST: usize = 100;
/// How long a queue with a key of the wrong type is left out.
const BROKEN_FOR: Duration = Duration::from_secs(1);

/// Reads all lanes until the server stops. Each connection comes with the lanes that it can read.
pub(crate) async fn read(core: Arc<Core>, conns: Vec<(Arc<BlockingConn>, Vec<usize>)>) {
    let mut group_of = vec![0; core.lanes.len()];
    for (group, (_, lanes)) in conns.iter().enumerate() {
        lanes.iter().for_each(|lane| group_of[*lane] = group);
    }
    let mut reader = Reader {
        keys: core
            .lanes
            .iter()
            .map(|lane| core.store.keys().queue(&lane.queue).stream())
            .collect(),
        weights: core.lanes.iter().map(|lane| lane.weight).collect(),
        groups: conns.iter().map(|_| Group::default()).collect(),
        conns: conns.into_iter().map(|(conn, _)| conn).collect(),
        blocked: Blocked::new(Arc::clone(&core)),
        group_of,
        pace: Pace::default(),
        exhausted: false,
        core,
    };
    while !reader.core.is_stopping() {
        reader.round().await;
    }
    // Whoever stops the server ends these reads; what they still bring is handed back.
    while !reader.blocked.is_empty() {
        reader.blocked.landed().await;
    }
}

struct Reader {
    core: Arc<Core>,
    /// The stream of each lane.
    keys: Vec<Bytes>,
    weights: Vec<u32>,
    /// The position of each lane's connection.
    group_of: Vec<usize>,
    conns: Vec<Arc<BlockingConn>>,
    /// How it stands with each connection.
    groups: Vec<Group>,
    blocked: Blocked,
    pace: Pace,
    /// The last round found less than there was room for.
    exhausted: bool,
}

/// What the tasks of one round have room in.
struct Room {
    slots: Option<Slot>,
    /// Places in line.
    line: usize,
    /// Whether all slots were taken when it was looked for.
    was_full: bool,
}

impl Room {
    fn slots(&self) -> usize {
        self.slots.as_ref().map_or(0, Slot::num_permits)
    }

    fn tasks(&self) -> usize {
        self.slots() + self.line
    }

    /// Takes the slots for so many tasks out; those beyond them get places in line.
    fn take(&mut self, tasks: usize) -> Option<Slot> {
        let with_slot = tasks.min(self.slots());
        self.line = self.line.saturating_sub(tasks - with_slot);
        self.slots.as_mut().and_then(|slots| slots.split(with_slot))
    }
}

/// What is known of one connection.
#[derive(Default)]
struct Group {
    patience: Patience,
    /// Until when it is left alone after an error.
    out_until: Option<Instant>,
    /// Its last read failed. The next one is a read that waits, which holds up nobody else.
    failed: bool,
    /// Its last read waited, and took all there was: the next one may wait again.
    emptied: bool,
}

impl Reader {
    /// Released work first, then what is waiting, then a wait for more.
    async fn round(&mut self) {
        let Some(room) = self.room().await else {
            return;
        };
        let Some(room) = self.take_released(room).await else {
            return;
        };
        let Some(room) = self.read_waiting(room).await else {
            return;
        };
        if let Some(slots) = room.slots {
            self.wait_for_more(slots).await;
        }
    }

    /// Waits for room. While there are no slots, nothing waits in Redis in our name.
    async fn room(&mut self) -> Option<Room> {
        if let Some(slots) = self.core.free_slots(READ_MOST) {
            return Some(Room {
                slots: Some(slots),
                line: 0,
                was_full: false,
            });
        }
        for landed in self.blocked.recall(&self.conns).await {
            self.note(landed).await;
        }
        let ahead = self.ahead();
        // Half of the line at a time, so that a read is for many; and all of it before a slot is
        // taken for what comes after it.
        let shrunk = self.core.line.shrink_to(ahead / 2);
        self.core.stop.taking.run_until_cancelled(shrunk).await?;
        let first = match ahead {
            0 => Some(self.core.slots(1).await?),
            _ => None,
        };
        // Handlers that waited for the same tick of the clock end together: one read for all of
        // them instead of one for the first and then one for the others.
        tokio::task::yield_now().await;
        let slots = match first {
            Some(first) => Some(self.core.more_slots(first, READ_MOST)),
            None => self.core.free_slots(READ_MOST),
        };
        Some(Room {
            slots,
            line: ahead.saturating_sub(self.core.line.len()),
            was_full: true,
        })
    }

    /// How long the line may be now. What was handed back comes first, and needs a slot.
    fn ahead(&mut self) -> usize {
        if self.core.line.take_gave_up() {
            self.pace.forget();
        }
        if self.exhausted || self.is_hinted() {
            return 0;
        }
        let most = self.core.settings.concurrency.div_ceil(2).min(READ_MOST);
        self.pace.ahead(most, Instant::now())
    }

    /// Whether work was handed back that can be taken.
    fn is_hinted(&self) -> bool {
        (0..self.keys.len())
            .any(|lane| !self.is_out(lane) && self.core.lane(lane).released.load(Ordering::Acquire))
    }

    /// Takes what was handed back by others. Answers the room that is left.
    async fn take_released(&mut self, mut room: Room) -> Option<Room> {
        for lane in 0..self.keys.len() {
            let core = Arc::clone(&self.core);
            let place = core.lane(lane);
            let count = room.slots();
            if count == 0 || self.is_out(lane) || !place.released.swap(false, Ordering::AcqRel) {
                continue;
            }
            let in_flight = core.deliveries_in_flight.read().await;
            let taken = core
                .store
                .take_released(&place.queue, &core.me, count)
                .await;
            match taken {
                Ok(deliveries) => {
                    if deliveries.len() >= count {
                        place.released.store(true, Ordering::Release);
                    }
                    self.admit(lane, deliveries, &mut room);
                    drop(in_flight);
                }
                Err(error) => {
                    drop(in_flight);
                    place.released.store(true, Ordering::Release);
                    self.recover(lane, &error).await;
                    return None;
                }
            }
        }
        (room.tasks() > 0).then_some(room)
    }

    /// Asks the queues one by one without waiting, as long as there is room. `None` when it found
    /// something or failed: then the next round starts. A queue that a read waits for is empty.
    async fn read_waiting(&mut self, mut room: Room) -> Option<Room> {
        let mut found = 0;
        for lane in round(self.core.order, &self.weights, fastrand::f64) {
            let group = self.group_of[lane];
            let state = &self.groups[group];
            if self.is_out(lane) || state.failed || state.emptied || self.blocked.has(group) {
                continue;
            }
            let count = room.tasks();
            if count == 0 {
                break;
            }
            let core = Arc::clone(&self.core);
            let in_flight = core.deliveries_in_flight.read().await;
            let key = std::slice::from_ref(&self.keys[lane]);
            let reply = self.conns[group]
                .read_group(GROUP, core.me.as_str(), count, None, key)
                .await;
            match reply {
                Ok(streams) => {
                    self.groups[group].patience.reset();
                    for (_, entries) in streams {
                        found += entries.len();
                        self.admit(lane, deliveries(&core, lane, entries), &mut room);
                    }
                }
                Err(error) => {
                    drop(in_flight);
                    self.recover(lane, &error).await;
                    return None;
                }
            }
        }
        self.exhausted = room.tasks() > 0;
        if room.was_full {
            self.pace.note(found, Instant::now());
        }
        (found == 0).then_some(room)
    }

    /// Waits until one of the queues has something, or one that was left out can be asked again.
    async fn wait_for_more(&mut self, mut slots: Slot) {
        // Two are enough to wake up and to see whether there is more; the others stay free for
        // reclaimed work meanwhile, at least one of them.
        let kept = if slots.num_permits() > 2 { 2 } else { 1 };
        drop(slots.split(slots.num_permits().saturating_sub(kept)));
        self.groups
            .iter_mut()
            .for_each(|group| group.emptied = false);
        // The stop and the released work set their flags before they end blocked reads, so a flag
        // that is not seen here ends the reads below.
        if self.core.is_stopping() || self.is_hinted() {
            return;
        }
        self.blocked.reserve(slots);
        for group in 0..self.conns.len() {
            if self.blocked.has(group) {
                continue;
            }
            let lanes = self.lanes_of(group).filter(|lane| !self.is_out(*lane));
            let lanes: Vec<usize> = lanes.collect();
            if !lanes.is_empty() {
                let keys = lanes.iter().map(|lane| self.keys[*lane].clone()).collect();
                let conn = Arc::clone(&self.conns[group]);
                self.blocked.start(group, conn, lanes, keys, kept);
            }
        }
        let back = self.first_back();
        let landed = tokio::select! {
            biased;
            landed = self.blocked.landed() => Some(landed),
            () = sleep_until(back) => None,
            () = self.core.stop.taking.cancelled() => None,
        };
        self.blocked.give_up_slots();
        if let Some(landed) = landed {
            self.note(landed).await;
        }
    }

    fn lanes_of(&self, group: usize) -> impl Iterator<Item = usize> {
        (0..self.keys.len()).filter(move |lane| self.group_of[*lane] == group)
    }

    /// Whether a lane is left out for now.
    fn is_out(&self, lane: usize) -> bool {
        let until = self.groups[self.group_of[lane]].out_until;
        until.is_some_and(|until| Instant::now() < until) || self.core.lane(lane).is_broken()
    }

    /// When the first of those left out can be asked again, if there is one.
    fn first_back(&self) -> Option<Instant> {
        let now = Instant::now();
        let groups = self.groups.iter().filter_map(|group| group.out_until);
        let lanes = self
            .core
            .lanes
            .iter()
            .filter_map(|lane| lane.broken_until());
        groups.chain(lanes).filter(|until| *until > now).min()
    }

    /// Hands deliveries over to be run.
    fn admit(&self, lane: usize, deliveries: Vec<Delivery>, room: &mut Room) {
        let slots = room.take(deliveries.len());
        self.core.admit(lane, deliveries, slots, None);
    }

    /// Takes notice of how a read ended.
    async fn note(&mut self, landed: Landed) {
        let Landed { group, result } = landed;
        self.groups[group].failed = result.is_err();
        self.groups[group].emptied = matches!(result, Ok(Found::All));
        let lanes: Vec<usize> = self.lanes_of(group).collect();
        match result {
            Ok(_) => self.groups[group].patience.reset(),
            // Asked one by one in the next round, the queues show which of them it is.
            Err(error) if error.kind() == BackendKind::WrongType && lanes.len() > 1 => {
                self.groups[group].failed = false;
            }
            Err(error) => {
                for lane in lanes {
                    if !self.core.lane(lane).is_broken() {
                        self.recover(lane, &error).await;
                    }
                }
            }
        }
    }

    /// What a failed read calls for: the group made again, a broken queue left out, a lost reply
    /// looked for; and in any case a wait for this connection.
    async fn recover(&mut self, lane: usize, error: &BackendError) {
        let queue = self.core.lane(lane).queue.clone();
        match error.kind() {
            BackendKind::Group => match self.core.store.ensure(&queue).await {
                Ok(ensured) => {
                    self.groups[self.group_of[lane]].failed = false;
                    tracing::warn!(%queue, created = ensured.created, "the queue was made again");
                    self.core.lane(lane).released.store(true, Ordering::Release);
                }
                Err(error) if error.kind() == BackendKind::WrongType => {
                    self.leave_out(lane, &error)
                }
                Err(error) => self.wait(lane, &error),
            },
            BackendKind::WrongType => self.leave_out(lane, error),
            BackendKind::Ambiguous => {
                // For Redis the old connection may still wait, and would take the next entry.
                let conn = Arc::clone(&self.conns[self.group_of[lane]]);
                conn.kill_old(self.core.conn()).await;
                self.core.doubt.notify_one();
                self.wait(lane, error);
            }
            _ => self.wait(lane, error),
        }
    }

    fn leave_out(&mut self, lane: usize, error: &BackendError) {
        let group = &mut self.groups[self.group_of[lane]];
        // The connection is sound, and the queue itself is left alone.
        group.failed = false;
        let lane = self.core.lane(lane);
        lane.leave_out_for(BROKEN_FOR);
        let queue = &lane.queue;
        group.patience.note(
            "a key of a queue holds another type",
            &format_args!("{queue}: {error}"),
        );
    }

    /// Leaves the connection of a lane alone for a while.
    fn wait(&mut self, lane: usize, error: &BackendError) {
        let group = &mut self.groups[self.group_of[lane]];
        // An error of several lanes is one.
        if group.out_until.is_none_or(|until| until <= Instant::now()) {
            let wait = group.patience.note("failed to read tasks", error);
            group.out_until = Some(Instant::now() + wait);
        }
    }
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

//! What all loops of one client share, and the owner that ends them.
//!
//! Layer 4. [`Owner`] is what users' clones point to: when the last is dropped, every loop is
//! aborted and every connection closes. The loops themselves hold [`Shared`] only, so they never
//! keep a client alive.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::builder::Settings;
use super::enqueuer::Enqueuer;
use super::ids::IdSource;
use super::lane::{Identity, Lane};
use super::waiter::Outcome;
use super::{heartbeat, receiver, repair};
use crate::error::BackendError;
use crate::id::{ClientId, QueueName};
use crate::store::Store;
use crate::store::conn::Options as ConnOptions;

/// The first pause after an error; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long `close` waits for its loops and for Redis.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

pub(crate) struct Shared {
    pub(super) settings: Settings,
    pub(super) store: Store,
    /// For the connections that block.
    pub(super) connect: ConnOptions,
    /// The name this client starts with in each queue.
    pub(super) id: ClientId,
    pub(super) ids: IdSource,
    /// So that the usual queue costs no allocation per task.
    pub(super) default_queue: QueueName,
    /// Few, and read for every task: a sharded map would cost an allocation a shard to go through.
    lanes: RwLock<HashMap<QueueName, Arc<Lane>>>,
    /// Ends all loops. Cancelled by `close`, by the owner's drop, and by a loop that died.
    pub(super) stop: CancellationToken,
    loops: TaskTracker,
    aborts: Mutex<Vec<AbortHandle>>,
    /// Wakes the one receiver loop of a server that is not a cluster.
    wake: Arc<Notify>,
    gap_seen: Arc<Notify>,
    receiving: AtomicBool,
    repairing: AtomicBool,
    beating: AtomicBool,
    /// Errors of all loops since the start.
    errors: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        settings: Settings,
        store: Store,
        connect: ConnOptions,
        id: ClientId,
        ids: IdSource,
    ) -> Self {
        Self {
            settings,
            store,
            connect,
            id,
            ids,
            default_queue: QueueName::default(),
            lanes: RwLock::default(),
            stop: CancellationToken::new(),
            loops: TaskTracker::new(),
            aborts: Mutex::new(Vec::new()),
            wake: Arc::new(Notify::new()),
            gap_seen: Arc::new(Notify::new()),
            receiving: AtomicBool::new(false),
            repairing: AtomicBool::new(false),
            beating: AtomicBool::new(false),
            errors: AtomicU64::new(0),
        }
    }

    /// The lane of a queue, made at its first use.
    pub(super) fn lane(self: &Arc<Self>, queue: &QueueName) -> Arc<Lane> {
        let known = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = known.get(queue) {
            return Arc::clone(lane);
        }
        drop(known);
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes
            .entry(queue.clone())
            .or_insert_with(|| self.new_lane(queue));
        Arc::clone(lane)
    }

    pub(super) fn lanes(&self) -> Vec<Arc<Lane>> {
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        lanes.values().map(Arc::clone).collect()
    }

    fn new_lane(self: &Arc<Self>, queue: &QueueName) -> Arc<Lane> {
        let (sender, inbox) = mpsc::unbounded_channel();
        let wake = if self.store.conn().is_cluster() {
            Arc::new(Notify::new())
        } else {
            Arc::clone(&self.wake)
        };
        let lane = Arc::new(Lane::new(
            queue.clone(),
            self.identity(queue, self.id.clone()),
            self.settings.buffer,
            sender,
            wake,
            Arc::clone(&self.gap_seen),
        ));
        let enqueuer = Enqueuer::new(Arc::clone(self), Arc::clone(&lane), inbox);
        self.spawn("enqueuer", enqueuer.run());
        if !self.beating.swap(true, Ordering::AcqRel) {
            self.spawn("heartbeat", heartbeat::run(Arc::clone(self)));
        }
        lane
    }

    /// What a client of this name has in a queue.
    pub(super) fn identity(&self, queue: &QueueName, client: ClientId) -> Identity {
        let receiver = self.store.keys().queue(queue).receiver(&client);
        Identity { client, receiver }
    }

    /// Starts what reads the receiver of a lane, unless it runs.
    pub(super) fn receive(self: &Arc<Self>, lane: &Arc<Lane>) {
        if lane.receiving.load(Ordering::Acquire) || lane.receiving.swap(true, Ordering::AcqRel) {
            return;
        }
        let scope = if self.store.conn().is_cluster() {
            Some(receiver::Scope::One(Arc::clone(lane)))
        } else if self.receiving.swap(true, Ordering::AcqRel) {
            None
        } else {
            Some(receiver::Scope::All)
        };
        if let Some(scope) = scope {
            let wake = Arc::clone(&lane.wake);
            self.spawn("receiver", receiver::run(Arc::clone(self), scope, wake));
        }
        if !self.repairing.swap(true, Ordering::AcqRel) {
            let gap_seen = Arc::clone(&self.gap_seen);
            self.spawn("repair", repair::run(Arc::clone(self), gap_seen));
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.stop.is_cancelled()
    }

    fn spawn(
        self: &Arc<Self>,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let shared = Arc::clone(self);
        let span = tracing::info_span!(parent: None, "client", part = name, client = %self.id);
        let supervised = async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                shared.fail(name);
            }
        };
        let task = self.loops.spawn(supervised.instrument(span));
        let mut aborts = self.aborts.lock().unwrap_or_else(PoisonError::into_inner);
        aborts.push(task.abort_handle());
    }

    /// A loop died, which is a bug of the library: nobody may wait for what it would have brought.
    fn fail(&self, name: &'static str) {
        tracing::error!(
            part = name,
            "a loop of the client panicked: the client is closed"
        );
        self.stop.cancel();
        self.end_waiters();
    }

    /// Ends every wait with `Closed`.
    pub(super) fn end_waiters(&self) {
        for lane in self.lanes() {
            lane.end_all(&Outcome::Closed);
        }
    }

    /// Counts an error of a loop. The first of a row is worth a line, the rest are details.
    pub(super) fn count_error(
        &self,
        what: &'static str,
        queue: &QueueName,
        error: &BackendError,
        attempt: u32,
    ) {
        let errors = self.errors.fetch_add(1, Ordering::Relaxed) + 1;
        if attempt <= 1 {
            tracing::warn!(%queue, errors, "{what} failed, it is repeated: {error}");
        } else {
            tracing::debug!(%queue, errors, attempt, "{what} failed again: {error}");
        }
    }

    /// Waits, unless the client stops: then it is `false`.
    pub(super) async fn pause(&self, pause: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(pause) => true,
        }
    }

    /// Ends the loops, removes what this client has in Redis, closes the connections.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.end_waiters();
        self.loops.close();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.loops.wait())
            .await
            .is_err()
        {
            tracing::warn!("the client's loops did not end in time: they are aborted");
            self.abort();
        }
        // An enqueue that was just under way may have registered its waiter after the first pass.
        self.end_waiters();
        let removed = tokio::time::timeout(CLOSE_TIMEOUT, self.remove_keys()).await;
        if !matches!(removed, Ok(Ok(()))) {
            tracing::warn!("the client's keys were not removed: servers sweep them later");
        }
        self.store.conn().close().await;
    }

    async fn remove_keys(&self) -> Result<(), BackendError> {
        let mut result = Ok(());
        for lane in self.lanes() {
            let removed = self.store.client_close(&lane.queue, &lane.client()).await;
            result = result.and(removed.map(drop));
        }
        result
    }

    fn abort(&self) {
        let aborts = self.aborts.lock().unwrap_or_else(PoisonError::into_inner);
        aborts.iter().for_each(AbortHandle::abort);
    }
}

/// Keeps a client's loops running.
pub(crate) struct Owner {
    pub(super) shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        self.shared.abort();
    }
}

/// How long to wait after the n-th error of a row: doubled each time, with full jitter above a
/// tenth, so that clients which failed together do not come back together.
pub(super) fn retry_pause(attempt: u32) -> Duration {
    let longest = FIRST_PAUSE
        .saturating_mul(1 << attempt.min(10))
        .min(LONGEST_PAUSE);
    longest.mul_f64(0.1 + 0.9 * fastrand::f64())
}

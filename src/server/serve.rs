//! The life of a server: start, run until told, stop in order.
//!
//! Layer 4. It starts the loops, watches over them, and takes them down: stop taking, hand back what
//! was not started, wait for what runs, tell it, hand back what did not end, write what is left.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, RwLock, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::error::{ConnectError, ServerError};
use crate::id::Millis;
use crate::server::ahead::Line;
use crate::server::builder::Server;
use crate::server::clock::RedisClock;
use crate::server::core::{Core, Lane, Stop};
use crate::server::host::LaneHost;
use crate::server::keeper;
use crate::server::reader::read;
use crate::server::reconcile::reconcile;
use crate::server::report::{Counts, StopReport, add};
use crate::server::settler::{Done, SETTLE_BUFFER, settle};
use crate::server::signal::StopReason;
use crate::server::wake::listen;
use crate::store::Store;
use crate::store::blocking::BlockingConn;
use crate::store::conn::{Conn, Options as ConnOptions};
use crate::store::subscriber::Subscriber;
use crate::upkeep::{self, Host, Pace, Post, Times};

/// How long each part of a stop may wait for Redis. What Redis does not take by then is still ours,
/// and another server takes it over when the lease ends.
const FLUSH: Duration = Duration::from_secs(5);
/// How often blocked readers are woken until they have seen the stop.
const WAKE_AGAIN: Duration = Duration::from_millis(50);

/// Runs a server until `stop` is ready or one of its loops dies.
pub(crate) async fn serve(
    server: Server,
    stop: impl Future<Output = ()>,
) -> Result<StopReport, ServerError> {
    let mut running = start(server).await?;
    let me = running.core.me.clone();
    tracing::info!(server = %me, "server started");
    let died = tokio::select! {
        () = stop => None,
        died = running.loops.died() => Some(died),
    };
    let report = take_down(running).await;
    tracing::info!(server = %me, ?report, "server stopped");
    match died {
        None => Ok(report),
        Some((name, cause)) => Err(ServerError::LoopDied { name, cause }),
    }
}

/// A started server.
struct Running {
    core: Arc<Core>,
    loops: Loops,
    keeper: std::thread::JoinHandle<()>,
    guard: StopOnDrop,
}

/// Connects, makes sure of the queues, and starts every loop.
async fn start(server: Server) -> Result<Running, ServerError> {
    let options = |role: &str| ConnOptions {
        url: server.client.url().clone(),
        command_timeout: server.client.settings().command_timeout,
        name: format!("streamfleet-{role}-{}", server.me),
    };
    let conn = Conn::connect(&options("server")).await?;
    let store = Store::new(conn, server.client.prefix().clone());
    let mut now = Millis(0);
    for (queue, _) in &server.queues {
        now = store
            .ensure_serving(queue, server.settings.quiet_gap, server.settings.lease)
            .await
            .map_err(ConnectError::from)?
            .now;
    }
    let (senders, receivers): (Vec<_>, Vec<_>) = server
        .queues
        .iter()
        .map(|_| mpsc::channel::<Done>(SETTLE_BUFFER))
        .unzip();
    let lanes: Vec<Lane> = server
        .queues
        .iter()
        .zip(senders)
        .map(|((queue, weight), done)| Lane::new(queue.clone(), *weight, done))
        .collect();
    let keeper_options = options("keeper");
    let reader_options = options("reader");
    let wake_options = options("wakes");
    let core = Arc::new(Core {
        store,
        me: server.me,
        order: server.order,
        lanes,
        handlers: server.handlers,
        hooks: server.hooks,
        counts: Counts::default(),
        client: server.client,
        clock: RedisClock::new(now),
        slots: Arc::new(Semaphore::new(server.settings.concurrency)),
        line: Line::default(),
        suspect_lane: Arc::new(Semaphore::new(1)),
        deliveries_in_flight: RwLock::new(()),
        runs: TaskTracker::new(),
        stop: Stop::default(),
        doubt: Notify::new(),
        readers: Mutex::default(),
        settings: server.settings,
    });
    let guard = StopOnDrop(Arc::clone(&core));
    // Everything that can fail comes before the first read: what a server took that then does not
    // start would be nobody's for a lease.
    let readers = connect_readers(&core, &reader_options).await?;
    let channels = core
        .lanes
        .iter()
        .map(|lane| core.store.keys().queue(&lane.queue).wake())
        .collect();
    let (subscriber, wakes) = Subscriber::connect(&wake_options, channels).await?;
    let keeper = keeper::spawn(Arc::clone(&core), keeper_options).map_err(|error| {
        ServerError::LoopDied {
            name: "keeper",
            cause: error.to_string(),
        }
    })?;
    keeper::announce(&core).await;
    let mut loops = Loops::default();
    loops.spawn(Stage::Settling, "keeper", watch_keeper(Arc::clone(&core)));
    loops.spawn(
        Stage::Settling,
        "wake-ups",
        listen(Arc::clone(&core), subscriber, wakes),
    );
    loops.spawn(
        Stage::Taking,
        "reconciliation",
        reconcile(Arc::clone(&core)),
    );
    for (lane, receiver) in receivers.into_iter().enumerate() {
        loops.spawn(
            Stage::Settling,
            "settler",
            settle(Arc::clone(&core), lane, receiver),
        );
        start_upkeep(&core, &mut loops, lane);
    }
    loops.spawn(Stage::Taking, "reader", read(Arc::clone(&core), readers));
    Ok(Running {
        core,
        loops,
        keeper,
        guard,
    })
}

/// One connection for all queues; in a cluster, where one read cannot span slots, one for each.
async fn connect_readers(
    core: &Core,
    options: &ConnOptions,
) -> Result<Vec<(Arc<BlockingConn>, Vec<usize>)>, ServerError> {
    let all: Vec<usize> = (0..core.lanes.len()).collect();
    let groups: Vec<Vec<usize>> = if core.conn().is_cluster() {
        all.into_iter().map(|lane| vec![lane]).collect()
    } else {
        vec![all]
    };
    let mut readers = Vec::with_capacity(groups.len());
    for lanes in groups {
        let conn = Arc::new(BlockingConn::connect(options).await?);
        core.readers
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .push(Arc::clone(&conn));
        readers.push((conn, lanes));
    }
    Ok(readers)
}

fn start_upkeep(core: &Arc<Core>, loops: &mut Loops, lane: usize) {
    let place = core.lane(lane);
    let settings = &core.settings;
    let post = Post {
        store: core.store.clone(),
        queue: place.queue.clone(),
        me: core.me.clone(),
        times: Times {
            every: settings.upkeep_every,
            lock: settings.upkeep_every * 2,
            lease: settings.lease,
            quiet: settings.quiet_gap,
            unknown_grace: settings.unknown_grace,
            archive_keep: settings.archive_keep,
            archive_max: settings.archive_max,
            client_dead_after: settings.client_dead_after,
        },
        stop: core.stop.taking.clone(),
        wakes: Arc::clone(&place.wakes),
        pace: Arc::new(Pace::default()),
    };
    let host: Arc<dyn Host> = Arc::new(LaneHost {
        core: Arc::clone(core),
        lane,
    });
    loops.spawn(
        Stage::Taking,
        "reclaim",
        upkeep::reclaim(post.clone(), Arc::clone(&host)),
    );
    loops.spawn(
        Stage::Taking,
        "watch",
        upkeep::watch(post.clone(), Arc::clone(&host)),
    );
    loops.spawn(Stage::Taking, "unpark", upkeep::unpark(post, host));
}

/// Ends when the keeper does, so that its death is seen like that of any other loop.
async fn watch_keeper(core: Arc<Core>) {
    tokio::select! {
        () = core.stop.kept.cancelled() => {}
        () = core.stop.settling.cancelled() => {}
    }
}

/// Until when a loop runs.
#[derive(Clone, Copy)]
enum Stage {
    /// Until the server stops taking work.
    Taking,
    /// Until all runs have ended.
    Settling,
}

/// The loops of a server. Each ends only when its stage is over; one that ends earlier has died.
#[derive(Default)]
struct Loops {
    taking: JoinSet<&'static str>,
    settling: JoinSet<&'static str>,
    names: HashMap<tokio::task::Id, &'static str>,
}

impl Loops {
    fn spawn(
        &mut self,
        stage: Stage,
        name: &'static str,
        future: impl Future<Output = ()> + Send + 'static,
    ) {
        let named = async move {
            future.await;
            name
        };
        let set = match stage {
            Stage::Taking => &mut self.taking,
            Stage::Settling => &mut self.settling,
        };
        let handle = set.spawn(named.instrument(tracing::info_span!("loop", name)));
        self.names.insert(handle.id(), name);
    }

    /// Waits until a loop ends, and says which and how.
    async fn died(&mut self) -> (&'static str, String) {
        let ended = tokio::select! {
            Some(ended) = self.taking.join_next() => ended,
            Some(ended) = self.settling.join_next() => ended,
            else => return std::future::pending().await,
        };
        match ended {
            Ok(name) => (name, "it returned".to_owned()),
            Err(error) => {
                let name = self.names.get(&error.id()).copied().unwrap_or("unknown");
                (name, error.to_string())
            }
        }
    }
}

/// Takes a server down in order: nothing new, then the runs, then the writes, then the leases.
async fn take_down(running: Running) -> StopReport {
    let began = Instant::now();
    let Running {
        core,
        mut loops,
        keeper,
        guard,
    } = running;
    core.stop.taking.cancel();
    stop_taking(&core, &mut loops).await;
    end_runs(&core).await;
    let left = core.runs.len();
    add(&core.counts.abandoned, left);
    let last = finish(Arc::clone(&core), loops, keeper, guard);
    if left == 0 {
        // What it still writes belongs into the report.
        last.await;
    } else {
        // Handlers that block a thread cannot be stopped. Their leases are kept for as long as they
        // run and this process lives, so that nobody runs their tasks beside them.
        tracing::warn!(
            left,
            "handlers go on after the stop; their leases are kept until they end"
        );
        tokio::spawn(last);
    }
    core.counts.report(began.elapsed())
}

/// Waits for everything that could bring new work. What a read still brings is handed back.
async fn stop_taking(core: &Core, loops: &mut Loops) {
    let patience = Instant::now() + FLUSH;
    while !loops.taking.is_empty() && Instant::now() < patience {
        // Again and again: a reader may have been between two reads when it was woken.
        core.wake_readers().await;
        let _ = tokio::time::timeout(WAKE_AGAIN, loops.taking.join_next()).await;
    }
    loops.taking.abort_all();
    let readers = std::mem::take(
        &mut *core
            .readers
            .lock()
            .unwrap_or_else(|broken| broken.into_inner()),
    );
    for reader in readers {
        reader.close().await;
    }
}

/// Gives running handlers their time, then tells them, then drops them and hands their tasks back.
async fn end_runs(core: &Core) {
    core.runs.close();
    if tokio::time::timeout(core.settings.shutdown_timeout, core.runs.wait())
        .await
        .is_ok()
    {
        return;
    }
    for lane in &core.lanes {
        for held in lane.held.all() {
            held.signal.stop(StopReason::Shutdown);
        }
    }
    let _ = tokio::time::timeout(core.settings.handler_grace + FLUSH, core.runs.wait()).await;
}

/// Writes what is left, ends the leases and takes leave of every queue.
async fn finish(
    core: Arc<Core>,
    mut loops: Loops,
    keeper: std::thread::JoinHandle<()>,
    guard: StopOnDrop,
) {
    core.runs.wait().await;
    core.stop.settling.cancel();
    let settlers = async { while loops.settling.join_next().await.is_some() {} };
    if tokio::time::timeout(FLUSH, settlers).await.is_err() {
        tracing::warn!(
            held = core.held(),
            "redis did not take the last results; other servers take over when the leases end"
        );
    }
    core.stop.keeping.cancel();
    let kept = tokio::time::timeout(FLUSH, core.stop.kept.cancelled()).await;
    if kept.is_ok() && keeper.join().is_err() {
        tracing::error!("the keeper's thread panicked");
    }
    for lane in &core.lanes {
        if let Err(error) = core.store.server_leave(&lane.queue, &core.me).await {
            tracing::debug!(queue = %lane.queue, %error, "failed to take leave; the sweep will do it");
        }
    }
    core.conn().close().await;
    drop(guard);
}

/// Whoever drops the future of a running server gets a hard stop: nothing is waited for, leases end.
struct StopOnDrop(Arc<Core>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        let stop = &self.0.stop;
        stop.taking.cancel();
        stop.settling.cancel();
        stop.keeping.cancel();
        for lane in &self.0.lanes {
            for held in lane.held.all() {
                held.signal.stop(StopReason::Shutdown);
            }
        }
    }
}

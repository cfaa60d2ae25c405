//! Workers of the fault tests, in this process or in one of their own, and the task they run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use streamfleet::{
    Client, Context, Failure, Server, ServerBuilder, StopReport, Task, shutdown_signal,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{LONG, ms, now_ms};
use crate::support::process::{ChildProcess, ChildSpawn, role, say};
use crate::support::wait::eventually;

const SETUP_ENV: &str = "STREAMFLEET_TEST_SETUP";

/// The one task: a number, and what its handler does with its time.
#[derive(Serialize, Deserialize, Task, Clone, Debug)]
#[task(name = "fault.job", output = u64)]
pub(super) struct Job {
    pub(super) n: u64,
    pub(super) act: Act,
    /// Makes a payload large, and carries marks for the proxy.
    pub(super) filler: String,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub(super) enum Act {
    /// Sleeps this many milliseconds.
    Sleep(u64),
    /// Blocks its thread this long.
    Block(u64),
    /// Takes the process down after this long.
    Abort(u64),
    /// The first attempt takes `busy` and fails, to be retried after `retry`; the second succeeds.
    FailFirst { busy: u64, retry: u64 },
    /// The first attempt waits for the gate of its worker and fails.
    FailAtGate,
    /// The first delivery goes on until it is told to stop, then fails for good; others are quick.
    StaleFailure,
    /// The first delivery takes this long; others are quick.
    SlowOnce(u64),
}

impl Job {
    pub(super) fn new(n: u64, act: Act) -> Self {
        Self {
            n,
            act,
            filler: String::new(),
        }
    }

    pub(super) fn sleep(n: u64, millis: u64) -> Self {
        Self::new(n, Act::Sleep(millis))
    }
}

/// The function that every handler computes.
pub(super) const fn output_of(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
}

/// What a handler did, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) what: String,
    pub(super) n: u64,
    pub(super) attempt: u32,
    pub(super) count: u64,
    pub(super) at: u64,
}

impl Event {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("ev ")?.split(' ');
        Some(Self {
            what: words.next()?.to_owned(),
            n: words.next()?.parse().ok()?,
            attempt: words.next()?.parse().ok()?,
            count: words.next()?.parse().ok()?,
            at: words.next()?.parse().ok()?,
        })
    }
}

/// The state of a worker: what its handlers did.
#[derive(Debug)]
pub(super) struct Journal {
    print: bool,
    events: Mutex<Vec<Event>>,
    gate: watch::Sender<bool>,
}

impl Journal {
    fn new(print: bool) -> Arc<Self> {
        Arc::new(Self {
            print,
            events: Mutex::default(),
            gate: watch::Sender::new(false),
        })
    }

    fn note(&self, what: &str, n: u64, attempt: u32, count: u64) {
        let at = now_ms();
        if self.print {
            say(format_args!("ev {what} {n} {attempt} {count} {at}"));
        } else {
            self.events.lock().unwrap().push(Event {
                what: what.to_owned(),
                n,
                attempt,
                count,
                at,
            });
        }
    }
}

async fn run(cx: Context<Arc<Journal>>, job: Job) -> Result<u64, Failure> {
    let (attempt, count) = (cx.attempt(), cx.fence().count);
    let journal = Arc::clone(cx.state());
    let note = |what: &str| journal.note(what, job.n, attempt, count);
    note("start");
    match job.act {
        Act::Sleep(time) => tokio::time::sleep(ms(time)).await,
        Act::Block(time) => std::thread::sleep(ms(time)),
        Act::Abort(time) => {
            tokio::time::sleep(ms(time)).await;
            std::process::abort();
        }
        Act::FailFirst { busy, retry } => {
            tokio::time::sleep(ms(busy)).await;
            if attempt == 1 {
                return Err(Failure::retry_after(ms(retry), "the first attempt fails"));
            }
        }
        Act::FailAtGate if attempt == 1 => {
            let _ = journal.gate.subscribe().wait_for(|open| *open).await;
            return Err(Failure::retry_after(Duration::ZERO, "the gate opened"));
        }
        Act::StaleFailure if count == 1 => {
            let reason = cx.cancelled().await;
            note(&format!("told:{}", reason.as_str().replace(' ', "-")));
            return Err(Failure::never("a stale failure"));
        }
        Act::SlowOnce(time) if count == 1 => tokio::time::sleep(ms(time)).await,
        Act::FailAtGate | Act::StaleFailure | Act::SlowOnce(_) => {}
    }
    note("end");
    Ok(output_of(job.n))
}

/// What a worker is started with.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(super) struct Setup {
    pub(super) url: String,
    pub(super) queues: Vec<String>,
    pub(super) lease: Duration,
    /// The default is a quarter of the lease.
    pub(super) renew: Option<Duration>,
    pub(super) upkeep: Duration,
    pub(super) concurrency: usize,
    pub(super) shutdown: Duration,
    pub(super) max_crashes: u32,
    pub(super) client_dead_after: Duration,
}

impl Setup {
    pub(super) fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            queues: vec!["default".to_owned()],
            lease: Duration::from_secs(15),
            renew: None,
            upkeep: Duration::from_secs(2),
            concurrency: 16,
            shutdown: Duration::from_secs(25),
            max_crashes: 3,
            client_dead_after: Duration::from_secs(600),
        }
    }

    fn builder(&self, client: &Client, journal: &Arc<Journal>) -> ServerBuilder<Arc<Journal>> {
        let (archived, lost) = (Arc::clone(journal), Arc::clone(journal));
        let mut builder = Server::builder(client, Arc::clone(journal))
            .lease(self.lease)
            .renew_every(self.renew.unwrap_or(self.lease / 4))
            .quiet_gap(self.lease.mul_f64(0.4))
            .upkeep_every(self.upkeep)
            .concurrency(self.concurrency)
            .shutdown_timeout(self.shutdown)
            .max_crashes(self.max_crashes)
            .client_dead_after(self.client_dead_after)
            .on_archived(move |task| {
                archived.note(&format!("archived:{}", task.reason), 0, 0, 0);
            })
            .on_lease_lost(move |lost_one| lost.note("lost", 0, 0, lost_one.fence.count))
            .on(run);
        for queue in &self.queues {
            builder = builder.queue(queue, 1);
        }
        builder
    }

    /// Starts a worker in a process of its own, and waits until it serves.
    pub(super) async fn child(&self) -> ChildWorker {
        let worker = self.spawn();
        worker.ready().await;
        worker
    }

    /// Starts a worker in a process of its own.
    pub(super) fn spawn(&self) -> ChildWorker {
        let setup = serde_json::to_string(self).unwrap();
        let child = ChildSpawn::of_test("faults::worker::child_main", "worker");
        ChildWorker(child.env(SETUP_ENV, setup).spawn())
    }

    /// Starts a worker in this process, and waits until it serves.
    pub(super) async fn here(&self) -> LocalWorker {
        let client = Client::connect(&self.url).await.unwrap();
        let journal = Journal::new(false);
        let server = self.builder(&client, &journal).build().unwrap();
        let stop = CancellationToken::new();
        let (serves, serving) = tokio::sync::oneshot::channel();
        let stopped = stop.clone().cancelled_owned();
        // Polled for the first time when the server has started.
        let stopped = async {
            serves.send(()).unwrap();
            stopped.await;
        };
        let running = tokio::spawn(async move { server.run_until(stopped).await.unwrap() });
        serving.await.unwrap();
        LocalWorker {
            journal,
            stop,
            client,
            running,
        }
    }
}

/// A worker that is a process.
pub(super) struct ChildWorker(pub(super) ChildProcess);

impl ChildWorker {
    pub(super) async fn ready(&self) {
        self.0.line("serving", LONG).await;
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.0
            .lines()
            .iter()
            .filter_map(|line| Event::parse(line))
            .collect()
    }

    /// Its name in Redis.
    pub(super) async fn me(&self) -> String {
        let line = self.0.line("serving", LONG).await;
        line.split(' ').nth(1).unwrap().to_owned()
    }

    /// SIGTERM, and waits for the end.
    pub(super) async fn stop(&self) {
        self.0.term();
        let status = self.0.exit(LONG).await;
        assert!(status.success(), "{status}");
    }
}

/// A worker in this process.
pub(super) struct LocalWorker {
    pub(super) client: Client,
    journal: Arc<Journal>,
    stop: CancellationToken,
    running: JoinHandle<StopReport>,
}

impl LocalWorker {
    pub(super) fn events(&self) -> Vec<Event> {
        self.journal.events.lock().unwrap().clone()
    }

    pub(super) fn open_gate(&self) {
        self.journal.gate.send_replace(true);
    }

    pub(super) fn is_running(&self) -> bool {
        !self.running.is_finished()
    }

    pub(super) async fn stop(self) -> StopReport {
        self.stop.cancel();
        let report = self.running.await.unwrap();
        self.client.close().await;
        report
    }
}

/// How often something happened.
pub(super) fn count(events: &[Event], what: &str) -> usize {
    events.iter().filter(|event| event.what == what).count()
}

/// The numbers of the tasks that something happened to, in order, one for each time.
pub(super) fn numbers(events: &[Event], what: &str) -> Vec<u64> {
    let of = events.iter().filter(|event| event.what == what);
    let mut numbers: Vec<u64> = of.map(|event| event.n).collect();
    numbers.sort_unstable();
    numbers
}

/// When something happened last.
pub(super) fn last(events: &[Event], what: &str) -> u64 {
    let of = events.iter().filter(|event| event.what == what);
    of.map(|event| event.at).max().unwrap()
}

/// Waits until something happened this often.
pub(super) async fn seen(what: &str, times: usize, mut events: impl FnMut() -> Vec<Event>) {
    eventually(&format!("{times} x {what}"), LONG, async || {
        let found = count(&events(), what);
        (found >= times).then_some(()).ok_or(found)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_main() {
    if role().is_none() {
        return;
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let setup: Setup = serde_json::from_str(&std::env::var(SETUP_ENV).unwrap()).unwrap();
    let client = Client::connect(&setup.url).await.unwrap();
    let journal = Journal::new(true);
    let server = setup.builder(&client, &journal).build().unwrap();
    let me = server.id().to_string();
    // Polled for the first time when the server has started.
    let stop = async {
        say(format_args!("serving {me}"));
        shutdown_signal().await;
    };
    let report = server.run_until(stop).await.unwrap();
    say(format_args!("stopped {} {report:?}", now_ms()));
    client.close().await;
}

//! How far things go: bad input, full memory, missing rights, many tasks, nothing to do at all.
//!
//! What a task goes through in ordinary life is `conformance`, what happens when something dies is
//! `faults`. A test that measures a time has the machine to itself and three tries; what is correct
//! is never tried twice.

mod consumers;
mod delays;
mod idle;
mod input;
mod memory;
mod raw;
mod receivers;
mod rights;
mod sentinel;
mod starvation;
mod taking;
#[cfg(feature = "tls")]
mod tls;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use streamfleet::testing::{Reply, TestServer};
use streamfleet::{Client, Context, Failure, Server, ServerBuilder, ServerError, StopReport, Task};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{commands_received_by_name, eventually};

/// Ends a test that hangs; measures nothing.
const LONG: Duration = Duration::from_secs(30);

/// The one task of these tests.
#[derive(Serialize, Deserialize, Task, Clone, Debug)]
#[task(name = "limits.job", output = u64)]
struct Job {
    n: u64,
    /// How long it runs.
    ms: u64,
    filler: String,
}

impl Job {
    fn quick(n: u64) -> Self {
        Self::slow(n, 0)
    }

    fn slow(n: u64, ms: u64) -> Self {
        let filler = String::new();
        Self { n, ms, filler }
    }

    fn of_size(n: u64, bytes: usize) -> Self {
        let filler = "x".repeat(bytes);
        Self { n, ms: 0, filler }
    }
}

/// One start of a handler.
#[derive(Clone, Debug)]
struct Started {
    n: u64,
    /// The millisecond in its entry's id: when Redis made it available.
    available: u64,
    /// The clock of this machine, which Redis reads too.
    at: u64,
}

/// What the handlers saw.
type Log = Arc<Mutex<Vec<Started>>>;

async fn job(cx: Context<Log>, job: Job) -> Result<u64, Failure> {
    let started = Started {
        n: job.n,
        available: entry_ms(&cx.fence().entry.to_string()),
        at: now_ms(),
    };
    cx.state().lock().unwrap().push(started);
    if job.ms > 0 {
        tokio::time::sleep(ms(job.ms)).await;
    }
    Ok(job.n * 3)
}

fn entry_ms(entry: &str) -> u64 {
    entry.split('-').next().unwrap().parse().unwrap()
}

/// A server of this process.
struct Worker {
    id: String,
    stop: CancellationToken,
    running: JoinHandle<Result<StopReport, ServerError>>,
    log: Log,
}

impl Worker {
    /// Serves `default`, with whatever else the test sets.
    fn start(client: &Client, set: impl FnOnce(ServerBuilder<Log>) -> ServerBuilder<Log>) -> Self {
        let log = Log::default();
        let server = set(Server::builder(client, Arc::clone(&log)).on(job))
            .build()
            .unwrap();
        let id = server.id().to_string();
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run_until(stop.clone().cancelled_owned()));
        Self {
            id,
            stop,
            running,
            log,
        }
    }

    /// Until it reads.
    async fn ready(self, redis: &TestServer) -> Self {
        let name = format!("streamfleet-reader-{}", self.id);
        eventually("the reader is connected", LONG, async || {
            let list = redis.command(&["CLIENT", "LIST"]).await.unwrap();
            list.text().unwrap().contains(&name)
        })
        .await;
        self
    }

    fn started(&self) -> Vec<Started> {
        self.log.lock().unwrap().clone()
    }

    /// Stops it in order.
    async fn stop(self) -> StopReport {
        self.stop.cancel();
        tokio::time::timeout(LONG, self.running)
            .await
            .expect("a stop ends")
            .unwrap()
            .unwrap()
    }

    /// Drops it as a process that dies, but for its connections, which are closed.
    async fn drop_hard(self) {
        self.running.abort();
        let _ = self.running.await;
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

/// A key of the queue `default`.
fn key(kind: &str) -> String {
    format!("streamfleet:{{default}}:{kind}")
}

async fn ask(redis: &TestServer, command: &[&str]) -> Reply {
    redis
        .command(command)
        .await
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

async fn number(redis: &TestServer, command: &[&str]) -> i64 {
    let reply = ask(redis, command).await;
    reply
        .int()
        .unwrap_or_else(|| panic!("{command:?}: {reply:?}"))
}

/// How many entries are handed out.
async fn pending(redis: &TestServer) -> i64 {
    let reply = ask(redis, &["XPENDING", &key("s"), "servers"]).await;
    reply.items()[0].int().unwrap()
}

/// How often a command was called so far, also by scripts.
async fn calls(redis: &TestServer, name: &str) -> u64 {
    let all = commands_received_by_name(redis).await;
    all.get(name).copied().unwrap_or(0)
}

/// One field of INFO.
async fn info(redis: &TestServer, section: &str, name: &str) -> u64 {
    let text = ask(redis, &["INFO", section]).await.text().unwrap();
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .unwrap_or_else(|| panic!("no {name} in {text}"));
    found.trim().parse().unwrap()
}

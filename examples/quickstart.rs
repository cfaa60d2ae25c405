//! The demo: an awaited result, a retry, a scheduled task, and a worker that is killed while it
//! works. Each of the four is checked; the exit code says whether all were seen.
//!
//! `./dev demo` runs it: on `$REDIS_URL` if set, else on a private server that ends with it. The
//! workers are processes of their own: this program again, with `worker <name>` as arguments.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a demo talks to whoever runs it"
)]

use std::error::Error;
use std::fmt::Display;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use streamfleet::testing::TestServer;
use streamfleet::{
    Backoff, Client, Context, EnqueueError, Failure, Server, Task, TaskHandle, shutdown_signal,
};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

type AnyError = Box<dyn Error + Send + Sync>;

/// Far less than the default of 15 s, so that nobody waits long for the end of the demo.
const LEASE: Duration = Duration::from_secs(3);
const RENEW_EVERY: Duration = Duration::from_millis(800);
const QUIET_GAP: Duration = Duration::from_millis(1200);
/// How long any one thing may take before the demo calls it missing.
const PATIENCE: Duration = Duration::from_secs(20);
const DELAY: Duration = Duration::from_secs(2);
const BACKOFF: Duration = Duration::from_millis(400);

// ---- What is shared by client and workers: the tasks. ----

/// Fails `failures` times, then works for a while and says who did it.
#[derive(Serialize, Deserialize, Task)]
#[task(name = "demo.job", output = Done)]
struct Job {
    title: String,
    failures: u32,
    work: Duration,
}

#[derive(Serialize, Deserialize)]
struct Done {
    worker: String,
    pid: u32,
    attempt: u32,
}

// ---- The worker. ----

struct Worker {
    name: String,
}

async fn run_job(cx: Context<Worker>, job: Job) -> Result<Done, Failure> {
    let (name, pid) = (&cx.state().name, std::process::id());
    let (id, attempt) = (cx.id(), cx.attempt());
    say(
        name,
        format!("pid {pid} runs task {id}, attempt {attempt}: {}", job.title),
    );
    if attempt <= job.failures {
        return Err(Failure::new(format!("attempt {attempt} fails on purpose")));
    }
    tokio::time::sleep(job.work).await;
    Ok(Done {
        worker: name.clone(),
        pid,
        attempt,
    })
}

/// Runs until its input ends: that is when the demo drops it, or when the demo itself died. So no
/// worker is ever left behind.
async fn work(name: String) -> Result<(), AnyError> {
    let client = Client::builder(std::env::var("DEMO_URL")?)
        .prefix(std::env::var("DEMO_PREFIX")?)
        .connect()
        .await?;
    let server = Server::builder(&client, Worker { name: name.clone() })
        .label(&name)
        .lease(LEASE)
        .renew_every(RENEW_EVERY)
        .quiet_gap(QUIET_GAP)
        .upkeep_every(Duration::from_millis(500))
        .shutdown_timeout(Duration::from_secs(2))
        .on(run_job)
        .build()?;
    say(
        &name,
        format!("pid {} is ready as {}", std::process::id(), server.id()),
    );
    server.run_until(end_of_input()).await?;
    client.close().await;
    Ok(())
}

/// Ready when the demo wants this worker to stop, or is no more. In the second case Redis may be
/// gone too, and a stop in order would wait for it.
async fn end_of_input() {
    let mut input = tokio::io::stdin();
    while matches!(input.read(&mut [0; 64]).await, Ok(1..)) {}
    tokio::spawn(async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        std::process::exit(1);
    });
}

fn start_worker(name: &str, url: &str, prefix: &str) -> Result<Child, AnyError> {
    Ok(Command::new(std::env::current_exe()?)
        .args(["worker", name])
        .env("DEMO_URL", url)
        .env("DEMO_PREFIX", prefix)
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?)
}

/// Ends a worker in order, by the end of its input.
async fn stop_worker(mut worker: Child) -> Result<(), AnyError> {
    drop(worker.stdin.take());
    let status = tokio::time::timeout(PATIENCE, worker.wait()).await??;
    check(status.success(), format!("a worker ended with {status}"))
}

// ---- The client. ----

async fn demo(client: &Client, url: &str) -> Result<(), AnyError> {
    let prefix = client.prefix().as_str();
    let ada = start_worker("ada", url, prefix)?;
    awaited_result(client)
        .await
        .map_err(missing("an awaited result"))?;
    retry(client).await.map_err(missing("a retry"))?;
    scheduled(client)
        .await
        .map_err(missing("a scheduled task"))?;
    killed_worker(client, url, ada)
        .await
        .map_err(missing("the killed worker"))
}

async fn awaited_result(client: &Client) -> Result<(), AnyError> {
    println!("\n1. A result is awaited. Another process computes it and this one gets it pushed.");
    let handle = enqueue(client, "first", 0, Duration::ZERO, Duration::ZERO).await?;
    let done = finished(&handle).await?;
    check(
        done.pid != std::process::id(),
        "the task ran in the process that enqueued it",
    )
}

async fn retry(client: &Client) -> Result<(), AnyError> {
    println!(
        "\n2. A task fails twice. Redis holds it for {BACKOFF:?} each time, then it runs again."
    );
    let since = Instant::now();
    let handle = enqueue(client, "flaky", 2, Duration::ZERO, Duration::ZERO).await?;
    let done = finished(&handle).await?;
    check(
        done.attempt == 3,
        format!("it succeeded in attempt {}, not 3", done.attempt),
    )?;
    check(
        since.elapsed() >= 2 * BACKOFF,
        "the retries did not wait for their back-off",
    )
}

async fn scheduled(client: &Client) -> Result<(), AnyError> {
    println!("\n3. A task is scheduled to start {DELAY:?} from now, by the clock of Redis.");
    let since = Instant::now();
    let handle = enqueue(client, "later", 0, DELAY, Duration::ZERO).await?;
    let state = handle
        .status()
        .await?
        .map_or("gone".to_owned(), |status| status.state.to_string());
    say("client", format!("the task is {state}"));
    check(
        state == "scheduled",
        format!("the task is {state}, not scheduled"),
    )?;
    finished(&handle).await?;
    let took = since.elapsed();
    check(took >= DELAY, format!("it ran after {took:?}, too early"))?;
    check(
        took < 2 * DELAY,
        format!("it ran after {took:?}, far too late"),
    )
}

async fn killed_worker(client: &Client, url: &str, mut ada: Child) -> Result<(), AnyError> {
    println!("\n4. A worker is killed by SIGKILL while it works. Another one finishes its task.");
    let work = Duration::from_secs(2);
    let handle = enqueue(client, "long", 0, Duration::ZERO, work).await?;
    // Only Ada is there, so it is hers; but it must be on its way before she dies.
    let owner = owner_of(&handle).await?;
    check(
        owner.starts_with("ada-"),
        format!("{owner} runs it, not ada"),
    )?;
    let bob = start_worker("bob", url, client.prefix().as_str())?;
    let pid = ada.id().ok_or("ada ended by herself")?;
    ada.start_kill()?;
    let status = ada.wait().await?;
    let since = Instant::now();
    say("client", format!("killed {owner}, pid {pid}: {status}"));
    say(
        "client",
        format!("its lease of {LEASE:?} must end before anybody else may take the task"),
    );
    check(
        status.signal() == Some(9),
        "the worker ended before it was killed",
    )?;
    let done = finished(&handle).await?;
    check(
        done.worker == "bob",
        format!("{} finished it, not bob", done.worker),
    )?;
    check(
        done.attempt == 1,
        "the crash was counted as a failed attempt",
    )?;
    say(
        "client",
        format!(
            "bob finished ada's task {:.1} s after the kill",
            since.elapsed().as_secs_f64()
        ),
    );
    stop_worker(bob).await
}

async fn enqueue(
    client: &Client,
    title: &str,
    failures: u32,
    delay: Duration,
    work: Duration,
) -> Result<TaskHandle<Job>, EnqueueError> {
    let title = title.to_owned();
    let job = client
        .enqueue(Job {
            title,
            failures,
            work,
        })
        .backoff(Backoff::Fixed(BACKOFF));
    let job = if delay.is_zero() {
        job
    } else {
        job.delay(delay)
    };
    let handle = job.await?;
    say("client", format!("enqueued task {}", handle.id()));
    Ok(handle)
}

async fn finished(handle: &TaskHandle<Job>) -> Result<Done, AnyError> {
    let since = Instant::now();
    let done = handle.result_timeout(PATIENCE).await?;
    let Done {
        worker,
        pid,
        attempt,
    } = &done;
    let ms = since.elapsed().as_millis();
    say(
        "client",
        format!("after {ms} ms: done by {worker}, pid {pid}, in attempt {attempt}"),
    );
    Ok(done)
}

/// The server that runs the task, once there is one.
async fn owner_of(handle: &TaskHandle<Job>) -> Result<String, AnyError> {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        let consumer = handle.status().await?.and_then(|status| status.consumer);
        if let Some(consumer) = consumer {
            return Ok(consumer.to_string());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err("no worker took the task".into())
}

fn check(holds: bool, otherwise: impl Into<String>) -> Result<(), AnyError> {
    if holds {
        Ok(())
    } else {
        Err(otherwise.into().into())
    }
}

fn missing(claim: &'static str) -> impl FnOnce(AnyError) -> AnyError {
    move |error| format!("{claim} was not observed: {error}").into()
}

fn say(who: &str, what: impl Display) {
    println!("   {who:<7} {what}");
}

// ---- Where it runs. ----

/// On a Redis of somebody else: under a prefix of its own, which is removed in the end.
async fn on_shared(url: &str) -> Result<(), AnyError> {
    let prefix = format!("demo-{}", uuid::Uuid::new_v4().simple());
    println!("redis   the one of $REDIS_URL, all keys under {prefix}, removed at the end");
    let outcome = connected(url, &prefix).await;
    let removed = remove_keys(url, &prefix).await;
    match removed {
        Ok(keys) => println!("\nremoved the {keys} keys under {prefix}"),
        Err(error) => eprintln!("failed to remove the keys under {prefix}: {error}"),
    }
    outcome
}

async fn on_private() -> Result<(), AnyError> {
    let redis = TestServer::start().await?;
    let (kind, version, port) = (redis.kind(), redis.version(), redis.port());
    println!("redis   {kind} {version}, private, port {port}; it ends with this demo");
    redis.unchecked("the demo may end in the middle; the tests look for what is left behind");
    connected(&redis.url(), "streamfleet").await
}

async fn connected(url: &str, prefix: &str) -> Result<(), AnyError> {
    println!(
        "lease   {LEASE:?} instead of 15 s, renewed every {RENEW_EVERY:?}, quiet gap {QUIET_GAP:?}"
    );
    println!("client  pid {}", std::process::id());
    let client = Client::builder(url).prefix(prefix).connect().await?;
    let outcome = tokio::select! {
        outcome = demo(&client, url) => outcome,
        () = shutdown_signal() => Err("stopped by a signal".into()),
    };
    client.close().await;
    outcome
}

/// The library has no call that removes a whole prefix, for good reasons.
async fn remove_keys(url: &str, prefix: &str) -> Result<u64, AnyError> {
    use fred::prelude::{ClientLike, Config, KeysInterface};
    use futures_util::TryStreamExt;

    let redis = fred::prelude::Builder::from_config(Config::from_url(url)?).build()?;
    redis.init().await?;
    let pattern = format!("{prefix}:*");
    let keys: Vec<_> = if redis.is_clustered() {
        redis
            .scan_cluster_buffered(pattern, Some(1000), None)
            .try_collect()
            .await?
    } else {
        redis
            .scan_buffered(pattern, Some(1000), None)
            .try_collect()
            .await?
    };
    let mut removed = 0;
    // One by one, because in a cluster they are in several slots.
    for key in keys {
        removed += redis.unlink::<u64, _>(key).await?;
    }
    redis.quit().await?;
    Ok(removed)
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [role, name] = args.as_slice()
        && role == "worker"
    {
        return match work(name.clone()).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("worker {name} failed: {error}");
                ExitCode::FAILURE
            }
        };
    }
    println!("streamfleet quickstart");
    let since = Instant::now();
    let outcome = match std::env::var("REDIS_URL") {
        Ok(url) if !url.is_empty() => on_shared(&url).await,
        _ => on_private().await,
    };
    match outcome {
        Ok(()) => {
            println!(
                "\nall four were observed, in {:.1} s",
                since.elapsed().as_secs_f64()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("\nFAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

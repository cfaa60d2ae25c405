//! The subcommand `work`: what users get, for handlers that do nothing, wait, or compute.
//!
//! Each row drains a queue that was filled before, by a worker process of its own, so that memory
//! and processor time are the worker's alone.
//!
//! - `drain`: the worker process
//! - `bare`: the same handlers without a queue

mod bare;
mod drain;

use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use streamfleet::Client;

pub(crate) use drain::drain;

use self::drain::Drained;
use crate::Result;
use crate::cli::WorkArgs;
use crate::fleet::{self, Bench, Work};
use crate::host::Host;
use crate::layout::{self, QUEUE};
use crate::show::{self, Table, thousands};
use crate::stats::Percentiles;

/// A filled queue has at most so many tasks.
const MOST_TASKS: f64 = 400_000.0;
/// How long the idle system rests between two single tasks.
const PAUSE: Duration = Duration::from_millis(2);
/// Tasks of the measurement of memory.
const STORED: u64 = 50_000;

/// One handler at one concurrency.
#[derive(Clone, Debug, Serialize)]
struct Row {
    work: &'static str,
    concurrency: usize,
    tasks: u64,
    per_second: f64,
    /// The same handler in a loop of tokio without a queue.
    bare_per_second: f64,
    /// Commands that Redis received from the worker, for each task.
    commands: f64,
    cpu_ms_per_10k: f64,
    peak_rss_mib: f64,
    server_us: f64,
}

/// One task at a time.
#[derive(Clone, Copy, Debug, Serialize)]
struct Idle {
    start: Percentiles,
    result: Percentiles,
}

#[derive(Debug, Serialize)]
struct Report {
    server: String,
    durability: String,
    rows: Vec<Row>,
    idle: Idle,
    redis_bytes_awaited: f64,
    redis_bytes_forgotten: f64,
}

pub(crate) async fn run(args: &WorkArgs, json: bool) -> Result<()> {
    let mut rows = Vec::new();
    let mut server = String::new();
    for work in [Work::Noop, Work::Sleep, Work::Spin] {
        for &concurrency in &args.concurrency {
            show::progress(&format!("work: {} at {concurrency}", work.name()));
            let mut host = Host::start(args.durability.into()).await?;
            server = host.version();
            rows.push(row(&mut host, work, concurrency, args.time()).await?);
        }
    }
    show::progress("work: one task at a time");
    let host = Host::start(args.durability.into()).await?;
    let single = fleet::single(&host, args.time(), 16, PAUSE).await?;
    let idle = Idle {
        start: single.start.percentiles(),
        result: single.result.percentiles(),
    };
    show::progress("work: memory");
    let report = Report {
        server,
        durability: format!("{:?}", args.durability).to_lowercase(),
        rows,
        idle,
        redis_bytes_awaited: stored_bytes(Awaited::Yes).await?,
        redis_bytes_forgotten: stored_bytes(Awaited::No).await?,
    };
    show::progress_over();
    if json {
        show::print([serde_json::to_string_pretty(&report)?]);
    } else {
        report.print();
    }
    Ok(())
}

async fn row(host: &mut Host, work: Work, concurrency: usize, time: Duration) -> Result<Row> {
    let bare_per_second = bare::per_second(work, concurrency, time / 2).await?;
    // A guess at how many tasks last for the time; a no-op costs more here than in a bare loop.
    let guess = match work {
        Work::Sleep | Work::Spin => bare_per_second,
        Work::Noop | Work::Stamp => 40_000.0,
    };
    let tasks = (guess * time.as_secs_f64()).clamp(100.0, MOST_TASKS) as u64;
    let client = Client::connect(host.url()).await?;
    fill(&client, tasks, Awaited::No).await?;
    client.close().await;

    host.reset_stats()?;
    let used = host.cpu()?;
    let drained = spawn_drain(&host.url(), work, concurrency, tasks).await?;
    let server_us = (host.cpu()? - used) * 1e6 / tasks as f64;
    let left = host.length(&layout::key("s"))?;
    if left > 0 || drained.ran != tasks {
        return Err(format!("{tasks} tasks, {} runs, {left} entries left", drained.ran).into());
    }
    Ok(Row {
        work: work.name(),
        concurrency,
        tasks,
        per_second: drained.per_second,
        bare_per_second,
        commands: host.received()? as f64 / tasks as f64,
        cpu_ms_per_10k: drained.cpu_seconds * 1e3 * 1e4 / tasks as f64,
        peak_rss_mib: drained.peak_rss_bytes as f64 / f64::from(1 << 20),
        server_us,
    })
}

/// Runs this program once more, as a worker.
async fn spawn_drain(url: &str, work: Work, concurrency: usize, tasks: u64) -> Result<Drained> {
    let args = drain::arguments(url, work, concurrency, tasks);
    let program = std::env::current_exe()?;
    let output = tokio::task::spawn_blocking(move || {
        std::process::Command::new(program)
            .args(args)
            .stderr(Stdio::inherit())
            .output()
    })
    .await??;
    if !output.status.success() {
        return Err(format!("the worker ended with {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Whether somebody waits for the results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaited {
    Yes,
    No,
}

async fn fill(client: &Client, tasks: u64, awaited: Awaited) -> Result<()> {
    const CHUNK: u64 = 5_000;
    for first in (0..tasks).step_by(CHUNK as usize) {
        let chunk = (first..tasks.min(first + CHUNK)).map(Bench::new);
        let enqueue = client.enqueue_all(chunk).queue(QUEUE);
        match awaited {
            Awaited::Yes => enqueue
                .await?
                .into_iter()
                .try_for_each(|one| one.map(drop))?,
            Awaited::No => enqueue
                .forget()
                .await?
                .into_iter()
                .try_for_each(|one| one.map(drop))?,
        }
    }
    Ok(())
}

/// Bytes of Redis for each waiting task.
async fn stored_bytes(awaited: Awaited) -> Result<f64> {
    let mut host = Host::start(streamfleet::testing::AofMode::Off).await?;
    // The first tasks make the stream, the scripts and the connections.
    let client = Client::connect(host.url()).await?;
    fill(&client, 1_000, awaited).await?;
    let before = host.memory()?;
    fill(&client, STORED, awaited).await?;
    let after = host.memory()?;
    drop(client);
    Ok(after.saturating_sub(before) as f64 / STORED as f64)
}

impl Report {
    fn print(&self) {
        show::print([format!("{}, durability {}", self.server, self.durability)]);
        let mut table = Table::new(&[
            "handler",
            "concurrency",
            "tasks",
            "tasks/s",
            "bare/s",
            "share",
            "commands/task",
            "cpu ms/10k",
            "peak MiB",
            "redis us",
        ]);
        for row in &self.rows {
            table.row([
                row.work.to_owned(),
                row.concurrency.to_string(),
                row.tasks.to_string(),
                thousands(row.per_second),
                thousands(row.bare_per_second),
                format!("{:.2}", row.per_second / row.bare_per_second),
                format!("{:.3}", row.commands),
                format!("{:.0}", row.cpu_ms_per_10k),
                format!("{:.1}", row.peak_rss_mib),
                format!("{:.1}", row.server_us),
            ]);
        }
        show::print(table.lines());
        let mut table = Table::new(&["idle system, ms", "tasks", "p50", "p99", "p99.9", "max"]);
        for (name, all) in [
            ("enqueue -> start", self.idle.start),
            ("enqueue -> result", self.idle.result),
        ] {
            let ms = |value: f64| format!("{value:.3}");
            table.row([
                name.to_owned(),
                all.tasks.to_string(),
                ms(all.p50),
                ms(all.p99),
                ms(all.p999),
                ms(all.max),
            ]);
        }
        show::print(table.lines());
        show::print([format!(
            "bytes of Redis for each waiting task of 100 bytes: {:.0} awaited, {:.0} forgotten",
            self.redis_bytes_awaited, self.redis_bytes_forgotten
        )]);
    }
}

//! The subcommand `raw`: what Redis can do, printed.

use serde::Serialize;

use crate::Result;
use crate::cli::RawArgs;
use crate::host::{Host, redis_benchmark};
use crate::rate::{Rate, median};
use crate::raw;
use crate::show::{self, Table, thousands};
use crate::stats::Percentiles;

/// Below these the generator, not Redis, was the limit.
pub(crate) const LEAST_UTIL: f64 = 0.85;
pub(crate) const LEAST_OF_BENCHMARK: f64 = 0.9;

/// How the generator compares with `redis-benchmark` on the same XADD.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Strength {
    /// The best of ten, as the next one.
    pub(crate) plain_xadd: f64,
    /// Nothing where `redis-benchmark` is not installed.
    pub(crate) redis_benchmark: Option<f64>,
    /// The share of `redis-benchmark` that the generator reaches, the median of ten turns.
    pub(crate) share: Option<f64>,
    /// `redis-benchmark` with one connection and one command at a time.
    pub(crate) redis_benchmark_single: Option<f64>,
}

impl Strength {
    pub(crate) async fn measure(time: std::time::Duration) -> Result<Self> {
        let mut host = Host::start(streamfleet::testing::AofMode::Off).await?;
        raw::prepare(&host)?;
        let size = raw::plain_bytes();
        let calls = (time.as_secs_f64() * 200_000.0) as u32;
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        // In short turns of about the same length, because the neighbours of a machine change within
        // seconds: then both of a turn have the same ones, mostly.
        for _ in 0..10 {
            host.empty()?;
            ours.push(raw::plain_xadd(&mut host, time / 8)?.per_second());
            host.empty()?;
            theirs.extend(redis_benchmark(host.port(), 4, 100, calls / 2, size));
        }
        host.empty()?;
        let single = redis_benchmark(host.port(), 1, 1, calls / 10, size);
        let shares = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs);
        Ok(Self {
            share: (!theirs.is_empty()).then(|| median(shares)),
            plain_xadd: ours.into_iter().fold(0.0, f64::max),
            redis_benchmark: theirs.into_iter().reduce(f64::max),
            redis_benchmark_single: single,
        })
    }

    pub(crate) fn line(&self) -> String {
        let rate = |found: Option<f64>| found.map_or("not installed".to_owned(), thousands);
        format!(
            "plain XADD: {}/s; redis-benchmark -c 4 -P 100: {}, -c 1 -P 1: {}; of redis-benchmark: {}",
            thousands(self.plain_xadd),
            rate(self.redis_benchmark),
            rate(self.redis_benchmark_single),
            self.share
                .map_or("unknown".to_owned(), |share| format!("{share:.2}")),
        )
    }
}

/// Why the limit is not known, if so.
pub(crate) fn weakness(util: f64, strength: &Strength) -> Option<String> {
    if util < LEAST_UTIL {
        return Some(format!(
            "the server used only {util:.2} of its core in `raw`, {LEAST_UTIL} is needed: the generator is too weak"
        ));
    }
    let share = strength.share?;
    (share < LEAST_OF_BENCHMARK).then(|| {
        format!(
            "plain XADD reached only {share:.2} of redis-benchmark, {LEAST_OF_BENCHMARK} is needed: \
             the generator is too weak"
        )
    })
}

#[derive(Debug, Serialize)]
struct Report {
    server: String,
    durability: String,
    tracked: Vec<Rate>,
    forget: Vec<Rate>,
    enqueue: Vec<Rate>,
    single: Vec<Percentiles>,
    strength: Strength,
    raw_util: f64,
    warning: Option<String>,
}

pub(crate) async fn run(args: &RawArgs, json: bool) -> Result<()> {
    let time = args.time();
    let (mut tracked, mut forget, mut enqueue, mut single) = (vec![], vec![], vec![], vec![]);
    let mut version = String::new();
    for round in 1..=args.rounds {
        show::progress(&format!("raw: round {round} of {}", args.rounds));
        let mut host = Host::start(args.durability.into()).await?;
        version = host.version();
        let names = raw::prepare(&host)?;
        tracked.push(raw::life(&mut host, &names, time, true)?);
        let mut host = Host::start(args.durability.into()).await?;
        let names = raw::prepare(&host)?;
        forget.push(raw::life(&mut host, &names, time, false)?);
        let mut host = Host::start(args.durability.into()).await?;
        let names = raw::prepare(&host)?;
        enqueue.push(raw::enqueue(&mut host, &names, time)?);
        let host = Host::start(args.durability.into()).await?;
        let names = raw::prepare(&host)?;
        single.push(raw::single(&host, &names, time)?.percentiles());
    }
    show::progress("raw: plain XADD and redis-benchmark");
    let strength = Strength::measure(time).await?;
    show::progress_over();
    let raw_util = median(tracked.iter().map(Rate::busy_share));
    let report = Report {
        server: version,
        durability: format!("{:?}", args.durability).to_lowercase(),
        warning: weakness(raw_util, &strength),
        tracked,
        forget,
        enqueue,
        single,
        strength,
        raw_util,
    };
    if json {
        show::print([serde_json::to_string_pretty(&report)?]);
    } else {
        print_tables(&report);
    }
    Ok(())
}

fn print_tables(report: &Report) {
    let mut table = Table::new(&["raw", "tasks/s", "best", "server us/task", "util"]);
    let rows = [
        ("tracked", &report.tracked),
        ("forget", &report.forget),
        ("enqueue", &report.enqueue),
    ];
    for (name, rates) in rows {
        table.row([
            name.to_owned(),
            thousands(median(rates.iter().map(Rate::per_second))),
            thousands(rates.iter().map(Rate::per_second).fold(0.0, f64::max)),
            format!("{:.1}", median(rates.iter().map(Rate::server_us))),
            format!("{:.2}", median(rates.iter().map(Rate::busy_share))),
        ]);
    }
    show::print([format!(
        "{}, durability {}",
        report.server, report.durability
    )]);
    show::print(table.lines());
    let single = |of: fn(&Percentiles) -> f64| median(report.single.iter().map(of));
    show::print([format!(
        "one at a time: p50 {:.3} ms, p99 {:.3} ms, {}/s",
        single(|all| all.p50),
        single(|all| all.p99),
        thousands(1000.0 / single(|all| all.p50)),
    )]);
    show::print([
        report.strength.line(),
        format!("raw_util={:.2}", report.raw_util),
    ]);
    if let Some(warning) = &report.warning {
        show::print([format!("warning: {warning}")]);
    }
}

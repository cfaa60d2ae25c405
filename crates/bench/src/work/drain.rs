//! The worker process of `work`: drains a queue and says what that took of it.

use std::time::Instant;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::cli::DrainArgs;
use crate::fleet::{Fleet, Work};
use crate::own::{cpu_seconds, peak_rss};
use crate::show;

/// What a worker used.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Drained {
    pub(crate) ran: u64,
    /// From the first handler to the last.
    pub(crate) per_second: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_rss_bytes: u64,
}

/// The command line of the worker.
pub(crate) fn arguments(url: &str, work: Work, concurrency: usize, tasks: u64) -> Vec<String> {
    let work = work
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default();
    let pairs = [
        ("--url", url.to_owned()),
        ("--work", work),
        ("--concurrency", concurrency.to_string()),
    ];
    let pairs = pairs.into_iter().chain([("--tasks", tasks.to_string())]);
    std::iter::once("drain".to_owned())
        .chain(pairs.flat_map(|(name, value)| [name.to_owned(), value]))
        .collect()
}

/// Runs a server until it ran so many tasks, and prints one line of JSON.
pub(crate) async fn drain(args: &DrainArgs) -> Result<()> {
    let fleet = Fleet::start(&args.url, args.concurrency, args.work).await?;
    fleet.ran(1).await;
    let first = fleet.counter.ran();
    let began = Instant::now();
    fleet.ran(args.tasks).await;
    let per_second = (args.tasks - first) as f64 / began.elapsed().as_secs_f64();
    let ran = fleet.counter.ran();
    fleet.stop(args.tasks).await?;
    let drained = Drained {
        ran,
        per_second,
        cpu_seconds: cpu_seconds()?,
        peak_rss_bytes: peak_rss()?,
    };
    show::print([serde_json::to_string(&drained)?]);
    Ok(())
}

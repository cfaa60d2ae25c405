//! The words of the command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use streamfleet::testing::AofMode;

use crate::fleet::Work;

/// How near streamfleet comes to what one Redis core can do.
///
/// Each run starts private servers (redis-server or valkey-server on PATH, or
/// $STREAMFLEET_SERVER_BIN). Build it with --release.
#[derive(Parser, Debug)]
#[command(name = "streamfleet-bench", disable_version_flag = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) what: What,
    /// Print one JSON document instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum What {
    /// The limit: raw RESP, the library's own scripts, no library.
    Raw(RawArgs),
    /// The limit and the library in turn, and what the library reaches of it.
    Ratio(RatioArgs),
    /// Handlers that do nothing, wait, or compute: throughput, latency, memory.
    Work(WorkArgs),
    /// The worker process of `work`.
    #[command(hide = true)]
    Drain(DrainArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RawArgs {
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How often each is repeated; the median counts.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// How the server keeps its data.
    #[arg(long, value_enum, default_value_t = Durability::None)]
    pub(crate) durability: Durability,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RatioArgs {
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How often each is repeated; the medians count.
    #[arg(long, default_value_t = 7)]
    pub(crate) rounds: usize,
    /// How many handlers of the library run at a time.
    #[arg(long, default_value_t = 1000)]
    pub(crate) concurrency: usize,
    /// How many calls of `enqueue_all` are under way at a time.
    #[arg(long, default_value_t = 8)]
    pub(crate) producers: usize,
    /// How many tasks one call of `enqueue_all` has.
    #[arg(long, default_value_t = 100)]
    pub(crate) chunk: usize,
    /// Measure only these; the last line is not printed then.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// One short round of everything, to see that it works. Its numbers mean nothing.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print the last line although the generator was too weak to know the limit.
    #[arg(long, hide = true)]
    pub(crate) print_weak: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct WorkArgs {
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How many handlers run at a time; one table row each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 100, 1000])]
    pub(crate) concurrency: Vec<usize>,
    /// How the server keeps its data.
    #[arg(long, value_enum, default_value_t = Durability::None)]
    pub(crate) durability: Durability,
    /// Short runs, to see that it works. Its numbers mean nothing.
    #[arg(long)]
    pub(crate) quick: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DrainArgs {
    #[arg(long)]
    pub(crate) url: String,
    #[arg(long, value_enum)]
    pub(crate) work: Work,
    #[arg(long)]
    pub(crate) concurrency: usize,
    #[arg(long)]
    pub(crate) tasks: u64,
}

/// One thing that `ratio` compares.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Enqueue, run, awaited result.
    Tracked,
    /// The same without a notice.
    Forget,
    /// Enqueues alone.
    Enqueue,
    /// One task at a time.
    Latency,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durability {
    /// Nothing on disk.
    None,
    /// Append-only file, synced each second.
    Everysec,
    /// Append-only file, synced before each reply.
    Always,
}

impl From<Durability> for AofMode {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::None => Self::Off,
            Durability::Everysec => Self::EverySec,
            Durability::Always => Self::Always,
        }
    }
}

const QUICK: Duration = Duration::from_millis(300);
/// How many turns each side has in one round of `ratio`.
const TURNS: usize = 4;

impl RawArgs {
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

impl RatioArgs {
    pub(crate) fn time(&self) -> Duration {
        if self.quick {
            QUICK
        } else {
            Duration::from_secs_f64(self.seconds)
        }
    }

    /// How many turns each side has in one round.
    pub(crate) const fn turns(&self) -> usize {
        if self.quick { 1 } else { TURNS }
    }

    /// How long one turn is.
    pub(crate) fn turn(&self) -> Duration {
        self.time().div_f64(self.turns() as f64)
    }

    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds }
    }

    pub(crate) fn measures(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.only.is_empty()
    }
}

impl WorkArgs {
    pub(crate) fn time(&self) -> Duration {
        if self.quick {
            QUICK
        } else {
            Duration::from_secs_f64(self.seconds)
        }
    }
}

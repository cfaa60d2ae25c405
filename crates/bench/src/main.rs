//! `streamfleet-bench`: the library measured against the limit of one Redis core.
//!
//! - `limit`: the subcommand `raw`, over the modules `raw`, `wire`, `scripts` and `layout`
//! - `ratio`: that and the library in turn, over the module `fleet`
//! - `work`: handlers of several kinds, each drained by a process of its own
//! - `host`: the private server of a run; `rate`, `stats`, `show`: numbers and how they are printed
//!
//! What each number means is in docs/performance.md.

#[cfg(test)]
mod agreement;
mod cli;
mod cores;
mod fleet;
mod host;
mod layout;
mod limit;
mod own;
mod rate;
mod ratio;
mod raw;
mod scripts;
mod show;
mod stats;
mod wire;
mod work;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, What};

/// Whatever ends a run: the text is all that is done with it.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if matches!(cli.what, What::Raw(_) | What::Ratio(_)) {
        cores::move_to_own();
    }
    run(&cli)
}

#[tokio::main]
async fn run(cli: &Cli) -> ExitCode {
    let ran = match &cli.what {
        What::Raw(args) => limit::run(args, cli.json).await,
        What::Ratio(args) => ratio::run(args, cli.json).await,
        What::Work(args) => work::run(args, cli.json).await,
        What::Drain(args) => work::drain(args).await,
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            show::progress_over();
            show::progress(&format!("error: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

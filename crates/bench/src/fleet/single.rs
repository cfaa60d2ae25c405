//! One task at a time, on a system that is idle otherwise.

use std::time::{Duration, Instant};

use super::{Bench, Fleet, Work};
use crate::Result;
use crate::host::Host;
use crate::layout::QUEUE;
use crate::stats::Latencies;

/// How long single tasks take.
#[derive(Debug)]
pub(crate) struct Single {
    /// From the enqueue to the first line of the handler.
    pub(crate) start: Latencies,
    /// From the enqueue to the awaited result.
    pub(crate) result: Latencies,
}

/// Enqueues, awaits the result, and waits for `pause` before the next.
///
/// # Errors
/// Also when a result is wrong.
pub(crate) async fn single(
    host: &Host,
    time: Duration,
    concurrency: usize,
    pause: Duration,
) -> Result<Single> {
    let fleet = Fleet::start(&host.url(), concurrency, Work::Stamp).await?;
    // In a task, as a request handler is: what `main` awaits runs on a thread beside the workers.
    let (fleet, single, tasks) = tokio::spawn(one_by_one(fleet, time, pause)).await??;
    fleet.stop(tasks).await?;
    Ok(single)
}

async fn one_by_one(fleet: Fleet, time: Duration, pause: Duration) -> Result<(Fleet, Single, u64)> {
    let mut single = Single {
        start: Latencies::new()?,
        result: Latencies::new()?,
    };
    let mut number = 0;
    let began = Instant::now();
    while began.elapsed() < time {
        let sent = Instant::now();
        let output = fleet
            .client
            .enqueue(Bench::new(number))
            .queue(QUEUE)
            .await?
            .result()
            .await?;
        // The first ones find cold code and connections that are being made.
        if number >= 10 {
            single.result.add(sent.elapsed());
            single
                .start
                .add(fleet.counter.started().saturating_duration_since(sent));
        }
        if output != Bench::expected(number) {
            return Err(format!("task {number} answered {output}").into());
        }
        number += 1;
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    Ok((fleet, single, number))
}

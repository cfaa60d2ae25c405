//! The same handlers in a loop of tokio, without a queue: what the machine can do of them.

use std::time::{Duration, Instant};

use crate::Result;
use crate::fleet::Work;

/// Runs of the handler per second, so many at a time, each as a task of its own as in a server.
pub(crate) async fn per_second(work: Work, concurrency: usize, time: Duration) -> Result<f64> {
    let began = Instant::now();
    let mut loops = tokio::task::JoinSet::<Result<u64>>::new();
    for _ in 0..concurrency {
        loops.spawn(async move {
            let mut runs = 0;
            while began.elapsed() < time {
                tokio::spawn(work.run()).await?;
                runs += 1;
            }
            Ok(runs)
        });
    }
    let mut runs = 0;
    while let Some(ended) = loops.join_next().await {
        runs += ended??;
    }
    Ok(runs as f64 / began.elapsed().as_secs_f64())
}

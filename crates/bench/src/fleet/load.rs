//! Many tasks at once: several calls of `enqueue_all` under way, and then every result.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use streamfleet::{Client, TaskHandle};

use super::{Bench, Fleet, Work};
use crate::Result;
use crate::host::Host;
use crate::layout::{self, QUEUE};
use crate::rate::Rate;

/// How a user gives work: so many calls at a time, so many tasks each, so many handlers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) producers: usize,
    pub(crate) chunk: usize,
    pub(crate) concurrency: usize,
}

/// Tasks per second from the enqueue to the awaited result.
///
/// # Errors
/// Also when a result is wrong, a handler did not run, or an entry is left.
pub(crate) async fn tracked(host: &mut Host, time: Duration, shape: Shape) -> Result<Rate> {
    let fleet = Fleet::start(&host.url(), shape.concurrency, Work::Noop).await?;
    let used = host.cpu()?;
    let began = Instant::now();
    let tasks = produce(
        &fleet.client,
        began + time,
        shape,
        |client, first, count| async move {
            for (number, handle) in (first..).zip(enqueue_chunk(&client, first, count).await?) {
                let output = handle.result().await?;
                if output != Bench::expected(number) {
                    return Err(format!("task {number} answered {output}").into());
                }
            }
            Ok(())
        },
    )
    .await?;
    let rate = Rate::new(tasks, began.elapsed(), host.cpu()? - used);
    finish(host, fleet, tasks).await?;
    Ok(rate)
}

/// Tasks per second when nobody waits for a result.
pub(crate) async fn forget(host: &mut Host, time: Duration, shape: Shape) -> Result<Rate> {
    let fleet = Fleet::start(&host.url(), shape.concurrency, Work::Noop).await?;
    let used = host.cpu()?;
    let began = Instant::now();
    let tasks = produce(
        &fleet.client,
        began + time,
        shape,
        |client, first, count| async move {
            let tasks = (first..first + count).map(Bench::new);
            for id in client.enqueue_all(tasks).queue(QUEUE).forget().await? {
                id?;
            }
            Ok(())
        },
    )
    .await?;
    fleet.ran(tasks).await;
    let rate = Rate::new(tasks, began.elapsed(), host.cpu()? - used);
    finish(host, fleet, tasks).await?;
    Ok(rate)
}

/// Tasks per second into the stream, with nobody who runs them.
pub(crate) async fn enqueue(host: &mut Host, time: Duration, shape: Shape) -> Result<Rate> {
    let client = Client::connect(host.url()).await?;
    let used = host.cpu()?;
    let began = Instant::now();
    let tasks = produce(
        &client,
        began + time,
        shape,
        |client, first, count| async move {
            enqueue_chunk(&client, first, count).await?;
            Ok(())
        },
    )
    .await?;
    let rate = Rate::new(tasks, began.elapsed(), host.cpu()? - used);
    client.close().await;
    let stored = host.length(&layout::key("s"))?;
    if stored != tasks {
        return Err(format!("{stored} entries in the stream, {tasks} were acknowledged").into());
    }
    Ok(rate)
}

async fn enqueue_chunk(client: &Client, first: u64, count: u64) -> Result<Vec<TaskHandle<Bench>>> {
    let tasks = (first..first + count).map(Bench::new);
    let handles = client.enqueue_all(tasks).queue(QUEUE).await?;
    Ok(handles.into_iter().collect::<std::result::Result<_, _>>()?)
}

/// Calls `chunk` from several tasks until the time is over, and waits for all of them. Answers how
/// many tasks that were.
async fn produce<F, C>(client: &Client, end: Instant, shape: Shape, chunk: F) -> Result<u64>
where
    F: Fn(Client, u64, u64) -> C + Copy + Send + 'static,
    C: Future<Output = Result<()>> + Send,
{
    let next = Arc::new(AtomicU64::new(0));
    let count = shape.chunk as u64;
    let mut producers = tokio::task::JoinSet::<Result<()>>::new();
    for _ in 0..shape.producers {
        let (client, next) = (client.clone(), Arc::clone(&next));
        producers.spawn(async move {
            while Instant::now() < end {
                let first = next.fetch_add(count, Ordering::Relaxed);
                chunk(client.clone(), first, count).await?;
            }
            Ok(())
        });
    }
    while let Some(ended) = producers.join_next().await {
        ended??;
    }
    Ok(next.load(Ordering::Relaxed))
}

async fn finish(host: &mut Host, fleet: Fleet, tasks: u64) -> Result<()> {
    fleet.stop(tasks).await?;
    match host.length(&layout::key("s"))? {
        0 => Ok(()),
        left => Err(format!("{left} entries are left in the stream").into()),
    }
}

//! What happens after a failure is said by the error: try again by policy, after a time of its own,
//! or never. The waits are in Redis, so they survive every crash.
//!
//! Uses `$REDIS_URL`, else a Redis on this machine.

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use streamfleet::{Backoff, Client, Context, Failure, Page, ResultError, Server, Task};
use tokio::sync::oneshot;

const QUEUE: &str = "retries";

#[derive(Serialize, Deserialize, Task)]
#[task(name = "page.fetch", output = String)]
enum Fetch {
    Flaky,
    Busy,
    Gone,
}

async fn fetch(cx: Context<Instant>, task: Fetch) -> Result<String, Failure> {
    let (ms, attempt) = (cx.state().elapsed().as_millis(), cx.attempt());
    match task {
        // Any error that `?` takes is retried by the back-off of the task. This one mends itself
        // at the third attempt.
        Fetch::Flaky if attempt < 3 => {
            println!("{ms:5} ms  flaky, attempt {attempt}: fails");
            "not a number".parse::<u32>()?;
        }
        // The other side said when to come again.
        Fetch::Busy if attempt == 1 => {
            println!("{ms:5} ms  busy: asked to come again after 500 ms");
            let wait = Duration::from_millis(500);
            return Err(Failure::retry_after(wait, "too many requests"));
        }
        // No retry can mend it: it goes to the archive, where a person can look at it.
        Fetch::Gone => return Err(Failure::never("404")),
        Fetch::Flaky | Fetch::Busy => {}
    }
    Ok(format!("{ms:5} ms  done in attempt {attempt}"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let client = Client::connect(url).await?;
    let server = Server::builder(&client, Instant::now())
        .queue(QUEUE, 1)
        .on(fetch)
        // Called for every task that will not be tried again, also where a crash was the reason.
        .on_archived(|task| println!("archived  {}: {}, {}", task.name, task.reason, task.error))
        .build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(server.run_until(async { _ = stopped.await }));

    let enqueue = |task| client.enqueue(task).queue(QUEUE);
    let flaky = enqueue(Fetch::Flaky)
        .max_retries(5)
        .backoff(Backoff::Fixed(Duration::from_millis(200)))
        .await?;
    let busy = enqueue(Fetch::Busy).await?;
    let gone = enqueue(Fetch::Gone).await?;

    println!("{}", flaky.result().await?);
    println!("{}", busy.result().await?);
    // The error is data: it comes back as the type the handler returned.
    match gone.result().await {
        Err(ResultError::Failed(failure)) => println!("gone      {}", failure.message()),
        other => return Err(format!("expected a failure, got {other:?}").into()),
    }

    // An archived task can be run again or deleted.
    let inspect = client.inspect();
    let page = inspect.archived(QUEUE, Page::first(10)).await?;
    println!("{} in the archive", page.tasks.len());
    inspect.delete(QUEUE, gone.id()).await?;

    drop(stop);
    println!("{:?}", server.await??);
    client.close().await;
    Ok(())
}

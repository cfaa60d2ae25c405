//! A server that is told to stop: what runs may end, what does not end in time is told, and handed
//! back for another server, which starts it at once. Nothing is lost and no attempt is used up.
//!
//! Uses `$REDIS_URL`, else a Redis on this machine. Ctrl-C stops the first server as well.

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use streamfleet::{Client, Context, Failure, Server, ServerBuilder, Task, shutdown_signal};
use tokio::sync::{Semaphore, oneshot};

const QUEUE: &str = "graceful-shutdown";

#[derive(Serialize, Deserialize, Task)]
#[task(name = "report.write", output = String)]
struct Report {
    pages: u32,
}

struct App {
    name: &'static str,
    /// One permit for each start, so that the demo knows when both run.
    started: Arc<Semaphore>,
}

async fn write_report(cx: Context<App>, task: Report) -> Result<String, Failure> {
    let (name, pages, attempt) = (cx.state().name, task.pages, cx.attempt());
    println!("{name} starts a report of {pages} pages, attempt {attempt}");
    cx.state().started.add_permits(1);
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(200) * pages) => {}
        // A handler need not look; it would be dropped at its next await after a grace. One that
        // looks can put its things in order first. What it returns does not count as a failure.
        reason = cx.cancelled() => {
            println!("{name} puts the report of {pages} pages away: {}", reason.as_str());
            return Err(Failure::new(reason.as_str()));
        }
    }
    Ok(format!("{name} wrote {pages} pages in attempt {attempt}"))
}

fn server(client: &Client, name: &'static str, started: &Arc<Semaphore>) -> ServerBuilder<App> {
    let started = Arc::clone(started);
    Server::builder(client, App { name, started })
        .label(name)
        .queue(QUEUE, 1)
        .on(write_report)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let client = Client::connect(url).await?;
    let started = Arc::new(Semaphore::new(0));

    let short = client.enqueue(Report { pages: 2 }).queue(QUEUE).await?;
    let long = client.enqueue(Report { pages: 10 }).queue(QUEUE).await?;

    let first = server(&client, "first", &started)
        // The default is 25 s: what most platforms give a process, less a little.
        .shutdown_timeout(Duration::from_secs(1))
        .build()?;
    let report = first
        .run_until(async {
            tokio::select! {
                _ = started.acquire_many(2) => println!("both run: the first server is told to stop"),
                () = shutdown_signal() => {}
            }
        })
        .await?;
    println!(
        "first stopped in {:.1?}: {} succeeded, {} handed back",
        report.stop_took, report.succeeded, report.interrupted
    );

    let (stop, stopped) = oneshot::channel::<()>();
    let second = server(&client, "second", &started).build()?;
    let second = tokio::spawn(second.run_until(async { _ = stopped.await }));
    println!("{}", short.result().await?);
    println!("{}", long.result().await?);
    drop(stop);
    let report = second.await??;
    println!("second stopped: {} succeeded", report.succeeded);
    client.close().await;
    Ok(())
}

//! The worker of a pair; `producer` gives it work. Start any number of them, on any machines.
//!
//! Runs until SIGTERM or Ctrl-C, then stops in order. Uses `$REDIS_URL`, else a Redis on this
//! machine.

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use streamfleet::{Client, Context, Failure, Server, Task, shutdown_signal};

// Usually in a crate that worker and producer share. The two only have to agree about the name and
// about what is serialized: here the struct is simply written twice.
#[derive(Serialize, Deserialize, Task)]
#[task(name = "image.resize", output = String)]
struct Resize {
    image: String,
    width: u32,
}

/// What all handlers share: connections, settings.
struct App {
    bucket: String,
}

async fn resize(cx: Context<App>, task: Resize) -> Result<String, Failure> {
    // Stands for the work. It may take as long as the task's timeout: the lease is renewed.
    tokio::time::sleep(Duration::from_millis(50)).await;
    println!("{} of queue {}", task.image, cx.queue());
    Ok(format!(
        "{}/{}-{}",
        cx.state().bucket,
        task.width,
        task.image
    ))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let client = Client::connect(url).await?;
    let bucket = "s3://thumbnails".to_owned();
    let server = Server::builder(&client, App { bucket })
        // While both have work, `critical` is asked first six times out of seven; so `low` is slow, but never starves.
        .queue("critical", 6)
        .queue("low", 1)
        .on(resize)
        .build()?;
    println!("{} is ready, pid {}", server.id(), std::process::id());

    let report = server.run_until(shutdown_signal()).await?;
    println!(
        "{} succeeded, {} handed back",
        report.succeeded, report.released
    );
    client.close().await;
    Ok(())
}

//! The producer of a pair: enqueues tasks and awaits what a `worker` made of them.
//!
//! It may be started before the worker: the tasks wait in Redis, and so does this program. Uses
//! `$REDIS_URL`, else a Redis on this machine.

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use streamfleet::{Client, Task};

// The same name and the same fields as in `worker`; a producer needs no handler.
#[derive(Serialize, Deserialize, Task)]
#[task(name = "image.resize", output = String)]
struct Resize {
    image: String,
    width: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let client = Client::connect(url).await?;

    let image = |n| format!("{n}.png");
    let many = (1..=20).map(|n| Resize {
        image: image(n),
        width: 200,
    });
    let low = client.enqueue_all(many).queue("low").await?;
    // Enqueued last, but not served last.
    let urgent = client
        .enqueue(Resize {
            image: "urgent.png".into(),
            width: 800,
        })
        .queue("critical")
        .timeout(Duration::from_secs(30))
        .await?;
    // Nobody waits for this one, so nobody is told. It costs less.
    let id = client
        .enqueue(Resize {
            image: "later.png".into(),
            width: 80,
        })
        .queue("low")
        .delay(Duration::from_millis(300))
        .forget()
        .await?;
    println!("{} tasks wait for results, {id} does not", low.len() + 1);

    println!("{}", urgent.result().await?);
    for handle in low {
        println!("{}", handle?.result().await?);
    }
    client.close().await;
    Ok(())
}

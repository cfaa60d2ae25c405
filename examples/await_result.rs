//! Enqueue, and await the typed result: the shortest whole program.
//!
//! Client and server share a process here to keep it short; they need not, see `producer` and
//! `worker`. Uses `$REDIS_URL`, else a Redis on this machine.

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use streamfleet::{Client, Context, Failure, Server, Task};
use tokio::sync::oneshot;

// The name is what is stored, so the type may be renamed; the output is part of the type, so the
// client cannot await anything else.
#[derive(Serialize, Deserialize, Task)]
#[task(name = "text.count-words", output = usize)]
struct CountWords {
    text: String,
}

async fn count_words(_cx: Context<()>, task: CountWords) -> Result<usize, Failure> {
    Ok(task.text.split_whitespace().count())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let client = Client::connect(url).await?;

    let server = Server::builder(&client, ())
        .queue("await-result", 1)
        .on(count_words)
        .build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(server.run_until(async { _ = stopped.await }));

    let text = "to be or not to be".to_owned();
    // The first await ends when the task is in Redis. From here on it survives this process.
    let handle = client
        .enqueue(CountWords { text })
        .queue("await-result")
        .await?;
    println!("task {} is in Redis", handle.id());
    // The second ends when the result was pushed here: nothing polls.
    println!("it has {} words", handle.result().await?);

    // Many at once, one result for each. Waiting is one connection, however many wait.
    let texts = ["one", "one two", "one two three"];
    let tasks = texts.map(|text| CountWords { text: text.into() });
    for handle in client.enqueue_all(tasks).queue("await-result").await? {
        let words = handle?.result_timeout(Duration::from_secs(10)).await?;
        println!("another has {words}");
    }

    drop(stop);
    println!("{:?}", server.await??);
    client.close().await;
    Ok(())
}

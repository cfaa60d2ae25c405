use serde::{Deserialize, Serialize};
use streamfleet::{Context, Failure, ServerBuilder, Task};

#[derive(Serialize, Deserialize, Task)]
#[task(name = "first", output = T)]
struct First<T> {
    items: Vec<T>,
}

struct NotData;

async fn first(_cx: Context<()>, _task: First<NotData>) -> Result<NotData, Failure> {
    Err(Failure::never("empty"))
}

fn register(server: ServerBuilder<()>) {
    let _ = server.on(first);
}

fn main() {}

use serde::{Deserialize, Serialize};
use streamfleet::{Context, Failure, ServerBuilder, Task};

#[derive(Serialize, Deserialize, Task)]
#[task(name = "first", output = T)]
struct First<T> {
    items: Vec<T>,
}

// Data, but bound to its thread.
#[derive(Serialize, Deserialize)]
struct Local {
    #[serde(skip, default = "std::ptr::null")]
    at: *const u8,
}

async fn first(_cx: Context<()>, _task: First<Local>) -> Result<Local, Failure> {
    Err(Failure::never("empty"))
}

fn register(server: ServerBuilder<()>) {
    let _ = server.on(first);
}

fn main() {}

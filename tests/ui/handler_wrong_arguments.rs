use serde::{Deserialize, Serialize};
use streamfleet::{Context, Failure, ServerBuilder, Task};

struct App;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", output = String)]
struct Resize {
    url: String,
}

async fn only_task(task: Resize) -> Result<String, Failure> {
    Ok(task.url)
}

async fn swapped(task: Resize, _cx: Context<App>) -> Result<String, Failure> {
    Ok(task.url)
}

fn register(server: ServerBuilder<App>) {
    let _ = server.on(only_task);
}

fn register_swapped(server: ServerBuilder<App>) {
    let _ = server.on(swapped);
}

fn main() {}

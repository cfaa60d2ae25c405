use serde::{Deserialize, Serialize};
use streamfleet::{Context, Failure, ServerBuilder, Task};

struct App;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", output = String)]
struct Resize {
    url: String,
}

async fn resize(_cx: Context<App>, task: Resize) -> Result<usize, Failure> {
    Ok(task.url.len())
}

fn register(server: ServerBuilder<App>) {
    let _ = server.on(resize);
}

fn register_closure(server: ServerBuilder<App>) {
    let _ = server.on(async |_cx, task: Resize| Ok(task.url.len()));
}

fn main() {}

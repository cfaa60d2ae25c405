use serde::{Deserialize, Serialize};
use streamfleet::{Context, Failure, ServerBuilder, Task};

struct App;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", output = String)]
struct Resize {
    url: String,
}

fn resize(_cx: Context<App>, task: Resize) -> Result<String, Failure> {
    Ok(task.url)
}

fn register(server: ServerBuilder<App>) {
    let _ = server.on(resize);
}

fn main() {}

use serde::{Deserialize, Serialize};
use streamfleet::{Context, Failure, ServerBuilder, Task};

struct App;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", output = String)]
struct Resize {
    url: String,
}

struct Plain;

async fn resize(_cx: Context<App>, _task: Plain) -> Result<String, Failure> {
    Ok(String::new())
}

fn register(server: ServerBuilder<App>) {
    let _ = server.on(resize);
}

fn main() {}

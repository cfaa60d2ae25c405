use serde::{Deserialize, Serialize};
use streamfleet::{Context, ServerBuilder, Task};

struct App;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", output = String)]
struct Resize {
    url: String,
}

async fn resize(_cx: Context<App>, task: Resize) -> Result<String, std::io::Error> {
    std::fs::read_to_string(task.url)
}

fn register(server: ServerBuilder<App>) {
    let _ = server.on(resize);
}

fn main() {}

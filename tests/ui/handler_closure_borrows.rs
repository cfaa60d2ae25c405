use serde::{Deserialize, Serialize};
use streamfleet::{ServerBuilder, Task};

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", output = String)]
struct Resize {
    url: String,
}

fn register(server: ServerBuilder<()>, host: String) {
    let _ = server.on(async move |_cx, task: Resize| Ok(format!("{host}{}", task.url)));
}

fn main() {}

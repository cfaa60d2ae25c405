use serde::{Deserialize, Serialize};
use streamfleet::{ServerBuilder, Task};

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize")]
struct Resize {
    url: String,
}

struct Resizer;

fn register(server: ServerBuilder<()>) {
    let _ = server.on::<Resize, _>(Resizer);
}

fn main() {}

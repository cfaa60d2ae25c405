use serde::{Deserialize, Serialize};
use streamfleet::Task;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", error = std::io::Error)]
struct Resize {
    url: String,
}

fn main() {}

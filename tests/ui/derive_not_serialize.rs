use serde::Deserialize;
use streamfleet::Task;

#[derive(Deserialize, Task)]
#[task(name = "resize")]
struct Resize {
    url: String,
}

fn main() {}

use serde::{Deserialize, Serialize};
use streamfleet::Task;

#[derive(Serialize, Deserialize, Task)]
#[task(output = String)]
struct Resize {
    url: String,
}

#[derive(Serialize, Deserialize, Task)]
struct Bare;

fn main() {}

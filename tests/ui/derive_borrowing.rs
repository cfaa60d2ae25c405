use serde::{Deserialize, Serialize};
use streamfleet::Task;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize")]
struct Resize<'a> {
    url: &'a str,
}

fn main() {}

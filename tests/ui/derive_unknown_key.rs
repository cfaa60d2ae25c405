use serde::{Deserialize, Serialize};
use streamfleet::Task;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", retries = 3)]
struct Unknown;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", output = String, name = "shrink")]
struct Twice;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", codec = xml, max_retries = -1)]
struct Values;

fn main() {}

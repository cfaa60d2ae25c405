use serde::{Deserialize, Serialize};
use streamfleet::Task;

// All mistakes of one attribute are shown together.
#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", timeout = "30", delay = "1.5s", backoff = fixed("1 hour"))]
struct Units;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", timeout = 30)]
struct Number;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", timeout = "0s", delay = "9999d")]
struct Limits;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", backoff = exponential("1h", "1s"))]
struct Swapped;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", backoff = linear("1s"))]
struct Shape;

fn main() {}

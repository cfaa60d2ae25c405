use serde::{Deserialize, Serialize};
use streamfleet::Task;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "image resize")]
struct Space;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "")]
struct Empty;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789")]
struct Long;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "resize", queue = "{low}")]
struct Queue;

#[derive(Serialize, Deserialize, Task)]
#[task(name = resize)]
struct NotText;

fn main() {}

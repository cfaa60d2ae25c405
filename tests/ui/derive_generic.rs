use std::rc::Rc;

use serde::{Deserialize, Serialize};
use streamfleet::{Context, Failure, ServerBuilder, Task};

#[derive(Serialize, Deserialize, Task)]
#[task(name = "first", output = T)]
struct First<T> {
    items: Vec<T>,
}

async fn first(_cx: Context<()>, _task: First<Local>) -> Result<Local, Failure> {
    Err(Failure::never("empty"))
}

#[derive(Serialize, Deserialize)]
struct Local(#[serde(skip)] Rc<u8>);

fn register(server: ServerBuilder<()>) {
    let _ = server.on(first);
}

fn main() {}

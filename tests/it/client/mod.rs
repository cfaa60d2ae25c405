//! The client against real servers, with the test in the part of the worker.

mod close;
mod connect;
mod enqueue;
mod inspect;
mod results;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use streamfleet::testing::TestServer;
use streamfleet::{Client, ClientBuilder, EntryId, Task, TaskHandle};

/// How long anything in these tests may take before they fail.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, Serialize, Deserialize, Task)]
#[task(name = "square", output = u64)]
struct Square {
    number: u64,
    /// Found by the proxy in the bytes of a request.
    mark: String,
}

fn square(number: u64) -> Square {
    Square {
        number,
        mark: String::new(),
    }
}

/// A client that notices silence soon.
fn impatient(server: &TestServer) -> ClientBuilder {
    Client::builder(server.url()).waiter_silence(Duration::from_millis(100))
}

/// Ends a task as a server does: out of the stream, and a notice to the client.
async fn finish(server: &TestServer, client: &Client, handle: &TaskHandle<Square>, output: u64) {
    let output = rmp_serde::to_vec_named(&output).unwrap();
    let mut notice = notice_head(handle);
    notice.extend_from_slice(b"\xa9succeeded\x00\xc4");
    notice.push(u8::try_from(output.len()).unwrap());
    notice.extend_from_slice(&output);
    notice[0] = 0x95;
    notify(server, client, handle, &notice).await;
    remove(server, handle).await;
}

/// Version and task id, in an array of three elements.
fn notice_head(handle: &TaskHandle<Square>) -> Vec<u8> {
    let mut notice = vec![0x93, 0x01, 0xc4, 0x10];
    notice.extend_from_slice(handle.id().as_uuid().unwrap().as_bytes());
    notice
}

async fn notify(server: &TestServer, client: &Client, handle: &TaskHandle<Square>, notice: &[u8]) {
    let receiver = format!("streamfleet:{{{}}}:r:{}", handle.queue(), client.id());
    let args: [&[u8]; 5] = [b"XADD", receiver.as_bytes(), b"*", b"o", notice];
    server.command(&args).await.unwrap();
}

/// Takes a task out of the stream without a word to anybody.
async fn remove(server: &TestServer, handle: &TaskHandle<Square>) {
    let (stream, entry) = (stream(handle.queue().as_str()), entry(handle).to_string());
    server.command(&["XDEL", &stream, &entry]).await.unwrap();
}

fn entry(handle: &TaskHandle<Square>) -> EntryId {
    handle.entry_id().unwrap()
}

fn stream(queue: &str) -> String {
    format!("streamfleet:{{{queue}}}:s")
}

async fn length(server: &TestServer, queue: &str) -> i64 {
    let length = server.command(&["XLEN", &stream(queue)]).await.unwrap();
    length.int().unwrap()
}

/// Empties the stream, so that the check for leaks passes.
async fn clear(server: &TestServer, queue: &str) {
    server
        .command(&["XTRIM", &stream(queue), "MAXLEN", "0"])
        .await
        .unwrap();
}

/// The connections of this library, by the name they gave themselves.
async fn connections(server: &TestServer) -> usize {
    let list = server
        .command(&["CLIENT", "LIST"])
        .await
        .unwrap()
        .text()
        .unwrap();
    list.lines()
        .filter(|line| line.contains("name=streamfleet-"))
        .count()
}

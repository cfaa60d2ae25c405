//! A task's way from a client through a server and back.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use streamfleet::testing::TestServer;
use streamfleet::{Client, Context, Failure, Server, Task};
use tokio_util::sync::CancellationToken;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "double", output = u64)]
struct Double(u64);

async fn double(_: Context<()>, task: Double) -> Result<u64, Failure> {
    Ok(task.0 * 2)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_comes_back() {
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let stop = CancellationToken::new();
    let server = Server::builder(&client, ()).on(double).build().unwrap();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { server.run_until(stop.cancelled_owned()).await }
    });
    let handle = client.enqueue(Double(21)).await.unwrap();
    assert_eq!(
        handle.result_timeout(Duration::from_secs(5)).await.unwrap(),
        42
    );
    let started = std::time::Instant::now();
    let handles = client.enqueue_all((0..10_000).map(Double)).await.unwrap();
    for (n, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.unwrap().result().await.unwrap(), 2 * n as u64);
    }
    eprintln!("{:?}", started.elapsed());
    stop.cancel();
    let report = running.await.unwrap().unwrap();
    eprintln!("{report:?}");
    client.close().await;
}

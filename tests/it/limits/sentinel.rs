//! A primary that is replaced: Sentinel names the new one, and tasks go on.

use std::time::Duration;

use streamfleet::Client;
use streamfleet::testing::{TestSentinel, TestServer};

use super::{Job, Worker, ask, ms};
use crate::support::alone::together;
use crate::support::eventually;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_go_on_when_the_primary_dies_and_sentinel_names_another() {
    let _together = together().await;
    let primary = TestServer::start().await.unwrap();
    let replica = TestServer::options()
        .arg("--replicaof", format!("127.0.0.1 {}", primary.port()))
        .start()
        .await
        .unwrap();
    primary.unchecked("it is killed, and its successor is checked");
    eventually("the replica follows", PATIENCE, async || {
        let info = ask(&replica, &["INFO", "replication"]).await;
        info.text().unwrap().contains("master_link_status:up")
    })
    .await;
    let sentinel = TestSentinel::watch("jobs", &primary).await.unwrap();
    sentinel.knows(&replica).await.unwrap();

    let client = Client::connect(sentinel.url()).await.unwrap();
    let worker = Worker::start(&client, |server| {
        server
            .lease(ms(3_000))
            .renew_every(ms(500))
            .quiet_gap(ms(1_000))
    });
    let handle = client.enqueue(Job::quick(1)).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 3);
    // One is running, some wait, one has its time still to come. All of it is on the replica too.
    let running = client.enqueue(Job::slow(2, 2_000)).await.unwrap();
    eventually("it runs", PATIENCE, async || worker.started().len() == 2).await;
    let delayed = client
        .enqueue(Job::quick(3))
        .delay(ms(1_500))
        .await
        .unwrap();
    eventually("the replica has it all", PATIENCE, async || {
        let [to, from] = [
            ask(&primary, &["INFO", "replication"])
                .await
                .text()
                .unwrap(),
            ask(&replica, &["INFO", "replication"])
                .await
                .text()
                .unwrap(),
        ]
        .map(|info| offset(&info));
        to == from
    })
    .await;
    primary.kill();
    let began = std::time::Instant::now();
    // Enqueued while nobody is primary: it is repeated until somebody is.
    let during = client.enqueue(Job::quick(4)).await.unwrap();
    assert_eq!(during.result_timeout(PATIENCE).await.unwrap(), 12);
    eprintln!(
        "a new task was done {:?} after the primary died",
        began.elapsed()
    );
    assert_eq!(delayed.result_timeout(PATIENCE).await.unwrap(), 9);
    assert_eq!(running.result_timeout(PATIENCE).await.unwrap(), 6);
    let runs = worker.started().iter().filter(|start| start.n == 2).count();
    assert_eq!(runs, 1, "the lease outlasts a failover");
    let report = worker.stop().await;
    assert_eq!((report.leases_lost, report.reclaimed), (0, 0));
    client.close().await;
    drop(sentinel);
    replica.finish().await;
}

/// How far a server is in the replication stream.
fn offset(info: &str) -> u64 {
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("master_repl_offset:"));
    line.unwrap().trim().parse().unwrap()
}

//! Servers that come and go leave no consumer, and never take pending work along.
//!
//! That a consumer of a killed server goes only when it holds nothing and gave no sign for an hour is
//! tested beside the script, with a shorter hour: `store::queue_tests::sweep`.

use streamfleet::Client;
use streamfleet::testing::TestServer;

use super::{Job, LONG, Worker, ask, key, ms, number, pending};
use crate::support::alone::together;
use crate::support::eventually;

async fn consumers(redis: &TestServer) -> Vec<String> {
    let reply = ask(redis, &["XINFO", "CONSUMERS", &key("s"), "servers"]).await;
    reply
        .items()
        .iter()
        .map(|consumer| consumer.items()[1].text().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_takes_its_consumer_along() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    for n in 0..10 {
        let worker = Worker::start(&client, |server| server.label("same"));
        let handle = client.enqueue(Job::quick(n)).await.unwrap();
        assert_eq!(handle.result().await.unwrap(), 3 * n);
        assert_eq!(consumers(&redis).await, std::slice::from_ref(&worker.id));
        worker.stop().await;
        assert!(consumers(&redis).await.is_empty());
    }
    assert_eq!(number(&redis, &["ZCARD", &key("servers")]).await, 0);
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_of_one_label_never_share_a_pending_list() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let set = |server: streamfleet::ServerBuilder<super::Log>| server.label("same").concurrency(1);
    let first = Worker::start(&client, set);
    let second = Worker::start(&client, set);
    assert_ne!(first.id, second.id);
    let handles = client
        .enqueue_all((0..2).map(|n| Job::slow(n, 400)))
        .await
        .unwrap();
    eventually("both run one", LONG, async || {
        first.started().len() == 1 && second.started().len() == 1
    })
    .await;
    let mut names = consumers(&redis).await;
    names.sort();
    let mut ids = vec![first.id.clone(), second.id.clone()];
    ids.sort();
    assert_eq!(names, ids);
    for handle in handles {
        handle.unwrap().result().await.unwrap();
    }
    first.stop().await;
    second.stop().await;
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_consumer_of_a_dead_server_stays_while_it_holds_work() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    client.enqueue(Job::quick(1)).forget().await.unwrap();
    let stream = key("s");
    let read = [
        "XREADGROUP",
        "GROUP",
        "servers",
        "dead",
        "STREAMS",
        &stream,
        ">",
    ];
    ask(&redis, &read).await;
    // Another one sweeps at once when it starts, and takes leave when it stops.
    let other = Worker::start(&client, |server| server.upkeep_every(ms(50)));
    eventually("the other one looked after the queue", LONG, async || {
        number(&redis, &["HEXISTS", &key("cfg"), "sweep_at"]).await == 1
    })
    .await;
    other.stop().await;
    assert_eq!(consumers(&redis).await, ["dead"]);
    assert_eq!(pending(&redis).await, 1);
    ask(&redis, &["DEL", &stream]).await;
    client.close().await;
    redis.finish().await;
}

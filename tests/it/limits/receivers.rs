//! What awaited results leave in Redis and in the client: nothing.

use streamfleet::testing::TestServer;
use streamfleet::{Client, EnqueueError};

use super::{Job, LONG, Worker, ask, calls, key, ms, number};
use crate::support::alone::together;
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_results_leave_an_empty_receiver_and_no_key_after_close() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let producer = Client::connect(redis.url()).await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let worker = Worker::start(&producer, |server| server.concurrency(64));
    let handles = client
        .enqueue_all((0..10_000).map(Job::quick))
        .await
        .unwrap();
    for (n, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.unwrap().result().await.unwrap(), 3 * n as u64);
    }
    let receiver = key(&format!("r:{}", client.id()));
    eventually("the receiver is trimmed", LONG, async || {
        number(&redis, &["XLEN", &receiver]).await == 0
    })
    .await;
    // Read without a group: nothing is pending that would keep a notification for ever.
    if number(&redis, &["EXISTS", &receiver]).await == 1 {
        assert!(
            ask(&redis, &["XINFO", "GROUPS", &receiver])
                .await
                .items()
                .is_empty()
        );
    }
    client.close().await;
    let left = ask(&redis, &["KEYS", "*r:*"]).await.texts();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(number(&redis, &["ZCARD", &key("clients")]).await, 0);
    worker.stop().await;
    producer.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_for_a_client_that_closed_makes_no_key() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let producer = Client::connect(redis.url()).await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let worker = Worker::start(&producer, |server| server);
    let handle = client.enqueue(Job::slow(1, 300)).await.unwrap();
    eventually("it runs", LONG, async || !worker.started().is_empty()).await;
    client.close().await;
    drop(handle);
    eventually("it ended", LONG, async || {
        number(&redis, &["XLEN", &key("s")]).await == 0
    })
    .await;
    let receiver = key(&format!("r:{}", client.id()));
    assert_eq!(number(&redis, &["EXISTS", &receiver]).await, 0);
    worker.stop().await;
    producer.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_used_several_queues_leaves_nothing_in_any() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let worker = Worker::start(&client, |server| server.queue("a", 1).queue("b", 1));
    for queue in ["a", "b"] {
        let handle = client.enqueue(Job::quick(7)).queue(queue).await.unwrap();
        assert_eq!(handle.result().await.unwrap(), 21);
    }
    worker.stop().await;
    client.close().await;
    let left = ask(&redis, &["KEYS", "*:r:*"]).await.texts();
    assert!(left.is_empty(), "{left:?}");
    for queue in ["a", "b"] {
        let clients = format!("streamfleet:{{{queue}}}:clients");
        assert_eq!(number(&redis, &["ZCARD", &clients]).await, 0);
    }
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_refused_enqueues_leave_no_waiter() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::builder(redis.url())
        .waiter_silence(ms(100))
        .connect()
        .await
        .unwrap();
    // One that succeeds, so that every loop of the client runs.
    let worker = Worker::start(&client, |server| server);
    client
        .enqueue(Job::quick(1))
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
    worker.stop().await;
    ask(&redis, &["CONFIG", "SET", "maxmemory", "1"]).await;
    for n in 0..1_000 {
        let refused = client.enqueue(Job::quick(n)).await.unwrap_err();
        assert!(matches!(refused, EnqueueError::OutOfMemory(_)), "{refused}");
    }
    ask(&redis, &["CONFIG", "SET", "maxmemory", "0"]).await;
    // A waiter would be looked up after 100 ms of silence, and its receiver be read.
    eventually("the last read is over", LONG, async || {
        super::info(&redis, "clients", "blocked_clients").await == 0
    })
    .await;
    let before = (calls(&redis, "evalsha").await, calls(&redis, "xread").await);
    tokio::time::sleep(ms(1_000)).await;
    let after = (calls(&redis, "evalsha").await, calls(&redis, "xread").await);
    assert!(
        after.0 <= before.0 + 1,
        "{before:?} {after:?}: only a heartbeat may be sent"
    );
    assert_eq!(after.1, before.1, "nobody waits, so nothing is read");
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_closes_in_order_after_a_flush() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let handle = client.enqueue(Job::quick(1)).await.unwrap();
    ask(&redis, &["FLUSHALL"]).await;
    let began = std::time::Instant::now();
    client.close().await;
    assert!(began.elapsed() < ms(3_000), "{:?}", began.elapsed());
    // Either it learnt of the loss, or of the close; it does not hang.
    assert!(handle.result_timeout(LONG).await.is_err());
    // No connection is left: that is checked here.
    redis.finish().await;
}

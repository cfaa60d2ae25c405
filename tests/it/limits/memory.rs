//! A Redis that is full, one that would throw tasks away, and how much memory a task takes.

use std::time::Duration;

use streamfleet::testing::TestServer;
use streamfleet::{Backoff, Client, ConnectError, Context, EnqueueError, Failure, Server, Task};
use tokio_util::sync::CancellationToken;

use super::{Job, LONG, Worker, ask, info, key, ms, number};
use crate::support::alone::together;
use crate::support::eventually;

/// Fails once.
#[derive(serde::Serialize, serde::Deserialize, Task)]
#[task(name = "limits.flaky", output = u32)]
struct Flaky;

async fn flaky(cx: Context<()>, _: Flaky) -> Result<u32, Failure> {
    if cx.attempt() == 1 {
        return Err(Failure::new("the first time"));
    }
    Ok(cx.attempt())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_redis_refuses_new_tasks_and_drains_what_it_has() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let worker = Worker::start(&client, |server| server.concurrency(4));
    let running = client
        .enqueue_all((0..4).map(|n| Job::slow(n, 500)))
        .await
        .unwrap();
    let waiting = client.enqueue_all((4..204).map(Job::quick)).await.unwrap();
    let delayed = client
        .enqueue(Job::quick(204))
        .delay(ms(700))
        .await
        .unwrap();
    eventually("four run", LONG, async || worker.started().len() == 4).await;
    ask(&redis, &["CONFIG", "SET", "maxmemory", "1"]).await;

    let began = std::time::Instant::now();
    let refused = client.enqueue(Job::quick(1)).await.unwrap_err();
    assert!(
        matches!(refused, EnqueueError::OutOfMemory(_)),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("maxmemory"), "{refused}");
    let refused = client.enqueue_all((0..3).map(Job::quick)).await.unwrap();
    for one in refused {
        assert!(matches!(one.unwrap_err(), EnqueueError::OutOfMemory(_)));
    }
    assert!(began.elapsed() < ms(2_000), "a refusal waits for nothing");

    for handle in running.into_iter().chain(waiting) {
        handle.unwrap().result().await.unwrap();
    }
    assert_eq!(delayed.result().await.unwrap(), 612);
    assert_eq!(number(&redis, &["XLEN", &key("s")]).await, 0);
    // Also a server that starts now, and one that stops.
    worker.stop().await;
    let worker = Worker::start(&client, |server| server).ready(&redis).await;

    ask(&redis, &["CONFIG", "SET", "maxmemory", "0"]).await;
    let handle = client.enqueue(Job::quick(5)).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 15);
    worker.stop().await;
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_fails_while_redis_is_full_is_retried_all_the_same() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let handles = client
        .enqueue_all((0..50).map(|_| Flaky))
        .backoff(Backoff::Fixed(ms(50)))
        .await
        .unwrap();
    ask(&redis, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let stop = CancellationToken::new();
    let server = Server::builder(&client, ()).on(flaky).build().unwrap();
    let running = tokio::spawn(server.run_until(stop.clone().cancelled_owned()));
    for handle in handles {
        assert_eq!(handle.unwrap().result().await.unwrap(), 2);
    }
    stop.cancel();
    assert_eq!(running.await.unwrap().unwrap().retried, 50);
    ask(&redis, &["CONFIG", "SET", "maxmemory", "0"]).await;
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_policy_that_evicts_is_refused_at_the_start_unless_it_is_allowed() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    for policy in [
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
    ] {
        ask(&redis, &["CONFIG", "SET", "maxmemory-policy", policy]).await;
        let refused = Client::connect(redis.url()).await.unwrap_err();
        assert!(
            matches!(&refused, ConnectError::Evicting { policy: found } if found == policy),
            "{refused:?}"
        );
        let text = refused.to_string();
        assert!(
            text.contains(policy) && text.contains("noeviction"),
            "{text}"
        );
    }
    let client = Client::builder(redis.url())
        .allow_eviction()
        .connect()
        .await
        .unwrap();
    let worker = Worker::start(&client, |server| server);
    let handle = client.enqueue(Job::quick(2)).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 6);
    worker.stop().await;
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_task_of_a_hundred_bytes_takes_at_most_170_bytes_of_redis() {
    const TASKS: u64 = 20_000;
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    // The payload as written, names of fields included, has a hundred bytes.
    let size = |job: &Job| rmp_serde::to_vec_named(job).unwrap().len();
    let filler = 60 + 100 - size(&Job::of_size(1_000, 60));
    let task = |n: u64| Job {
        n: 1_000 + n,
        ms: 0,
        filler: "x".repeat(filler),
    };
    assert_eq!(size(&task(0)), 100);
    client.enqueue_all([task(0)]).forget().await.unwrap();
    let before = info(&redis, "memory", "used_memory").await;
    client
        .enqueue_all((0..TASKS).map(task))
        .forget()
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let after = info(&redis, "memory", "used_memory").await;
    let each = (after - before) / TASKS;
    eprintln!("{each} bytes for each waiting task");
    assert!(each <= 170, "{each} bytes");
    ask(&redis, &["DEL", &key("s")]).await;
    client.close().await;
    redis.finish().await;
}

//! A waiter never hangs, and is never told that a task was lost that was not.

use std::time::Duration;

use streamfleet::testing::TestServer;
use streamfleet::{Client, ResultError, TaskHandle};

use super::worker::{Act, Job, Setup, output_of, seen};
use super::{LONG, counter, ms, number, together};
use crate::support::wait::eventually;
use crate::support::{Mode, Proxy};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_takes_far_longer_than_the_waiters_silence_ends_with_its_result() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::builder(redis.url())
        .waiter_silence(ms(200))
        .connect()
        .await
        .unwrap();
    let worker = Setup::new(redis.url()).here().await;
    // Delayed, failed, delayed again, and run for long: the waiter asks in each of these states.
    let (busy, retry) = (1_500, 1_500);
    let act = Act::FailFirst { busy, retry };
    let handles: Vec<TaskHandle<Job>> = futures_util::future::join_all((0..20).map(|n| {
        let job = Job::new(n, act.clone());
        let client = client.clone();
        async move { client.enqueue(job).delay(ms(1_500)).await.unwrap() }
    }))
    .await;
    for (n, handle) in (0..).zip(handles) {
        assert_eq!(handle.result_timeout(LONG).await.unwrap(), output_of(n));
    }
    worker.stop().await;
    client.close().await;
    redis.finish().await;
}

const WAITERS: u64 = 1_000;

/// A client that hears of nothing once its proxy is a black hole.
async fn deaf_client(redis: &TestServer) -> (Client, Proxy) {
    let proxy = Proxy::start(redis.port()).await;
    let client = Client::builder(redis.url_at(proxy.port()))
        .waiter_silence(ms(500))
        .command_timeout(ms(500))
        .connect()
        .await
        .unwrap();
    (client, proxy)
}

async fn each_ends_as_lost(handles: Vec<TaskHandle<Job>>) {
    for handle in handles {
        let outcome = handle.result_timeout(LONG).await;
        assert!(matches!(outcome, Err(ResultError::Lost)), "{outcome:?}");
    }
}

async fn a_thousand_waiters(client: &Client) -> Vec<TaskHandle<Job>> {
    let jobs = (0..WAITERS).map(|n| Job::sleep(n, 0));
    let handles = client.enqueue_all(jobs).await.unwrap();
    handles.into_iter().map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_waiter_ends_when_the_receiver_is_deleted() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let (client, proxy) = deaf_client(&redis).await;
    let handles = a_thousand_waiters(&client).await;
    proxy.set(Mode::BlackHole);
    let worker = Setup::new(redis.url()).here().await;
    let receiver = format!("streamfleet:{{default}}:r:{}", client.id());
    eventually("every outcome was sent", LONG, async || {
        let sent = number(&redis, &["XLEN", &receiver]).await;
        (sent == 1_000).then_some(()).ok_or(sent)
    })
    .await;
    assert_eq!(number(&redis, &["DEL", &receiver]).await, 1);
    // First the cut: what waits in the proxy is lost with it.
    proxy.cut_all();
    proxy.set(Mode::Pass);
    each_ends_as_lost(handles).await;
    worker.stop().await;
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_waiter_ends_when_its_client_was_swept() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let (client, proxy) = deaf_client(&redis).await;
    let handles = a_thousand_waiters(&client).await;
    proxy.set(Mode::BlackHole);
    let setup = Setup {
        client_dead_after: Duration::from_secs(1),
        ..Setup::new(redis.url())
    };
    let worker = setup.here().await;
    eventually("the client was swept", LONG, async || {
        number(&redis, &["ZCARD", "streamfleet:{default}:clients"]).await == 0
    })
    .await;
    assert_eq!(counter(&redis, "default", "succeeded").await, 1_000);
    // First the cut: what waits in the proxy is lost with it.
    proxy.cut_all();
    proxy.set(Mode::Pass);
    each_ends_as_lost(handles).await;
    worker.stop().await;
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_waiter_ends_when_redis_is_flushed() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::builder(redis.url())
        .waiter_silence(ms(500))
        .connect()
        .await
        .unwrap();
    let setup = Setup {
        concurrency: 10,
        ..Setup::new(redis.url())
    };
    let worker = setup.here().await;
    // Some run, most wait, some are delayed.
    let running = client
        .enqueue_all((0..10).map(|n| Job::sleep(n, 5_000)))
        .await
        .unwrap();
    seen("start", 10, || worker.events()).await;
    let handles = a_thousand_waiters(&client).await;
    let delayed = client.enqueue(Job::sleep(1, 0)).delay(LONG).await.unwrap();
    redis.command(&["FLUSHALL"]).await.unwrap();
    each_ends_as_lost(handles).await;
    each_ends_as_lost(running.into_iter().map(Result::unwrap).collect()).await;
    each_ends_as_lost(vec![delayed]).await;
    // And all goes on.
    let next = client.enqueue(Job::sleep(7, 0)).await.unwrap();
    assert_eq!(next.result_timeout(LONG).await.unwrap(), output_of(7));
    worker.stop().await;
    client.close().await;
    redis.finish().await;
}

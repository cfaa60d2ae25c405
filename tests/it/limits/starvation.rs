//! Work that was handed back, and work of the dead, has its turn beside a stream of new tasks.

use streamfleet::testing::TestServer;
use streamfleet::{Client, ServerBuilder};
use tokio_util::sync::CancellationToken;

use super::{Job, LONG, Log, Worker, key, ms, now_ms, number, pending};
use crate::support::alone::{alone, best_of_three};
use crate::support::eventually;

/// Tasks that come back have numbers from here on.
const BACK: u64 = 1_000_000;
const HELD: u64 = 20;

/// Keeps some hundred tasks of 5 ms waiting until it is stopped.
async fn feed(redis: &TestServer, client: Client, stop: CancellationToken) -> u64 {
    let mut n = 0;
    while !stop.is_cancelled() {
        if number(redis, &["XLEN", &key("s")]).await < 400 {
            let tasks: Vec<_> = (n..n + 200).map(|n| Job::slow(n, 5)).collect();
            n += 200;
            client.enqueue_all(tasks).forget().await.unwrap();
        }
        tokio::time::sleep(ms(5)).await;
    }
    n
}

fn with_lease(server: ServerBuilder<Log>) -> ServerBuilder<Log> {
    server
        .lease(ms(2_000))
        .renew_every(ms(500))
        .quiet_gap(ms(900))
        .shutdown_timeout(ms(0))
        .handler_grace(ms(0))
}

/// Somebody takes 20 tasks and, when a second worker is busy with a stream of new tasks, goes away by
/// `leave`. Their tasks have to fill the slots of the busy worker within `limit`.
async fn returned_work_has_its_turn<T>(
    limit: u64,
    take: impl AsyncFnOnce(&TestServer, &Client) -> T,
    leave: impl AsyncFnOnce(T),
) -> Result<(), String> {
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let held: Vec<_> = (BACK..BACK + HELD).map(|n| Job::slow(n, 30_000)).collect();
    client.enqueue_all(held).forget().await.unwrap();
    let taken = take(&redis, &client).await;
    assert_eq!(pending(&redis).await, 20);

    let busy = Worker::start(&client, |server| with_lease(server).concurrency(8));
    let stop = CancellationToken::new();
    let feeding = feed(&redis, client.clone(), stop.clone());
    let look = async {
        eventually("the worker is busy", LONG, async || {
            busy.started().len() > 100
        })
        .await;
        let left = now_ms();
        leave(taken).await;
        // Once started again they sleep on, so the slots of the worker fill with them.
        eventually("what came back is started", LONG, async || {
            let back = busy
                .started()
                .iter()
                .filter(|start| start.n >= BACK)
                .count();
            if back >= 8 { Ok(()) } else { Err(back) }
        })
        .await;
        stop.cancel();
        left
    };
    let (fed, left) = tokio::join!(feeding, look);
    let started = busy.started();
    let back = started.iter().filter(|start| start.n >= BACK);
    let took = back.map(|start| start.at).max().unwrap() - left;
    busy.stop().await;
    redis.command(&["DEL", &key("s")]).await.unwrap();
    redis.command(&["DEL", &key("crashes")]).await.unwrap();
    client.close().await;
    redis.finish().await;
    eprintln!(
        "back after {took} ms, beside {} of {fed} new tasks",
        started.len() - 8
    );
    if took <= limit {
        Ok(())
    } else {
        Err(format!("it took {took} ms, the limit is {limit} ms"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_work_is_not_starved_by_new_tasks() {
    let _alone = alone().await;
    best_of_three(async || {
        let take = async |_: &TestServer, client: &Client| {
            let first = Worker::start(client, |server| with_lease(server).concurrency(20));
            eventually("the first worker runs all it can", LONG, async || {
                first.started().len() == 20
            })
            .await;
            first
        };
        let leave = async |first: Worker| assert_eq!(first.stop().await.interrupted, 20);
        returned_work_has_its_turn(1_000, take, leave).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reclaimed_work_is_not_starved_by_new_tasks() {
    let _alone = alone().await;
    best_of_three(async || {
        // A server that died after it had read them.
        let take = async |redis: &TestServer, _: &Client| {
            let stream = key("s");
            let read = [
                "XREADGROUP",
                "GROUP",
                "servers",
                "dead",
                "COUNT",
                "20",
                "STREAMS",
                &stream,
                ">",
            ];
            redis.command(&read).await.unwrap();
        };
        // A lease, a pass of the upkeep, and three seconds for their turns.
        returned_work_has_its_turn(2_000 + 2_500 + 3_000, take, async |()| {}).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_ahead_goes_to_a_server_that_is_free() {
    let _alone = alone().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    // Quick handlers let the first server read ahead; then all its slots are taken for a long time,
    // and what stands in line behind them must not wait for that.
    let quick: Vec<_> = (0..600).map(|n| Job::slow(n, 5)).collect();
    let long: Vec<_> = (BACK..BACK + 8).map(|n| Job::slow(n, 120_000)).collect();
    let last: Vec<_> = (1_000..1_050).map(Job::quick).collect();
    client.enqueue_all(quick).forget().await.unwrap();
    client.enqueue_all(long).forget().await.unwrap();
    let last = client.enqueue_all(last).await.unwrap();
    let first = Worker::start(&client, |server| with_lease(server).concurrency(8));
    eventually("all its slots are taken for long", LONG, async || {
        let started = first.started();
        started.iter().filter(|start| start.n >= BACK).count() == 8
    })
    .await;
    let second = Worker::start(&client, |server| with_lease(server).concurrency(8));
    for handle in last {
        let outcome = tokio::time::timeout(LONG, handle.unwrap().result()).await;
        outcome.expect("the other server runs it").unwrap();
    }
    assert_eq!(pending(&redis).await, 8, "only the long ones are held");
    let report = first.stop().await;
    assert_eq!(report.interrupted, 8);
    assert!(report.released > 0, "it had read ahead: {report:?}");
    assert!(report.released < 50, "it read on in vain: {report:?}");
    second.stop().await;
    redis.command(&["DEL", &key("s")]).await.unwrap();
    client.close().await;
    redis.finish().await;
}

//! Leases: long handlers keep them, frozen workers lose them and are told.

use std::time::Duration;

use streamfleet::Client;
use streamfleet::testing::TestServer;

use super::worker::{Act, Job, Setup, count, last, numbers, output_of, seen};
use super::{alone, best_of_three, ms, now_ms, together, within};
use crate::support::wait::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_of_three_leases_and_handlers_that_block_every_thread_run_once() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let setup = Setup {
        lease: Duration::from_secs(2),
        upkeep: ms(200),
        ..Setup::new(redis.url())
    };
    let busy = setup.child().await;
    let mut jobs: Vec<Job> = (0..4).map(|n| Job::sleep(n, 6_000)).collect();
    // Twice as many as the child has threads, so that no thread is free between two.
    jobs.extend((4..6).map(|n| Job::new(n, Act::Block(4_000))));
    let handles = client.enqueue_all(jobs).await.unwrap();
    seen("start", 6, || busy.events()).await;
    let vulture = setup.child().await;
    for (n, handle) in (0..).zip(handles) {
        assert_eq!(handle.unwrap().result().await.unwrap(), output_of(n));
    }
    assert_eq!(numbers(&busy.events(), "start"), [0, 1, 2, 3, 4, 5]);
    assert_eq!(count(&busy.events(), "lost"), 0);
    assert_eq!(count(&vulture.events(), "start"), 0);
    busy.stop().await;
    vulture.stop().await;
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_frozen_beyond_its_lease_is_told_and_writes_nothing() {
    let _alone = alone().await;
    best_of_three(async || {
        let redis = TestServer::start().await.unwrap();
        let client = Client::connect(redis.url()).await.unwrap();
        let setup = Setup {
            lease: ms(1_500),
            upkeep: ms(200),
            ..Setup::new(redis.url())
        };
        let frozen = setup.child().await;
        let jobs = (0..10).map(|n| Job::new(n, Act::StaleFailure));
        let handles = client.enqueue_all(jobs).await.unwrap();
        seen("start", 10, || frozen.events()).await;
        let other = setup.child().await;
        frozen.0.stop();
        for (n, handle) in (0..).zip(handles) {
            assert_eq!(handle.unwrap().result().await.unwrap(), output_of(n));
        }
        let woken = now_ms();
        frozen.0.cont();
        seen("told:lease-lost", 10, || frozen.events()).await;
        let took = ms(last(&frozen.events(), "told:lease-lost") - woken);
        frozen.stop().await;
        other.stop().await;
        assert_eq!(
            count(&frozen.events(), "lost"),
            10,
            "the hook heard of each"
        );
        let counts = client.inspect().counts("default").await.unwrap();
        assert_eq!((counts.archived, counts.retry, counts.active), (0, 0, 0));
        client.close().await;
        redis.finish().await;
        within("telling the handlers", took, Duration::from_secs(1))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_completions_the_first_wins_and_the_waiter_hears_one() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let setup = Setup {
        lease: ms(1_000),
        upkeep: ms(200),
        ..Setup::new(redis.url())
    };
    let frozen = setup.child().await;
    // Long enough to be taken over, and to be finished by the frozen one after it woke.
    let handle = client.enqueue(Job::sleep(1, 3_000)).await.unwrap();
    seen("start", 1, || frozen.events()).await;
    frozen.0.stop();
    let other = setup.child().await;
    seen("start", 1, || other.events()).await;
    frozen.0.cont();
    assert_eq!(handle.result().await.unwrap(), output_of(1));
    eventually("it is settled", super::LONG, async || {
        let counts = client.inspect().counts("default").await.unwrap();
        counts.active == 0 && counts.pending == 0
    })
    .await;
    frozen.stop().await;
    other.stop().await;
    assert_eq!(super::counter(&redis, "default", "succeeded").await, 1);
    client.close().await;
    redis.finish().await;
}

//! Workers that are killed, take themselves down, or are asked to stop.

use std::time::Duration;

use streamfleet::testing::{Leak, TestServer};
use streamfleet::{Client, ResultError};

use super::worker::{Act, ChildWorker, Event, Job, Setup, count, last, numbers, output_of, seen};
use super::{LONG, alone, best_of_three, ms, now_ms, together, within};
use crate::support::wait::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_worker_ran_starts_elsewhere_within_the_lease_and_three_seconds() {
    let _alone = alone().await;
    best_of_three(async || {
        let redis = TestServer::start().await.unwrap();
        let client = Client::connect(redis.url()).await.unwrap();
        let setup = Setup {
            lease: Duration::from_secs(3),
            concurrency: 100,
            ..Setup::new(redis.url())
        };
        let dies = setup.child().await;
        let jobs = (0..100).map(|n| Job::new(n, Act::SlowOnce(60_000)));
        let handles = client.enqueue_all(jobs).await.unwrap();
        seen("start", 100, || dies.events()).await;
        let lives = setup.child().await;
        let killed = now_ms();
        dies.0.kill();
        for (n, handle) in (0..).zip(handles) {
            assert_eq!(handle.unwrap().result().await.unwrap(), output_of(n));
        }
        let events = lives.events();
        assert_eq!(numbers(&events, "start"), (0..100).collect::<Vec<_>>());
        let took = ms(last(&events, "start") - killed);
        lives.stop().await;
        client.close().await;
        redis.finish().await;
        eprintln!("the last start after {took:?}");
        within("the last start", took, setup.lease + Duration::from_secs(3))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_takes_its_process_down_is_archived_and_its_neighbours_finish() {
    const SLOW: u64 = 50;
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    redis.allow(Leak::Archived, "the poisonous task is archived");
    let client = Client::connect(redis.url()).await.unwrap();
    let setup = Setup {
        lease: ms(1_500),
        upkeep: ms(200),
        concurrency: 20,
        max_crashes: 2,
        ..Setup::new(redis.url())
    };
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(setup.child().await);
    }
    let jobs = (0..SLOW).map(|n| Job::sleep(n, 500));
    let poison = client
        .enqueue(Job::new(999, Act::Abort(100)))
        .await
        .unwrap();
    let handles = client.enqueue_all(jobs).await.unwrap();
    // A test's own restarts: whoever died is followed by another.
    let mut dead: Vec<ChildWorker> = Vec::new();
    let mut wait = std::pin::pin!(poison.result());
    let outcome = loop {
        tokio::select! {
            outcome = &mut wait => break outcome,
            () = tokio::time::sleep(ms(20)) => {
                for worker in &mut workers {
                    if worker.0.exited().is_some() {
                        dead.push(std::mem::replace(worker, setup.spawn()));
                    }
                }
                assert!(dead.len() < 20, "crashes are not counted");
            }
        }
    };
    assert!(
        matches!(outcome, Err(ResultError::Poison { crashes: 2 })),
        "{outcome:?}"
    );
    for (n, handle) in (0..).zip(handles) {
        assert_eq!(handle.unwrap().result().await.unwrap(), output_of(n));
    }
    for worker in &workers {
        worker.ready().await;
    }
    let everything = || -> Vec<Event> {
        workers
            .iter()
            .chain(&dead)
            .flat_map(ChildWorker::events)
            .collect()
    };
    eventually("the hook was called", LONG, async || {
        count(&everything(), "archived:poison") == 1
    })
    .await;
    let archived = client.inspect().counts("default").await.unwrap().archived;
    assert_eq!(archived, 1, "only the poisonous task is archived");
    for worker in &workers {
        worker.stop().await;
    }
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_clean_stop_hands_back_starts_elsewhere_within_a_second() {
    let _alone = alone().await;
    best_of_three(async || {
        let redis = TestServer::start().await.unwrap();
        let client = Client::connect(redis.url()).await.unwrap();
        let setup = Setup {
            shutdown: Duration::ZERO,
            ..Setup::new(redis.url())
        };
        let stops = setup.child().await;
        let jobs = (0..16).map(|n| Job::new(n, Act::StaleFailure));
        let handles = client.enqueue_all(jobs).await.unwrap();
        seen("start", 16, || stops.events()).await;
        let stays = setup.child().await;
        let asked = now_ms();
        stops.0.term();
        for (n, handle) in (0..).zip(handles) {
            assert_eq!(handle.unwrap().result().await.unwrap(), output_of(n));
        }
        assert!(stops.0.exit(LONG).await.success());
        assert_eq!(count(&stops.events(), "told:shutdown"), 16);
        let events = stays.events();
        assert_eq!(numbers(&events, "start"), (0..16).collect::<Vec<_>>());
        // The failures that the stop provoked are no attempts.
        assert!(events.iter().all(|event| event.attempt <= 1));
        let took = ms(last(&events, "start") - asked);
        stays.stop().await;
        client.close().await;
        redis.finish().await;
        eprintln!("the last start after {took:?}");
        within("the last start", took, Duration::from_secs(1))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_running_tasks_end_in_a_worker_that_is_asked_to_stop() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let setup = Setup {
        concurrency: 30,
        ..Setup::new(redis.url())
    };
    let stops = setup.child().await;
    let jobs = (0..30).map(|n| Job::sleep(n, 1_000));
    let handles = client.enqueue_all(jobs).await.unwrap();
    seen("start", 30, || stops.events()).await;
    let stays = setup.child().await;
    stops.stop().await;
    let events = stops.events();
    assert_eq!(numbers(&events, "end"), (0..30).collect::<Vec<_>>());
    for (n, handle) in (0..).zip(handles) {
        assert_eq!(handle.unwrap().result().await.unwrap(), output_of(n));
    }
    assert_eq!(count(&stays.events(), "start"), 0);
    stays.stop().await;
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_asked_to_stop_twice_exits_at_once_and_loses_nothing() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let setup = Setup {
        concurrency: 30,
        lease: ms(1_500),
        upkeep: ms(300),
        ..Setup::new(redis.url())
    };
    let stops = setup.child().await;
    let jobs = (0..30).map(|n| Job::new(n, Act::SlowOnce(60_000)));
    let handles = client.enqueue_all(jobs).await.unwrap();
    seen("start", 30, || stops.events()).await;
    stops.0.term();
    // A second signal that comes before the first was taken is the same signal to the kernel.
    eventually("the first signal was taken", LONG, async || {
        stops
            .0
            .errors()
            .iter()
            .any(|line| line.contains("asked to stop"))
    })
    .await;
    let asked = std::time::Instant::now();
    stops.0.term();
    let status = stops.0.exit(Duration::from_secs(10)).await;
    assert_eq!(status.code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(5), "at once");
    let next = setup.child().await;
    for (n, handle) in (0..).zip(handles) {
        assert_eq!(handle.unwrap().result().await.unwrap(), output_of(n));
    }
    next.stop().await;
    client.close().await;
    redis.finish().await;
}

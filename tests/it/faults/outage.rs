//! Redis freezes, dies and comes back.

use std::time::{Duration, Instant};

use streamfleet::Client;
use streamfleet::testing::{AofMode, TestServer};

use super::worker::{ChildWorker, Job, LocalWorker, Setup, count, numbers, output_of, seen};
use super::{LONG, counter, ms, now_ms, together};

const LEASE: Duration = Duration::from_secs(2);

/// How Redis goes away.
#[derive(Clone, Copy, Debug)]
enum Away {
    Frozen,
    Killed,
}

impl Away {
    async fn go(self, redis: &TestServer) {
        match self {
            Self::Frozen => redis.pause().unwrap(),
            Self::Killed => redis.kill(),
        }
    }

    async fn come_back(self, redis: &TestServer) {
        match self {
            Self::Frozen => redis.resume().unwrap(),
            Self::Killed => redis.restart().await.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_redis_makes_nobody_look_dead_whoever_comes_first() {
    let _together = together().await;
    Box::pin(whoever_comes_first(
        Away::Frozen,
        LEASE + Duration::from_secs(5),
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_makes_nobody_look_dead_whoever_comes_first() {
    let _together = together().await;
    Box::pin(whoever_comes_first(
        Away::Killed,
        LEASE + Duration::from_secs(1),
    ))
    .await;
}

/// The upkeep looks much more often than leases are renewed; the other way round; and a fresh worker
/// that starts in the moment Redis is back.
async fn whoever_comes_first(away: Away, time: Duration) {
    let (rare, often) = (ms(500), ms(50));
    tokio::join!(
        nobody_is_taken_for_dead(away, time, rare, often, false),
        nobody_is_taken_for_dead(away, time, often, ms(1_000), false),
        nobody_is_taken_for_dead(away, time, rare, often, true),
    );
}

async fn nobody_is_taken_for_dead(
    away: Away,
    time: Duration,
    renew: Duration,
    upkeep: Duration,
    fresh: bool,
) {
    let redis = TestServer::options()
        .aof(AofMode::Always)
        .start()
        .await
        .unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let setup = Setup {
        lease: LEASE,
        renew: Some(renew),
        upkeep,
        ..Setup::new(redis.url())
    };
    let mut workers = vec![setup.here().await, setup.here().await];
    let busy = time + LEASE * 3;
    let millis = u64::try_from(busy.as_millis()).unwrap();
    let jobs = (0..20).map(|n| Job::sleep(n, millis));
    let handles = client.enqueue_all(jobs).await.unwrap();
    let all = |workers: &[LocalWorker]| -> Vec<_> {
        workers.iter().flat_map(LocalWorker::events).collect()
    };
    seen("start", 20, || all(&workers)).await;
    away.go(&redis).await;
    tokio::time::sleep(time).await;
    away.come_back(&redis).await;
    if fresh {
        workers.push(setup.here().await);
    }
    for (n, handle) in (0..).zip(handles) {
        assert_eq!(handle.unwrap().result().await.unwrap(), output_of(n));
    }
    let events = all(&workers);
    assert_eq!(numbers(&events, "start"), (0..20).collect::<Vec<_>>());
    assert_eq!(count(&events, "lost"), 0);
    for worker in workers {
        let report = worker.stop().await;
        assert_eq!((report.leases_lost, report.reclaimed), (0, 0), "{report:?}");
    }
    assert_eq!(counter(&redis, "default", "reclaimed").await, 0);
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_redis_is_calm_and_goes_on_at_once_when_it_is_back() {
    let _together = together().await;
    tokio::join!(is_calm(Away::Frozen), is_calm(Away::Killed));
}

async fn is_calm(away: Away) {
    const AWAY: Duration = Duration::from_secs(30);
    let redis = TestServer::options()
        .aof(AofMode::Always)
        .start()
        .await
        .unwrap();
    let workers = [
        Setup::new(redis.url()).child().await,
        Setup::new(redis.url()).child().await,
        Setup::new(redis.url()).child().await,
    ];
    let client = Client::connect(redis.url()).await.unwrap();
    // Some that run during the outage and want to be settled, and one that needs a connection.
    let jobs = (0..5).map(|n| Job::sleep(n, 10_000));
    let early = client.enqueue_all(jobs).await.unwrap();
    let events = || -> Vec<_> { workers.iter().flat_map(ChildWorker::events).collect() };
    seen("start", 5, events).await;
    client.close().await;

    away.go(&redis).await;
    // Measured after what the moment itself costs.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (used, began) = (workers.each_ref().map(cpu), Instant::now());
    let logged = workers.each_ref().map(|worker| worker.0.errors().len());
    tokio::time::sleep(AWAY).await;
    for (worker, (used, logged)) in workers.iter().zip(used.into_iter().zip(logged)) {
        let share = (cpu(worker) - used).as_secs_f64() / began.elapsed().as_secs_f64();
        assert!(share < 0.05, "{away:?}: {share} of a core");
        let lines = worker.0.errors().len() - logged;
        assert!(lines <= 60, "{away:?}: {lines} lines in {AWAY:?}");
    }

    away.come_back(&redis).await;
    let back = now_ms();
    let client = Client::connect(redis.url()).await.unwrap();
    // More than one worker takes, so the last of them counts.
    let jobs = (100..148).map(|n| Job::sleep(n, 3_000));
    let handles = client.enqueue_all(jobs).await.unwrap();
    for (n, handle) in (100..).zip(handles) {
        assert_eq!(
            handle.unwrap().result_timeout(LONG).await.unwrap(),
            output_of(n)
        );
    }
    let events: Vec<_> = events();
    assert_eq!(numbers(&events, "start").len(), 53);
    let starts = workers.each_ref().map(|worker| {
        let of = worker.events().into_iter();
        let after = of.filter(|event| event.what == "start" && event.at >= back);
        after.map(|event| event.at - back).min()
    });
    // Each of the three is a try.
    let first = starts.iter().flatten().min().unwrap();
    eprintln!("{away:?}: starts after {starts:?} ms");
    assert!(
        *first <= 2_000,
        "{away:?}: work went on after {starts:?} ms"
    );
    for worker in &workers {
        worker.stop().await;
    }
    drop(early);
    client.close().await;
    redis.finish().await;
}

/// The processor time that a process has used.
fn cpu(worker: &ChildWorker) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.0.pid())).unwrap();
    // After the name in parentheses, the 12th and 13th field; a tick is 10 ms on Linux.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11..13]
        .iter()
        .map(|field| field.parse::<u64>().unwrap())
        .sum();
    ms(ticks * 10)
}

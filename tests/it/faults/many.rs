//! Ten thousand awaited tasks through the deaths of everybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use streamfleet::Client;
use streamfleet::testing::{AofMode, TestServer};

use super::worker::{Job, Setup, output_of};
use super::{LONG, counter, ms, together};
use crate::support::wait::eventually;

const TASKS: usize = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_awaited_tasks_survive_the_deaths_of_three_workers_and_of_redis() {
    let _together = together().await;
    let redis = TestServer::options()
        .aof(AofMode::Always)
        .start()
        .await
        .unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let setup = Setup {
        lease: ms(1_500),
        upkeep: ms(200),
        concurrency: 24,
        ..Setup::new(redis.url())
    };
    let jobs = (0..TASKS as u64).map(|n| Job::sleep(n, 20 + n % 20));
    let handles = client.enqueue_all(jobs).await.unwrap();
    let mut workers = vec![setup.spawn(), setup.spawn(), setup.spawn()];
    let ended = Arc::new(AtomicUsize::new(0));
    let waiters: Vec<_> = (0..)
        .zip(handles)
        .map(|(n, handle)| {
            let (handle, ended) = (handle.unwrap(), Arc::clone(&ended));
            tokio::spawn(async move {
                let outcome = handle.result().await;
                ended.fetch_add(1, Ordering::SeqCst);
                assert_eq!(outcome.unwrap(), output_of(n));
            })
        })
        .collect();

    for (victim, worker) in workers.iter_mut().enumerate() {
        reach(&ended, 10 + 15 * victim).await;
        worker.0.kill();
        outstanding_enough(&ended);
        *worker = setup.spawn();
    }
    let survivors = names_of_clients(&redis).await;
    assert!(
        survivors.iter().any(|name| name.contains("-client-")),
        "{survivors:?}"
    );
    reach(&ended, 50).await;
    redis.kill();
    outstanding_enough(&ended);
    redis.restart().await.unwrap();

    for waiter in waiters {
        tokio::time::timeout(LONG * 2, waiter)
            .await
            .unwrap()
            .unwrap();
    }
    assert_eq!(ended.load(Ordering::SeqCst), TASKS);
    assert!(counter(&redis, "default", "reclaimed").await > 0);
    // The process of Redis is another one, so everybody it knows came back to it.
    let back = names_of_clients(&redis).await;
    assert!(
        back.iter().any(|name| name.contains(client.id().as_str())),
        "{back:?}"
    );
    for worker in &workers {
        let me = worker.me().await;
        assert!(
            back.iter().any(|name| name.contains(&me)),
            "{me} of {back:?}"
        );
    }
    for worker in &workers {
        worker.stop().await;
    }
    assert_eq!(counter(&redis, "default", "succeeded").await, TASKS as i64);
    client.close().await;
    redis.finish().await;
}

async fn reach(ended: &AtomicUsize, percent: usize) {
    let what = format!("{percent} % ended");
    eventually(&what, Duration::from_secs(120), async || {
        let now = ended.load(Ordering::SeqCst);
        (now >= TASKS * percent / 100).then_some(()).ok_or(now)
    })
    .await;
}

fn outstanding_enough(ended: &AtomicUsize) {
    let ended = ended.load(Ordering::SeqCst);
    assert!(ended <= TASKS * 7 / 10, "{ended} ended already");
}

async fn names_of_clients(redis: &TestServer) -> Vec<String> {
    let list = redis.command(&["CLIENT", "LIST"]).await.unwrap();
    let list = list.text().unwrap();
    let names = list
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("name="));
    names.map(str::to_owned).collect()
}

//! Delayed tasks: never early, hardly late, and very many at once.

use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::join_all;
use streamfleet::Client;
use streamfleet::testing::TestServer;

use super::{Job, LONG, Worker, ask, calls, info, key, ms, now_ms, number};
use crate::support::alone::{alone, best_of_three};
use crate::support::eventually;

const TASKS: u64 = 1_000;
const LONGEST_MS: u64 = 2_000;
const LATE_MS: u64 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_delayed_tasks_are_never_early_and_hardly_late() {
    let _alone = alone().await;
    best_of_three(async || {
        let redis = TestServer::start().await.unwrap();
        let client = Client::connect(redis.url()).await.unwrap();
        let worker = Worker::start(&client, |server| server.concurrency(64))
            .ready(&redis)
            .await;
        // One half says how long to wait, the other when to start: that instant is known exactly.
        let base = now_ms() + 300;
        let sent = join_all((0..TASKS).map(|n| {
            let client = client.clone();
            async move {
                let wait = 1 + n * (LONGEST_MS - 1) / (TASKS - 1);
                let enqueue = client.enqueue(Job::quick(n));
                if n % 2 == 0 {
                    let asked = now_ms();
                    (enqueue.delay(ms(wait)).await.unwrap(), asked + wait)
                } else {
                    let due = base + wait;
                    (enqueue.at(UNIX_EPOCH + ms(due)).await.unwrap(), due)
                }
            }
        }))
        .await;
        let mut due = Vec::new();
        for (n, (handle, at)) in sent.into_iter().enumerate() {
            assert_eq!(handle.result().await.unwrap(), 3 * n as u64);
            due.push(at);
        }
        let mut late = Vec::new();
        for start in worker.started() {
            let due = due[usize::try_from(start.n).unwrap()];
            assert!(
                start.available >= due,
                "task {} was due at {due} and in the stream at {}",
                start.n,
                start.available
            );
            assert!(start.at >= due, "task {} started early", start.n);
            if start.n % 2 == 1 {
                late.push(start.at - due);
            }
        }
        worker.stop().await;
        client.close().await;
        redis.finish().await;
        late.sort_unstable();
        let p99 = late[late.len() * 99 / 100];
        eprintln!("p50 {} ms late, p99 {p99} ms", late[late.len() / 2]);
        if p99 < LATE_MS {
            Ok(())
        } else {
            Err(format!("p99 is {p99} ms late"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_tasks_that_are_due_at_once_drain_without_a_long_script() {
    const MANY: u64 = 100_000;
    let _alone = alone().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let filled = client
        .enqueue_all((0..MANY).map(Job::quick))
        .delay(Duration::from_secs(24 * 60 * 60))
        .forget()
        .await
        .unwrap();
    assert!(filled.iter().all(Result::is_ok));
    let scheduled = key("scheduled");
    assert_eq!(number(&redis, &["ZCARD", &scheduled]).await, 100_000);

    // A day later.
    for (setting, value) in [
        ("slowlog-log-slower-than", "20000"),
        ("slowlog-max-len", "10000"),
    ] {
        ask(&redis, &["CONFIG", "SET", setting, value]).await;
    }
    let all = ["ZUNIONSTORE", &scheduled, "1", &scheduled, "WEIGHTS", "0"];
    ask(&redis, &all).await;
    ask(&redis, &["CONFIG", "RESETSTAT"]).await;
    ask(&redis, &["SLOWLOG", "RESET"]).await;
    let worker = Worker::start(&client, |server| server.concurrency(1_000));
    let took = eventually("all have run", 3 * LONG, async || {
        let started = worker.log.lock().unwrap().len();
        if started >= 100_000 {
            Ok(())
        } else {
            Err(started)
        }
    })
    .await;
    eventually("nothing is left", LONG, async || {
        number(&redis, &["XLEN", &key("s")]).await == 0
            && number(&redis, &["EXISTS", &scheduled, &key("tasks")]).await == 0
    })
    .await;
    // The time of a script is wall time: on a busy machine a few are interrupted in the middle.
    let scripts = calls(&redis, "evalsha").await;
    let slow = number(&redis, &["SLOWLOG", "LEN"]).await;
    eprintln!("drained in {took:?} by {scripts} scripts, {slow} of them longer than 20 ms");
    assert!(scripts >= MANY / 100, "{scripts}");
    assert!(
        slow * 20 < i64::try_from(scripts).unwrap(),
        "{slow} of {scripts}"
    );
    let mut runs: Vec<u64> = worker.started().iter().map(|start| start.n).collect();
    runs.sort_unstable();
    assert!(runs.iter().copied().eq(0..MANY), "each ran once");
    assert_eq!(info(&redis, "stats", "expired_keys").await, 0);
    worker.stop().await;
    client.close().await;
    redis.finish().await;
}

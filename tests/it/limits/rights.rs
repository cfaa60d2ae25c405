//! Users of Redis with no more rights than `docs/operations.md` gives them.

use std::time::SystemTime;

use streamfleet::testing::{Leak, TestServer};
use streamfleet::{
    Backoff, Client, Context, EnqueueError, Failure, ResultError, Server, ServerBuilder, Task,
};
use tokio_util::sync::CancellationToken;

use super::{Job, LONG, Log, Worker, ask, job, ms};
use crate::source::root;
use crate::support::alone::together;
use crate::support::eventually;

/// Its first attempt fails; with `never` it is archived.
#[derive(serde::Serialize, serde::Deserialize, Task)]
#[task(name = "limits.failing", output = ())]
struct Failing {
    never: bool,
}

async fn failing(cx: Context<Log>, task: Failing) -> Result<(), Failure> {
    match (task.never, cx.attempt()) {
        (true, _) => Err(Failure::never("no use")),
        (false, 1) => Err(Failure::new("once")),
        (false, _) => Ok(()),
    }
}

/// No server has a handler for it.
#[derive(serde::Serialize, serde::Deserialize, Task)]
#[task(name = "limits.unknown", output = ())]
struct Unknown;

/// Makes the users by the very lines of the documentation.
async fn make_users(redis: &TestServer) {
    let text = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("ACL SETUSER"))
        .collect();
    assert_eq!(lines.len(), 2, "one line for each user");
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        ask(redis, &words).await;
    }
}

fn url(redis: &TestServer, role: &str) -> String {
    let port = redis.port();
    format!("redis://streamfleet-{role}:{role}-password@127.0.0.1:{port}")
}

/// Nothing was refused so far, also not inside of a script.
async fn nothing_was_refused(redis: &TestServer) {
    let log = ask(redis, &["ACL", "LOG"]).await;
    let refused: Vec<String> = log
        .items()
        .iter()
        .map(|entry| entry.texts().join(" "))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

fn eager(server: ServerBuilder<Log>) -> ServerBuilder<Log> {
    server
        .on(failing)
        .lease(ms(1_500))
        .renew_every(ms(300))
        .quiet_gap(ms(700))
        .upkeep_every(ms(100))
        .unknown_grace(ms(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_and_a_worker_need_no_more_than_the_documented_rights() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    redis.allow(Leak::Archived, "two tasks are archived on purpose");
    make_users(&redis).await;
    let producer = Client::connect(url(&redis, "producer")).await.unwrap();
    let operator = Client::connect(url(&redis, "worker")).await.unwrap();

    // The producer comes first: nothing of the queue is there yet.
    let plain = producer.enqueue(Job::quick(1)).await.unwrap();
    let retried = producer
        .enqueue(Failing { never: false })
        .backoff(Backoff::Fixed(ms(10)))
        .await
        .unwrap();
    let archived = producer.enqueue(Failing { never: true }).await.unwrap();
    let unknown = producer.enqueue(Unknown).await.unwrap();
    let delayed = producer
        .enqueue(Job::quick(2))
        .delay(ms(200))
        .await
        .unwrap();
    let waiting = producer
        .enqueue(Job::quick(3))
        .delay(ms(60_000))
        .await
        .unwrap();
    assert!(waiting.status().await.unwrap().is_some());
    waiting.cancel().await.unwrap();
    let late = producer
        .enqueue(Job::quick(4))
        .deadline(SystemTime::now() + ms(50))
        .await
        .unwrap();
    tokio::time::sleep(ms(60)).await;
    late.status().await.unwrap();
    assert!(matches!(late.result().await, Err(ResultError::Expired)));
    // One was read by a server that died, and had been there when another one died before.
    let suspect = producer
        .enqueue(Job::quick(5))
        .queue("suspect")
        .await
        .unwrap();
    let stream = "streamfleet:{suspect}:s";
    let read = [
        "XREADGROUP",
        "GROUP",
        "servers",
        "dead",
        "STREAMS",
        stream,
        ">",
    ];
    ask(&redis, &read).await;
    let entry = suspect.entry_id().unwrap().to_string();
    ask(
        &redis,
        &["HSET", "streamfleet:{suspect}:crashes", &entry, "0"],
    )
    .await;

    let set = |server: ServerBuilder<Log>| eager(server).queue("default", 1).queue("suspect", 1);
    let worker = Worker::start(&operator, set);
    assert_eq!(plain.result().await.unwrap(), 3);
    retried.result().await.unwrap();
    assert!(matches!(
        archived.result().await,
        Err(ResultError::Failed(_))
    ));
    assert_eq!(delayed.result().await.unwrap(), 6);
    assert_eq!(suspect.result().await.unwrap(), 15);

    // A queue that is paused until a moment from now, and a task that nobody knows.
    let until = SystemTime::now() + ms(300);
    operator
        .inspect()
        .pause_until("default", "a moment", until)
        .await
        .unwrap();
    let paused = producer.enqueue(Job::quick(6)).await.unwrap();
    assert_eq!(paused.result().await.unwrap(), 18);
    let cancelled = producer.enqueue(Job::slow(7, 60_000)).await.unwrap();
    eventually("it runs", LONG, async || {
        worker.started().iter().any(|start| start.n == 7)
    })
    .await;
    cancelled.cancel().await.unwrap();
    assert!(matches!(
        cancelled.result().await,
        Err(ResultError::Cancelled)
    ));

    // Every connection is cut: the old ones are looked for and closed.
    for role in ["producer", "worker"] {
        let user = format!("streamfleet-{role}");
        ask(&redis, &["CLIENT", "KILL", "USER", &user]).await;
    }
    let again = producer.enqueue(Job::quick(8)).await.unwrap();
    assert_eq!(again.result().await.unwrap(), 24);

    // What a stop hands back is taken by the next server.
    let unfinished = producer.enqueue(Job::slow(9, 1_000)).await.unwrap();
    eventually("it runs", LONG, async || {
        worker.started().iter().any(|start| start.n == 9)
    })
    .await;
    worker.stop.cancel();
    let next = Worker::start(&operator, |server| {
        set(server).shutdown_timeout(ms(0)).handler_grace(ms(0))
    });
    worker.stop().await;
    assert_eq!(unfinished.result().await.unwrap(), 27);
    let handed_on = producer.enqueue(Job::slow(10, 1_000)).await.unwrap();
    eventually("it runs", LONG, async || {
        next.started().iter().any(|start| start.n == 10)
    })
    .await;
    next.stop().await;
    let last = Worker::start(&operator, set);
    assert_eq!(handed_on.result().await.unwrap(), 30);
    // At its start a server looks for what nobody knew in time.
    assert!(matches!(
        unknown.result().await,
        Err(ResultError::NoHandler(_))
    ));
    last.stop().await;
    ask(
        &redis,
        &["XGROUP", "DELCONSUMER", stream, "servers", "dead"],
    )
    .await;
    producer.close().await;
    operator.close().await;
    nothing_was_refused(&redis).await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_reach_nothing_outside_the_prefix() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    make_users(&redis).await;
    for user in ["streamfleet-producer", "streamfleet-worker"] {
        for refused in [
            &["GET", "other"][..],
            &["SET", "streamfleet:{default}:s", "x"],
            &["HSET", "other:{default}:cfg", "a", "b"],
            &["EVAL", "return 1", "1", "other"],
            &["FLUSHALL"],
            &["KEYS", "*"],
            &["CONFIG", "GET", "*"],
            &["ACL", "LIST"],
            &["SCRIPT", "FLUSH"],
            &["MONITOR"],
            &["PUBLISH", "other", "x"],
        ] {
            let dry = [&["ACL", "DRYRUN", user][..], refused].concat();
            let answer = ask(&redis, &dry).await.text().unwrap();
            assert_ne!(answer, "OK", "{user} may {refused:?}");
        }
    }
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_is_named_and_is_not_tried_for_ever() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    make_users(&redis).await;
    ask(&redis, &["ACL", "SETUSER", "streamfleet-producer", "-xadd"]).await;
    let producer = Client::connect(url(&redis, "producer")).await.unwrap();
    let began = std::time::Instant::now();
    let refused = producer.enqueue(Job::quick(1)).await.unwrap_err();
    assert!(matches!(refused, EnqueueError::Backend(_)), "{refused:?}");
    // In the words of the server: Redis says it one way, Valkey the other.
    let said = refused.to_string();
    assert!(
        said.contains("can't run this command") || said.contains("no permissions to run"),
        "{said}"
    );
    let log = ask(&redis, &["ACL", "LOG"]).await;
    assert!(
        log.items()[0].texts().contains(&"xadd".to_owned()),
        "{log:?}"
    );
    assert!(began.elapsed() < ms(3_000), "{:?}", began.elapsed());
    producer.close().await;

    // A server that may not read at all does not start.
    ask(
        &redis,
        &["ACL", "SETUSER", "streamfleet-worker", "-evalsha", "-eval"],
    )
    .await;
    let operator = Client::connect(url(&redis, "worker")).await.unwrap();
    let server = Server::builder(&operator, Log::default())
        .on(job)
        .build()
        .unwrap();
    let stop = CancellationToken::new();
    let refused = server.run_until(stop.cancelled()).await.unwrap_err();
    assert!(refused.to_string().contains("eval"), "{refused}");
    operator.close().await;
    redis.finish().await;
}

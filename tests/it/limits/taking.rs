//! What a server holds and what it does not: no more tasks than it can run, no delay, no clock.

use streamfleet::testing::TestServer;
use streamfleet::{Backoff, Client, Context, Failure, Server, Task};

use super::{Job, LONG, Log, Worker, ask, job, key, ms, number, pending};
use crate::source::files;
use crate::support::alone::together;
use crate::support::eventually;

/// Its first attempt fails.
#[derive(serde::Serialize, serde::Deserialize, Task)]
#[task(name = "limits.once", output = u32)]
struct Once;

async fn once(cx: Context<Log>, _: Once) -> Result<u32, Failure> {
    if cx.attempt() == 1 {
        return Err(Failure::new("the first time"));
    }
    Ok(cx.attempt())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_outlives_the_server_that_failed() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    for dies in [true, false] {
        let first = Worker::start(&client, |server| server.on(once));
        let handle = client
            .enqueue(Once)
            .backoff(Backoff::Fixed(ms(1_000)))
            .await
            .unwrap();
        eventually("it waits for its retry", LONG, async || {
            number(&redis, &["ZCARD", &key("retry")]).await == 1
        })
        .await;
        if dies {
            first.drop_hard().await;
        } else {
            first.stop().await;
        }
        assert_eq!(number(&redis, &["ZCARD", &key("retry")]).await, 1);
        let second = Worker::start(&client, |server| server.on(once));
        assert_eq!(handle.result().await.unwrap(), 2);
        second.stop().await;
    }
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_takes_no_more_than_it_can_run() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let first = Worker::start(&client, |server| server.concurrency(1));
    let long = client.enqueue(Job::slow(100, 2_000)).await.unwrap();
    eventually("the long one runs", LONG, async || {
        !first.started().is_empty()
    })
    .await;
    let short = client.enqueue_all((0..20).map(Job::quick)).await.unwrap();
    assert_eq!(pending(&redis).await, 1, "the others are for anybody");
    let second = Worker::start(&client, |server| server.concurrency(1));
    for (n, handle) in short.into_iter().enumerate() {
        assert_eq!(handle.unwrap().result().await.unwrap(), 3 * n as u64);
    }
    assert_eq!(first.started().len(), 1);
    assert_eq!(second.started().len(), 20);
    assert_eq!(long.result().await.unwrap(), 300);
    first.stop().await;
    second.stop().await;
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_ran_holds_nothing() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let server = Server::builder(&client, Log::default())
        .on(job)
        .build()
        .unwrap();
    assert_eq!(number(&redis, &["DBSIZE"]).await, 0);
    let list = ask(&redis, &["CLIENT", "LIST"]).await.text().unwrap();
    assert!(!list.contains("streamfleet-server-"), "{list}");
    drop(server);
    client.close().await;
    redis.finish().await;
}

/// Every time that decides anything is read in the script that needs it: hosts may be hours apart.
#[test]
fn no_script_is_told_the_time() {
    let scripts = files("src/store/scripts", "lua").unwrap();
    assert!(scripts.len() > 30, "{}", scripts.len());
    let ask = scripts.iter().filter(|(_, text)| text.contains("'TIME'"));
    let ask: Vec<&str> = ask.map(|(path, _)| path.as_str()).collect();
    assert_eq!(ask, ["src/store/scripts/parts/clock.lua"]);
    // And no call of a script knows a wall clock it could pass.
    for (path, text) in files("src/store", "rs").unwrap() {
        let is_test = path.contains("tests");
        assert!(
            is_test || !text.contains("SystemTime"),
            "{path} reads a wall clock"
        );
    }
}

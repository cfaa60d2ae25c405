//! Keys that vanish or hold another type, while there is work.

use std::time::Duration;

use streamfleet::testing::TestServer;
use streamfleet::{BackendKind, Client, EnqueueError};

use super::worker::{Job, LocalWorker, Setup, count, output_of};
use super::{LONG, ms, together};
use crate::support::wait::eventually;

const KINDS: [&str; 12] = [
    "s",
    "tasks",
    "scheduled",
    "retry",
    "archived",
    "clients",
    "producers",
    "servers",
    "cancel",
    "crashes",
    "cfg",
    "n",
];

fn key(kind: &str) -> String {
    format!("streamfleet:{{poor}}:{kind}")
}

/// Two queues of one worker; what happens to `poor` must not matter to `rich`.
async fn setting(redis: &TestServer) -> (Client, LocalWorker) {
    let client = Client::builder(redis.url())
        .waiter_silence(ms(300))
        .enqueue_deadline(Duration::from_secs(2))
        .connect()
        .await
        .unwrap();
    let setup = Setup {
        queues: vec!["poor".to_owned(), "rich".to_owned()],
        lease: ms(1_500),
        upkeep: ms(200),
        ..Setup::new(redis.url())
    };
    (client, setup.here().await)
}

/// Enqueues and awaits in a queue until stopped; an error in it is no failure if it is typed.
async fn load(client: &Client, queue: &str, stop: &tokio_util::sync::CancellationToken) -> u64 {
    let mut succeeded = 0;
    while !stop.is_cancelled() {
        match client.enqueue(Job::sleep(succeeded, 1)).queue(queue).await {
            Ok(handle) => {
                let outcome = handle.result_timeout(LONG).await;
                assert!(
                    !matches!(outcome, Err(streamfleet::ResultError::WaitTimeout(_))),
                    "a waiter of {queue} hangs"
                );
                succeeded += u64::from(outcome.is_ok());
            }
            Err(_) => tokio::time::sleep(ms(5)).await,
        }
    }
    succeeded
}

async fn a_task_runs(client: &Client, queue: &str) {
    eventually(&format!("a task runs in {queue}"), LONG, async || {
        let handle = client.enqueue(Job::sleep(5, 0)).queue(queue).await;
        let handle = handle.map_err(|error| error.to_string())?;
        let outcome = handle.result_timeout(Duration::from_secs(20)).await;
        let output = outcome.map_err(|error| error.to_string())?;
        assert_eq!(output, output_of(5));
        Ok::<(), String>(())
    })
    .await;
}

/// The other queue goes on: so many more tasks of it end.
async fn rich_goes_on(client: &Client) {
    for n in 0..10 {
        let handle = client
            .enqueue(Job::sleep(n, 0))
            .queue("rich")
            .await
            .unwrap();
        let outcome = handle.result_timeout(Duration::from_secs(20)).await;
        assert_eq!(outcome.unwrap(), output_of(n));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_keys_under_load_are_made_again() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let (client, worker) = setting(&redis).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let faults = async {
        a_task_runs(&client, "poor").await;
        for kind in KINDS {
            redis.command(&["DEL", &key(kind)]).await.unwrap();
            rich_goes_on(&client).await;
            a_task_runs(&client, "poor").await;
        }
        for _ in 0..3 {
            redis.command(&["FLUSHALL"]).await.unwrap();
            a_task_runs(&client, "poor").await;
            a_task_runs(&client, "rich").await;
        }
        stop.cancel();
    };
    let ((), succeeded) = tokio::join!(faults, load(&client, "poor", &stop));
    assert!(succeeded > 0);
    assert!(worker.is_running());
    worker.stop().await;
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_the_wrong_type_is_named_and_stops_no_other_queue() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let (client, worker) = setting(&redis).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let faults = async {
        a_task_runs(&client, "poor").await;
        for kind in KINDS {
            let key = key(kind);
            let poison = [vec!["DEL", &key], vec!["SET", &key, "a string"]];
            redis.pipeline(&poison).await.unwrap();
            rich_goes_on(&client).await;
            if ["s", "producers", "clients", "cfg"].contains(&kind) {
                let refused = client.enqueue(Job::sleep(1, 0)).queue("poor").await;
                let error = refused.expect_err(kind);
                assert!(
                    matches!(&error, EnqueueError::Backend(error) if error.kind() == BackendKind::WrongType),
                    "{kind}: {error:?}"
                );
                assert!(error.to_string().contains(&key), "{kind}: {error}");
            }
            redis.command(&["DEL", &key]).await.unwrap();
            a_task_runs(&client, "poor").await;
        }
        stop.cancel();
    };
    let ((), succeeded) = tokio::join!(faults, load(&client, "poor", &stop));
    assert!(succeeded > 0);
    assert!(worker.is_running());
    assert_eq!(count(&worker.events(), "archived"), 0);
    worker.stop().await;
    client.close().await;
    redis.finish().await;
}

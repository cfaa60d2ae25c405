//! Tasks on their way into Redis, also when the way is broken.

use std::time::{Duration, Instant};

use streamfleet::testing::{AofMode, TestServer};
use streamfleet::{Client, EnqueueError, TaskState};

use super::{LIMIT, Square, clear, entry, finish, length, square};
use crate::support::{Mode, Proxy, eventually};

#[tokio::test]
async fn an_enqueue_whose_reply_is_lost_creates_its_task_once() {
    let server = TestServer::start().await.unwrap();
    let proxy = Proxy::start(server.port()).await;
    let client = Client::connect(server.url_at(proxy.port())).await.unwrap();
    client.enqueue(square(0)).forget().await.unwrap();
    proxy.set(Mode::LoseReplyTo("lost-mark"));
    let task = Square {
        number: 1,
        mark: "lost-mark".to_owned(),
    };
    let handle = client.enqueue(task).await.unwrap();
    assert_eq!(proxy.mode(), Mode::Pass, "the reply was not lost");
    assert_eq!(length(&server, "default").await, 2);
    finish(&server, &client, &handle, 1).await;
    assert_eq!(handle.result().await.unwrap(), 1);
    clear(&server, "default").await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_bulk_whose_replies_are_lost_creates_each_task_once() {
    let server = TestServer::start().await.unwrap();
    let proxy = Proxy::start(server.port()).await;
    let client = Client::connect(server.url_at(proxy.port())).await.unwrap();
    let mut stored = 0;
    for round in 0..5 {
        let mark = ["mark-a", "mark-b", "mark-c", "mark-d", "mark-e"][round];
        proxy.set(Mode::LoseReplyTo(mark));
        let tasks = (0..250).map(|number| Square {
            number,
            mark: mark.to_owned(),
        });
        let results = client.enqueue_all(tasks).forget().await.unwrap();
        stored += results.iter().filter(|result| result.is_ok()).count();
    }
    assert_eq!(stored, 1_250);
    assert_eq!(length(&server, "default").await, 1_250);
    clear(&server, "default").await;
    client.close().await;
    server.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enqueues_through_a_restart_create_each_task_once() {
    // With `everysec` a busy disk makes Redis answer before it writes: a kill then loses what was answered.
    let server = TestServer::options()
        .aof(AofMode::Always)
        .start()
        .await
        .unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let enqueues: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut stored = 0;
                for number in 0..200 {
                    client.enqueue(square(number)).forget().await.unwrap();
                    stored += 1;
                }
                stored
            })
        })
        .collect();
    eventually("some are in", LIMIT, async || {
        length(&server, "default").await > 500
    })
    .await;
    server.kill();
    server.restart().await.unwrap();
    let mut stored = 0;
    for enqueue in enqueues {
        stored += enqueue.await.unwrap();
    }
    assert_eq!(length(&server, "default").await, stored);
    clear(&server, "default").await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_full_redis_is_named_and_takes_nothing() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    client.enqueue(square(1)).forget().await.unwrap();
    server
        .command(&["CONFIG", "SET", "maxmemory", "1"])
        .await
        .unwrap();
    let start = Instant::now();
    let error = client.enqueue(square(2)).await.unwrap_err();
    assert!(matches!(error, EnqueueError::OutOfMemory(_)), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(length(&server, "default").await, 1);
    server
        .command(&["CONFIG", "SET", "maxmemory", "0"])
        .await
        .unwrap();
    client.enqueue(square(3)).forget().await.unwrap();
    clear(&server, "default").await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_full_buffer_refuses_at_once_and_recovers() {
    let server = TestServer::start().await.unwrap();
    let client = Client::builder(server.url())
        .buffer(10)
        .connect()
        .await
        .unwrap();
    client.enqueue(square(0)).forget().await.unwrap();
    server.pause().unwrap();
    let waiting: Vec<_> = (0..10)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.enqueue(square(number)).forget().await })
        })
        .collect();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    for number in 0..100_000 {
        let error = client.enqueue(square(number)).await.unwrap_err();
        assert!(
            matches!(error, EnqueueError::BufferFull { limit: 10, .. }),
            "{error:?}"
        );
    }
    server.resume().unwrap();
    for enqueue in waiting {
        enqueue.await.unwrap().unwrap();
    }
    client.enqueue(square(11)).forget().await.unwrap();
    assert_eq!(length(&server, "default").await, 12);
    clear(&server, "default").await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn an_enqueue_that_is_never_answered_ends_as_unknown_at_its_deadline() {
    let server = TestServer::start().await.unwrap();
    let proxy = Proxy::start(server.port()).await;
    let deadline = Duration::from_millis(600);
    let client = Client::builder(server.url_at(proxy.port()))
        .enqueue_deadline(deadline)
        .connect()
        .await
        .unwrap();
    client.enqueue(square(0)).forget().await.unwrap();
    proxy.set(Mode::SwallowReplies);
    let start = Instant::now();
    let error = client.enqueue(square(1)).await.unwrap_err();
    let took = start.elapsed();
    assert!(
        matches!(error, EnqueueError::Unknown { waited, .. } if waited >= deadline),
        "{error:?}"
    );
    assert!(took < deadline * 3, "{took:?}");
    proxy.set(Mode::Pass);
    proxy.cut_all();
    client.enqueue(square(2)).forget().await.unwrap();
    // The unanswered one was executed, and only once.
    assert_eq!(length(&server, "default").await, 3);
    clear(&server, "default").await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_payload_over_the_limit_names_its_size_and_the_limit() {
    let server = TestServer::start().await.unwrap();
    let client = Client::builder(server.url())
        .max_payload(100)
        .connect()
        .await
        .unwrap();
    let big = Square {
        number: 1,
        mark: "x".repeat(200),
    };
    let error = client.enqueue(big.clone()).await.unwrap_err();
    assert!(
        matches!(&error, EnqueueError::PayloadTooLarge { name, bytes, limit: 100 } if name == "square" && *bytes > 200),
        "{error:?}"
    );
    let tasks = [square(0), big, square(2)];
    let results = client.enqueue_all(tasks).forget().await.unwrap();
    assert!(results[0].is_ok() && results[2].is_ok());
    assert!(matches!(
        results[1],
        Err(EnqueueError::PayloadTooLarge { .. })
    ));
    assert_eq!(length(&server, "default").await, 2);
    clear(&server, "default").await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn bad_names_and_options_are_refused_before_anything_is_sent() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    for queue in ["", "*", "a}:{b", "receiver:x", "a b", "é"] {
        let error = client.enqueue(square(1)).queue(queue).await.unwrap_err();
        assert!(matches!(error, EnqueueError::Name(_)), "{queue}: {error:?}");
        let error = client
            .enqueue_all([square(1)])
            .queue(queue)
            .await
            .unwrap_err();
        assert!(matches!(error, EnqueueError::Name(_)), "{queue}: {error:?}");
    }
    let error = client
        .enqueue(square(1))
        .timeout(Duration::ZERO)
        .await
        .unwrap_err();
    assert!(matches!(error, EnqueueError::Option(_)), "{error:?}");
    let error = client
        .enqueue(square(1))
        .header("x", "a\nb")
        .await
        .unwrap_err();
    assert!(matches!(error, EnqueueError::Option(_)), "{error:?}");
    let keys = server.command(&["DBSIZE"]).await.unwrap();
    assert_eq!(keys.int(), Some(0));
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_bulk_gives_one_result_per_task_in_order() {
    let server = TestServer::start().await.unwrap();
    let client = Client::builder(server.url())
        .buffer(300)
        .connect()
        .await
        .unwrap();
    let handles: Vec<_> = client
        .enqueue_all((0..1_000).map(square))
        .queue("bulk")
        .await
        .unwrap()
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(handles.len(), 1_000);
    assert!(handles.is_sorted_by(|a, b| entry(a) < entry(b)));
    assert!(handles.is_sorted_by(|a, b| a.id() < b.id()));
    assert_eq!(length(&server, "bulk").await, 1_000);
    for (number, handle) in handles.iter().enumerate().step_by(97) {
        finish(&server, &client, handle, number as u64).await;
        assert_eq!(handle.result().await.unwrap(), number as u64);
    }
    clear(&server, "bulk").await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn concurrent_enqueues_share_batches() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    client.enqueue(square(0)).forget().await.unwrap();
    let before = crate::support::commands_received_by_name(&server).await;
    let enqueues: Vec<_> = (0..1_000)
        .map(|number| tokio::spawn(client.enqueue(square(number)).forget().into_future()))
        .collect();
    for enqueue in enqueues {
        enqueue.await.unwrap().unwrap();
    }
    let after = crate::support::commands_received_by_name(&server).await;
    let calls = after["evalsha"] - before["evalsha"];
    assert!(calls <= 30, "{calls} calls for 1,000 tasks");
    clear(&server, "default").await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_delayed_task_is_scheduled_and_can_be_cancelled() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let handle = client
        .enqueue(square(1))
        .delay(Duration::from_secs(600))
        .await
        .unwrap();
    assert_eq!(handle.entry_id(), None);
    let status = handle.status().await.unwrap().unwrap();
    assert_eq!(status.state, TaskState::Scheduled);
    assert!(status.due.is_some());
    let outcome = handle.cancel().await.unwrap();
    assert_eq!(outcome, streamfleet::CancelOutcome::Ended);
    let error = handle.result().await.unwrap_err();
    assert!(
        matches!(error, streamfleet::ResultError::Cancelled),
        "{error:?}"
    );
    assert_eq!(handle.status().await.unwrap(), None);
    client.close().await;
    server.finish().await;
}

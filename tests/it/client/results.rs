//! Outcomes on their way back, also when they are lost.

use std::time::{Duration, Instant};

use streamfleet::testing::{AofMode, TestServer};
use streamfleet::{CancelOutcome, Client, ResultError, TaskHandle, TaskState};

use super::{LIMIT, Square, clear, finish, impatient, notice_head, notify, remove, square};
use crate::support::{Proxy, Redis, Topology};

async fn handles(client: &Client, count: u64) -> Vec<TaskHandle<Square>> {
    let results = client.enqueue_all((0..count).map(square)).await.unwrap();
    results.into_iter().map(Result::unwrap).collect()
}

async fn all_are_lost(handles: &[TaskHandle<Square>]) {
    for handle in handles {
        let result = tokio::time::timeout(LIMIT, handle.result())
            .await
            .expect("a waiter hangs");
        assert!(matches!(result, Err(ResultError::Lost)), "{result:?}");
    }
}

#[tokio::test]
async fn the_output_arrives_typed_and_the_receiver_is_trimmed() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    for number in 0..20 {
        let handle = client.enqueue(square(number)).await.unwrap();
        finish(&server, &client, &handle, number * number).await;
        let output = tokio::time::timeout(LIMIT, handle).await.unwrap();
        assert_eq!(output.unwrap(), number * number);
    }
    let receiver = format!("streamfleet:{{default}}:r:{}", client.id());
    crate::support::eventually("the receiver is empty", LIMIT, async || {
        server.command(&["XLEN", &receiver]).await.unwrap().int() == Some(0)
    })
    .await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn several_waiters_of_one_handle_get_the_same_output_early_or_late() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let handle = client.enqueue(square(3)).await.unwrap();
    let early: Vec<_> = (0..5)
        .map(|_| tokio::spawn(handle.clone().into_future()))
        .collect();
    tokio::task::yield_now().await;
    finish(&server, &client, &handle, 9).await;
    for waiter in early {
        assert_eq!(waiter.await.unwrap().unwrap(), 9);
    }
    assert_eq!(handle.result().await.unwrap(), 9);
    assert_eq!(handle.result().await.unwrap(), 9);
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_wait_that_is_over_first_leaves_the_task_alone() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let handle = client.enqueue(square(3)).await.unwrap();
    let wait = Duration::from_millis(50);
    let error = handle.result_timeout(wait).await.unwrap_err();
    assert!(
        matches!(error, ResultError::WaitTimeout(time) if time == wait),
        "{error:?}"
    );
    let status = handle.status().await.unwrap().unwrap();
    assert_eq!(status.state, TaskState::Pending);
    finish(&server, &client, &handle, 9).await;
    assert_eq!(handle.result_timeout(LIMIT).await.unwrap(), 9);
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_task_that_waits_far_longer_than_the_silence_is_not_lost() {
    let server = TestServer::start().await.unwrap();
    let client = impatient(&server).connect().await.unwrap();
    let handle = client.enqueue(square(3)).await.unwrap();
    let error = handle
        .result_timeout(Duration::from_secs(2))
        .await
        .unwrap_err();
    assert!(matches!(error, ResultError::WaitTimeout(_)), "{error:?}");
    finish(&server, &client, &handle, 9).await;
    assert_eq!(handle.result_timeout(LIMIT).await.unwrap(), 9);
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_thousand_waiters_of_a_flushed_redis_end_as_lost() {
    let server = TestServer::start().await.unwrap();
    let client = impatient(&server).connect().await.unwrap();
    let handles = handles(&client, 1_000).await;
    server.command(&["FLUSHALL"]).await.unwrap();
    all_are_lost(&handles).await;
    // It goes on by itself.
    let handle = client.enqueue(square(3)).await.unwrap();
    finish(&server, &client, &handle, 9).await;
    assert_eq!(handle.result_timeout(LIMIT).await.unwrap(), 9);
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_thousand_waiters_of_a_deleted_receiver_end_as_lost() {
    let server = TestServer::start().await.unwrap();
    let client = impatient(&server).connect().await.unwrap();
    let handles = handles(&client, 1_000).await;
    let (done, gone) = handles.split_at(10);
    for handle in done {
        finish(&server, &client, handle, 1).await;
    }
    for handle in done {
        assert_eq!(handle.result_timeout(LIMIT).await.unwrap(), 1);
    }
    let receiver = format!("streamfleet:{{default}}:r:{}", client.id());
    server.command(&["DEL", &receiver]).await.unwrap();
    // They end while nobody can be told.
    clear(&server, "default").await;
    all_are_lost(gone).await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_swept_client_learns_it_from_its_heartbeat() {
    let server = TestServer::start().await.unwrap();
    let client = Client::builder(server.url())
        .client_dead_after(Duration::from_secs(2))
        .enqueue_deadline(Duration::from_secs(1))
        .connect()
        .await
        .unwrap();
    let handle = client.enqueue(square(3)).await.unwrap();
    server
        .command(&[
            "ZREM",
            "streamfleet:{default}:clients",
            client.id().as_str(),
        ])
        .await
        .unwrap();
    remove(&server, &handle).await;
    let start = Instant::now();
    all_are_lost(&[handle]).await;
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_malformed_notice_ends_its_waiter_by_a_look_up() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let handle = client.enqueue(square(3)).await.unwrap();
    remove(&server, &handle).await;
    let mut notice = notice_head(&handle);
    notice.extend_from_slice(b"\xa7unknown");
    notify(&server, &client, &handle, &notice).await;
    all_are_lost(&[handle]).await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_notice_that_names_no_task_ends_its_waiter_by_a_look_up() {
    let server = TestServer::start().await.unwrap();
    let client = impatient(&server).connect().await.unwrap();
    let handle = client.enqueue(square(3)).await.unwrap();
    remove(&server, &handle).await;
    notify(&server, &client, &handle, b"\xc1nothing").await;
    all_are_lost(&[handle]).await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_notice_of_a_newer_version_ends_its_waiter_as_one_that_cannot_be_decoded() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let handle = client.enqueue(square(3)).await.unwrap();
    remove(&server, &handle).await;
    let mut notice = notice_head(&handle);
    // Behind the length of the array.
    notice[1] = 99;
    notice.extend_from_slice(b"\xa7unknown");
    notify(&server, &client, &handle, &notice).await;
    let result = handle.result_timeout(LIMIT).await;
    assert!(matches!(result, Err(ResultError::Decode(_))), "{result:?}");
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn results_arrive_over_new_connections() {
    let server = TestServer::start().await.unwrap();
    let proxy = Proxy::start(server.port()).await;
    let client = Client::connect(server.url_at(proxy.port())).await.unwrap();
    let handles = handles(&client, 50).await;
    for (number, handle) in handles.iter().enumerate() {
        if number % 10 == 0 {
            proxy.cut_all();
        }
        finish(&server, &client, handle, number as u64).await;
    }
    for (number, handle) in handles.iter().enumerate() {
        assert_eq!(handle.result_timeout(LIMIT).await.unwrap(), number as u64);
    }
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_waiter_outlasts_a_redis_that_is_away() {
    let server = TestServer::start().await.unwrap();
    let client = impatient(&server).connect().await.unwrap();
    let handle = client.enqueue(square(3)).await.unwrap();
    server.pause().unwrap();
    let error = handle
        .result_timeout(Duration::from_secs(1))
        .await
        .unwrap_err();
    assert!(matches!(error, ResultError::WaitTimeout(_)), "{error:?}");
    server.resume().unwrap();
    finish(&server, &client, &handle, 9).await;
    assert_eq!(handle.result_timeout(LIMIT).await.unwrap(), 9);
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn waiters_in_several_queues_each_get_theirs() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let mut handles = Vec::new();
    for number in 0..30_u64 {
        let queue = format!("q{}", number % 6);
        handles.push(client.enqueue(square(number)).queue(queue).await.unwrap());
    }
    for (number, handle) in handles.iter().enumerate() {
        finish(&server, &client, handle, number as u64).await;
        assert_eq!(handle.result_timeout(LIMIT).await.unwrap(), number as u64);
    }
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn waiters_whose_notices_were_trimmed_by_somebody_end_as_lost() {
    let server = TestServer::start().await.unwrap();
    let client = impatient(&server).connect().await.unwrap();
    let handles = handles(&client, 3).await;
    let receiver = format!("streamfleet:{{default}}:r:{}", client.id());
    // A stream that had notices, and has none.
    server
        .command(&["XADD", &receiver, "99999999999999-0", "o", "x"])
        .await
        .unwrap();
    server
        .command(&["XTRIM", &receiver, "MAXLEN", "0"])
        .await
        .unwrap();
    clear(&server, "default").await;
    all_are_lost(&handles).await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_task_past_its_deadline_expires_though_no_server_runs() {
    let server = TestServer::start().await.unwrap();
    let client = impatient(&server).connect().await.unwrap();
    let deadline = std::time::SystemTime::now() + Duration::from_millis(200);
    let handle = client.enqueue(square(3)).deadline(deadline).await.unwrap();
    let error = handle.result_timeout(LIMIT).await.unwrap_err();
    assert!(matches!(error, ResultError::Expired), "{error:?}");
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn an_archived_task_whose_notice_was_lost_tells_its_reason_by_its_record() {
    let server = TestServer::start().await.unwrap();
    let client = impatient(&server).connect().await.unwrap();
    let handle = client.enqueue(square(3)).await.unwrap();
    // Nobody is signed in, so no notice is written.
    let id = client.id().as_str();
    server
        .command(&["ZREM", "streamfleet:{default}:clients", id])
        .await
        .unwrap();
    client
        .inspect()
        .archive("default", handle.id())
        .await
        .unwrap();
    let error = handle.result_timeout(LIMIT).await.unwrap_err();
    assert!(matches!(error, ResultError::Archived), "{error:?}");
    client
        .inspect()
        .delete("default", handle.id())
        .await
        .unwrap();
    client.close().await;
    server.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_waiters_on_three_nodes_get_theirs() {
    let redis = Redis::start(Topology::Cluster, AofMode::Off).await;
    let client = Client::connect(redis.url()).await.unwrap();
    let mut handles = Vec::new();
    for queue in redis.queues("q") {
        for result in client
            .enqueue_all((0..250).map(square))
            .queue(queue)
            .await
            .unwrap()
        {
            handles.push(result.unwrap());
        }
    }
    for handle in &handles {
        assert_eq!(handle.cancel().await.unwrap(), CancelOutcome::Ended);
    }
    for handle in &handles {
        let error = handle.result_timeout(LIMIT).await.unwrap_err();
        assert!(matches!(error, ResultError::Cancelled), "{error:?}");
    }
    client.close().await;
    redis.finish().await;
}

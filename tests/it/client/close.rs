//! What a closed client leaves, and what it answers.

use std::time::{Duration, Instant};

use streamfleet::testing::TestServer;
use streamfleet::{Client, EnqueueError, InspectError, ResultError};

use super::{LIMIT, clear, connections, square};
use crate::support::{Mode, Proxy, eventually};

#[tokio::test]
async fn close_ends_every_wait_and_leaves_no_key_and_no_connection() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let handles = client.enqueue_all((0..100).map(square)).await.unwrap();
    let waiters: Vec<_> = handles
        .into_iter()
        .map(|handle| tokio::spawn(handle.unwrap().into_future()))
        .collect();
    eventually("the receiver reads", LIMIT, async || {
        connections(&server).await == 2
    })
    .await;
    let start = Instant::now();
    client.close().await;
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    for waiter in waiters {
        let result = tokio::time::timeout(LIMIT, waiter)
            .await
            .expect("a waiter hangs")
            .unwrap();
        assert!(matches!(result, Err(ResultError::Closed)), "{result:?}");
    }
    eventually("nobody is connected", LIMIT, async || {
        connections(&server).await == 0
    })
    .await;
    for (command, key) in [("ZCARD", "clients"), ("HLEN", "producers")] {
        let key = format!("streamfleet:{{default}}:{key}");
        let left = server.command(&[command, &key]).await.unwrap();
        assert_eq!(left.int(), Some(0), "{key}");
    }
    let receivers = server
        .command(&["KEYS", "streamfleet:{default}:r:*"])
        .await
        .unwrap();
    assert!(receivers.texts().is_empty());
    clear(&server, "default").await;
    server.finish().await;
}

#[tokio::test]
async fn every_call_after_close_says_so() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let handle = client.enqueue(square(1)).await.unwrap();
    clear(&server, "default").await;
    client.close().await;
    let error = client.enqueue(square(1)).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Closed), "{error:?}");
    let error = client.enqueue_all([square(1)]).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Closed), "{error:?}");
    let error = handle.result().await.unwrap_err();
    assert!(matches!(error, ResultError::Closed), "{error:?}");
    let start = Instant::now();
    let error = handle.status().await.unwrap_err();
    assert!(matches!(error, InspectError::Backend(_)), "{error:?}");
    let error = client.inspect().counts("default").await.unwrap_err();
    assert!(matches!(error, InspectError::Backend(_)), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(1));
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn an_enqueue_in_flight_at_close_is_answered() {
    let server = TestServer::start().await.unwrap();
    let proxy = Proxy::start(server.port()).await;
    let client = Client::connect(server.url_at(proxy.port())).await.unwrap();
    client.enqueue(square(0)).forget().await.unwrap();
    proxy.set(Mode::Delay(Duration::from_millis(100)));
    let enqueues: Vec<_> = (0..50)
        .map(|number| tokio::spawn(client.enqueue(square(number)).forget().into_future()))
        .collect();
    tokio::task::yield_now().await;
    client.close().await;
    let mut stored = 1;
    for enqueue in enqueues {
        match tokio::time::timeout(LIMIT, enqueue)
            .await
            .expect("an enqueue hangs")
            .unwrap()
        {
            Ok(_) => stored += 1,
            Err(EnqueueError::Closed) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(super::length(&server, "default").await, stored);
    clear(&server, "default").await;
    server.finish().await;
}

#[tokio::test]
async fn a_client_can_be_closed_while_redis_is_away() {
    let server = TestServer::start().await.unwrap();
    let client = Client::builder(server.url())
        .command_timeout(Duration::from_secs(1))
        .connect()
        .await
        .unwrap();
    let handle = client.enqueue(square(1)).await.unwrap();
    server.pause().unwrap();
    tokio::time::timeout(LIMIT, client.close())
        .await
        .expect("close hangs");
    assert!(matches!(handle.result().await, Err(ResultError::Closed)));
    server.resume().unwrap();
    server.unchecked("the client could not remove its keys: they wait for the sweep");
    server.finish().await;
}

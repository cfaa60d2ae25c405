//! What a client refuses to start with.

use std::time::{Duration, Instant};

use streamfleet::testing::TestServer;
use streamfleet::{Client, ConnectError};

use super::{LIMIT, connections, square};
use crate::support::eventually;

#[tokio::test]
async fn a_wrong_password_is_named_at_once_and_not_shown() {
    let server = TestServer::options()
        .password("right")
        .start()
        .await
        .unwrap();
    let start = Instant::now();
    let url = format!("redis://:hunter2@127.0.0.1:{}", server.port());
    let error = Client::connect(url).await.unwrap_err();
    assert!(matches!(error, ConnectError::Backend(_)), "{error:?}");
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("WRONGPASS") && !text.contains("hunter2"),
        "{text}"
    );
    server.finish().await;
}

#[tokio::test]
async fn a_url_that_cannot_be_used_is_refused_without_its_password() {
    for url in [
        "http://u:hunter2@h",
        "redis://u:hunter2@h:99999",
        "redis://u:hunter2@",
        "",
    ] {
        let error = Client::connect(url).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(matches!(error, ConnectError::Url(_)), "{url}: {text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_within_the_connect_timeout() {
    let start = Instant::now();
    let error = Client::connect("redis://127.0.0.1:1").await.unwrap_err();
    assert!(matches!(error, ConnectError::Backend(_)), "{error:?}");
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_redis_that_may_evict_tasks_is_refused_unless_it_is_allowed() {
    let server = TestServer::options()
        .arg("--maxmemory-policy", "allkeys-lru")
        .start()
        .await
        .unwrap();
    let error = Client::connect(server.url()).await.unwrap_err();
    assert!(error.to_string().contains("allkeys-lru"), "{error}");
    assert!(matches!(error, ConnectError::Evicting { .. }));
    let client = Client::builder(server.url())
        .allow_eviction()
        .connect()
        .await
        .unwrap();
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_before_anything_is_sent() {
    let builder = || Client::builder("redis://127.0.0.1:1");
    let error = builder()
        .client_dead_after(Duration::from_secs(40))
        .connect()
        .await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("30s") && text.contains("20s"), "{text}");
    let error = builder().prefix("a}:{b").connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::Name(_)), "{error:?}");
    let error = builder().buffer(0).connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::Config(_)), "{error:?}");
}

#[tokio::test]
async fn dropping_the_last_clone_closes_every_connection() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let handle = client.enqueue(square(1)).await.unwrap();
    eventually("the receiver reads", LIMIT, async || {
        connections(&server).await == 2
    })
    .await;
    drop(client.clone());
    drop(client);
    assert_eq!(
        connections(&server).await,
        2,
        "a handle keeps its client alive"
    );
    super::remove(&server, &handle).await;
    drop(handle);
    eventually("nobody is connected", LIMIT, async || {
        connections(&server).await == 0
    })
    .await;
    server.unchecked("the client was dropped without a farewell: its keys wait for the sweep");
    server.finish().await;
}

#[tokio::test]
async fn debug_shows_no_password() {
    let server = TestServer::options()
        .password("hunter2")
        .start()
        .await
        .unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    assert!(!format!("{client:?} {:?}", client.inspect()).contains("hunter2"));
    client.close().await;
    server.finish().await;
}

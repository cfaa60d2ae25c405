//! The connections against a real cluster of three nodes.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::blocking::BlockingConn;
use super::conn::Conn;
use super::conn_tests::ECHO;
use super::subscriber::Subscriber;
use super::tests_server::{cluster, options_at, read, until, until_within};
use crate::error::BackendKind;
use crate::testing::TestCluster;

/// A key of each node, by its index.
fn keys(cluster: &TestCluster) -> [Bytes; 3] {
    cluster
        .queues_on_three_nodes("q")
        .map(|queue| Bytes::from(format!("p:{{{queue}}}:s")))
}

async fn group(conn: &Conn, key: &Bytes) {
    let args = ["CREATE", "", "servers", "0", "MKSTREAM"].map(|arg| {
        if arg.is_empty() {
            key.clone()
        } else {
            Bytes::from_static(arg.as_bytes())
        }
    });
    conn.command("XGROUP", Some(key), args.to_vec())
        .await
        .unwrap();
}

#[tokio::test]
async fn scripts_reads_and_wake_ups_find_the_node_of_their_key() {
    let cluster = cluster().await;
    let options = options_at(&cluster.url(), "cluster");
    let conn = Conn::connect(&options).await.unwrap();
    let mut run_ids = std::collections::BTreeSet::new();
    for key in keys(&cluster) {
        conn.run(&ECHO, vec![key.clone()], Vec::new())
            .await
            .unwrap();
        run_ids.insert(conn.node(&key).await.unwrap().run_id);
        group(&conn, &key).await;
        let reader = BlockingConn::connect(&options).await.unwrap();
        let target = reader.unblock_target();
        let blocked = tokio::spawn(async move {
            let found = read(&reader, Some(Duration::from_secs(9)), &[key]).await;
            (found, reader)
        });
        until("the reader is blocked", async || {
            conn.unblock(&target).await.unwrap()
        })
        .await;
        let (found, reader) = blocked.await.unwrap();
        assert_eq!(found.unwrap(), []);
        assert_eq!(*reader.reconnects().borrow(), 0);
    }
    assert_eq!(run_ids.len(), 3);
    assert_eq!(*conn.reconnects().borrow(), 0);
    let channel = Bytes::from_static(b"news");
    let (_subscriber, mut messages) = Subscriber::connect(&options, vec![channel.clone()])
        .await
        .unwrap();
    until("a message arrives", async || {
        conn.publish(&channel, Bytes::from_static(b"x"))
            .await
            .unwrap();
        tokio::time::timeout(Duration::from_millis(100), messages.recv())
            .await
            .is_ok()
    })
    .await;
}

#[tokio::test]
async fn one_frozen_node_of_a_cluster_is_noticed_although_the_others_answer() {
    let cluster = cluster().await;
    let mut options = options_at(&cluster.url(), "cluster");
    options.command_timeout = Duration::from_millis(300);
    let conn = Conn::connect(&options).await.unwrap();
    let keys = keys(&cluster);
    let get = async |key: &Bytes| conn.command("GET", Some(key), vec![key.clone()]).await;
    cluster.nodes()[1].pause().unwrap();
    let start = Instant::now();
    let error = get(&keys[1]).await.unwrap_err();
    assert_eq!(error.kind(), BackendKind::Ambiguous);
    get(&keys[0]).await.unwrap();
    let reconnects = conn.reconnects();
    until_within(
        Duration::from_secs(9),
        "the client is replaced",
        async || {
            let _ = (get(&keys[1]).await, get(&keys[0]).await);
            start.elapsed() > Duration::from_secs(7)
        },
    )
    .await;
    cluster.nodes()[1].resume().unwrap();
    until_within(
        Duration::from_secs(6),
        "the node answers again",
        async || get(&keys[1]).await.is_ok() && *reconnects.borrow() >= 1,
    )
    .await;
}

#[tokio::test]
async fn a_node_that_dies_is_found_again_and_its_reader_goes_on() {
    let cluster = cluster().await;
    let options = options_at(&cluster.url(), "cluster");
    let conn = Conn::connect(&options).await.unwrap();
    let reader = BlockingConn::connect(&options).await.unwrap();
    let [_, _, key] = keys(&cluster);
    cluster.nodes()[2].kill();
    let error = read(
        &reader,
        Some(Duration::from_secs(1)),
        std::slice::from_ref(&key),
    )
    .await
    .unwrap_err();
    assert_eq!(error.kind(), BackendKind::Ambiguous, "{error}");
    cluster.nodes()[2].restart().await.unwrap();
    until("commands succeed", async || conn.node(&key).await.is_ok()).await;
    group(&conn, &key).await;
    let keys = [key];
    until("reads succeed", async || {
        read(&reader, None, &keys).await.is_ok()
    })
    .await;
    reader
        .reconnects()
        .wait_for(|count| *count >= 1)
        .await
        .unwrap();
    reader.kill_old(&conn).await;
}

//! The connections against a primary and a replica that a real sentinel watches.

use std::time::Duration;

use super::blocking::BlockingConn;
use super::conn::Conn;
use super::tests_server::{TestRedis, options_at, read, send, stream, until, until_within};
use crate::testing::TestSentinel;

#[tokio::test]
async fn a_failover_is_followed_by_commands_and_readers_and_seen_as_another_run_id() {
    let primary = TestRedis::start(&[]).await;
    let of = format!("127.0.0.1 {}", primary.port());
    let replica = TestRedis::start(&[("--replicaof", &of)]).await;
    let sentinel = TestSentinel::watch("main", &primary).await.unwrap();
    sentinel.knows(&replica).await.unwrap();
    let options = options_at(&sentinel.url(), "sentinel");
    let conn = Conn::connect(&options).await.unwrap();
    let reader = BlockingConn::connect(&options).await.unwrap();
    let keys = [stream(&conn, "s").await];
    let first = conn.node(b"s").await.unwrap();
    assert_eq!(first.role, "master");
    let direct = replica.conn("direct").await;
    until("the replica has the stream", async || {
        send(&direct, "EXISTS s").await.unwrap().int().unwrap() == 1
    })
    .await;
    primary.kill();
    until_within(
        Duration::from_secs(20),
        "the replica answers as primary",
        async || {
            conn.node(b"s")
                .await
                .is_ok_and(|node| node.role == "master" && node != first)
        },
    )
    .await;
    until("what is written is read", async || {
        send(&conn, "XADD s * t a").await.is_ok()
            && read(&reader, Some(Duration::from_millis(200)), &keys)
                .await
                .is_ok_and(|found| found.len() == 1)
    })
    .await;
    until("both tell that they were connected again", async || {
        *conn.reconnects().borrow() >= 1 && *reader.reconnects().borrow() >= 1
    })
    .await;
    reader.kill_old(&conn).await;
}

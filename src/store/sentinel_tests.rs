//! The connections against a primary and a replica that a real sentinel watches.

use std::time::Duration;

use super::blocking::BlockingConn;
use super::conn::Conn;
use super::tests_server::{TestRedis, read, send, stream, until, until_within};
use crate::error::BackendError;

#[tokio::test]
async fn a_failover_is_followed_by_commands_and_readers_and_seen_as_another_run_id() {
    let mut primary = TestRedis::start(&[]).await;
    let of = primary.port.to_string();
    let replica = TestRedis::start(&["--replicaof", "127.0.0.1", &of]).await;
    let sentinel = TestRedis::sentinel(&primary).await;
    let url = format!("redis-sentinel://127.0.0.1:{}?service=main", sentinel.port);
    let options = replica.options_at(&url, "sentinel");
    let conn = Conn::connect(&options).await.unwrap();
    let reader = BlockingConn::connect(&options).await.unwrap();
    let keys = [stream(&conn, "s").await];
    let first = conn.node(b"s").await.unwrap();
    assert_eq!(first.role, "master");
    let direct = replica.conn("direct").await;
    until("the replica is known and has the stream", async || {
        let known = async || -> Result<bool, BackendError> {
            let watch = Conn::connect(&sentinel.options("watch")).await;
            let Ok(watch) = watch else { return Ok(false) };
            let listed = watch
                .info_text("sentinel", None)
                .await?
                .contains("slaves=1");
            Ok(listed && send(&direct, "EXISTS s").await?.int()? == 1)
        };
        known().await.unwrap_or(false)
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

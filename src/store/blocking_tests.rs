//! The blocking reader against a real server: order, wake-ups, deadlines, and nothing lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::blocking::BlockingConn;
use super::tests_server::{TestRedis, bytes, id_of, listed, read, send, stream, until};
use crate::error::BackendKind;
use crate::id::EntryId;

#[tokio::test]
async fn unblocking_wakes_a_read_within_100_ms() {
    let server = TestRedis::start(&[]).await;
    let conn = server.conn("conn").await;
    let key = stream(&conn, "s").await;
    let reader = BlockingConn::connect(&server.options("reader"))
        .await
        .unwrap();
    let target = reader.unblock_target();
    let blocked = tokio::spawn(async move {
        let found = read(
            &reader,
            Some(Duration::from_secs(10)),
            std::slice::from_ref(&key),
        )
        .await;
        (Instant::now(), found, reader, key)
    });
    until("the reader is blocked", async || {
        conn.unblock(&target).await.unwrap()
    })
    .await;
    let woken = Instant::now();
    let (at, found, reader, key) = blocked.await.unwrap();
    assert_eq!(found.unwrap(), []);
    assert!(at.saturating_duration_since(woken) < Duration::from_millis(100));
    // The connection is as good as before, and what comes later is not lost.
    send(&conn, "XADD s * t a").await.unwrap();
    assert_eq!(read(&reader, None, &[key]).await.unwrap()[0].1.len(), 1);
    assert!(!conn.unblock(&target).await.unwrap());
    drop(reader);
    assert!(!conn.unblock(&target).await.unwrap());
}

#[tokio::test]
async fn reads_keep_the_order_of_streams_and_show_deleted_entries() {
    let server = TestRedis::start(&[]).await;
    let conn = server.conn("conn").await;
    let reader = BlockingConn::connect(&server.options("reader"))
        .await
        .unwrap();
    let mut keys = Vec::new();
    for name in ["z", "a", "m", "b", "y", "c"] {
        keys.push(stream(&conn, name).await);
        send(&conn, &format!("XADD {name} 1-1 t of-{name}"))
            .await
            .unwrap();
        send(&conn, &format!("XADD {name} 1-2 t 2 t 3"))
            .await
            .unwrap();
    }
    let found = read(&reader, Some(Duration::from_millis(100)), &keys)
        .await
        .unwrap();
    assert_eq!(
        found.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
    assert_eq!(found[2].1[0].first_field().unwrap().1, "of-m");
    assert_eq!(
        found[2].1[1].fields.as_ref().unwrap().len(),
        2,
        "duplicate names are kept"
    );
    let start = Instant::now();
    assert_eq!(
        read(&reader, Some(Duration::from_millis(100)), &keys)
            .await
            .unwrap(),
        []
    );
    assert!(start.elapsed() >= Duration::from_millis(90));
    let last = EntryId {
        millis: 1,
        sequence: 1,
    };
    let after = reader
        .read(10, Duration::from_millis(50), &[(keys[1].clone(), last)])
        .await
        .unwrap();
    assert_eq!(
        (after[0].0, after[0].1[0].id.to_string()),
        (0, "1-2".to_owned())
    );
    send(&conn, "XDEL a 1-1").await.unwrap();
    let pending = conn
        .command(
            "XREADGROUP",
            Some(b"a"),
            bytes(["GROUP", "servers", "me", "STREAMS", "a", "0"]),
        )
        .await
        .unwrap();
    let pending = crate::store::entries::streams(pending.into_frame(), |key| {
        keys.iter().position(|asked| asked == key)
    })
    .unwrap();
    assert_eq!((pending[0].0, pending[0].1[0].fields.as_ref()), (1, None));
    send(&conn, "DEL m").await.unwrap();
    assert_eq!(
        read(&reader, None, &keys).await.unwrap_err().kind(),
        BackendKind::Group
    );
}

#[tokio::test]
async fn a_stream_that_is_deleted_under_a_read_is_named_a_missing_group() {
    let server = TestRedis::start(&[]).await;
    let conn = server.conn("conn").await;
    let key = stream(&conn, "s").await;
    let reader = BlockingConn::connect(&server.options("reader"))
        .await
        .unwrap();
    let blocked =
        tokio::spawn(async move { read(&reader, Some(Duration::from_secs(5)), &[key]).await });
    until("the reader is blocked", async || {
        conn.info_text("clients", None)
            .await
            .unwrap()
            .contains("blocked_clients:1")
    })
    .await;
    send(&conn, "DEL s").await.unwrap();
    assert_eq!(
        blocked.await.unwrap().unwrap_err().kind(),
        BackendKind::Group
    );
}

#[tokio::test]
async fn a_read_past_its_deadline_is_rebuilt_and_the_old_connection_killed() {
    let server = TestRedis::start(&[]).await;
    let conn = server.conn("conn").await;
    let key = stream(&conn, "s").await;
    let reader = BlockingConn::connect(&server.options("reader"))
        .await
        .unwrap();
    server.pause().unwrap();
    let start = Instant::now();
    let error = read(
        &reader,
        Some(Duration::from_millis(100)),
        std::slice::from_ref(&key),
    )
    .await
    .unwrap_err();
    assert_eq!(error.kind(), BackendKind::Ambiguous, "{error}");
    assert!((3_000..4_000).contains(&start.elapsed().as_millis()));
    server.resume().unwrap();
    reader
        .reconnects()
        .wait_for(|count| *count >= 1)
        .await
        .unwrap();
    send(&conn, "XADD s * t a").await.unwrap();
    let found = read(&reader, Some(Duration::from_secs(1)), &[key])
        .await
        .unwrap();
    assert_eq!(found[0].1.len(), 1, "nobody else took it");
    reader.kill_old(&conn).await;
    until("one reader is left", async || {
        listed(&conn, "reader").await == 1
    })
    .await;
}

#[tokio::test]
async fn a_dropped_read_takes_nothing_with_it() {
    let server = TestRedis::start(&[]).await;
    let conn = server.conn("conn").await;
    let key = stream(&conn, "s").await;
    let reader = Arc::new(
        BlockingConn::connect(&server.options("reader"))
            .await
            .unwrap(),
    );
    let keys = [key];
    let reading = read(&reader, Some(Duration::from_secs(10)), &keys);
    assert!(
        tokio::time::timeout(Duration::from_millis(200), reading)
            .await
            .is_err()
    );
    until("the reader is not blocked any more", async || {
        conn.info_text("clients", None)
            .await
            .unwrap()
            .contains("blocked_clients:0")
    })
    .await;
    send(&conn, "XADD s * t a").await.unwrap();
    let found = read(&reader, Some(Duration::from_secs(3)), &keys)
        .await
        .unwrap();
    assert_eq!(found[0].1.len(), 1);
}

#[tokio::test]
async fn an_old_connection_is_killed_only_if_it_is_ours() {
    let server = TestRedis::start(&[]).await;
    let conn = server.conn("conn").await;
    let reader = BlockingConn::connect(&server.options("reader"))
        .await
        .unwrap();
    let stranger = server.conn("stranger").await;
    until("all are named", async || {
        listed(&conn, "stranger").await == 1
    })
    .await;
    let stranger_id = id_of(&conn, "stranger").await.unwrap();
    let zombie = BlockingConn::connect(&server.options("reader"))
        .await
        .unwrap();
    until("both are named", async || {
        listed(&conn, "reader").await == 2
    })
    .await;
    let zombie_id = id_of(&conn, "reader").await.unwrap();
    reader.pretend_old(&[
        stranger_id.parse().unwrap(),
        zombie_id.parse().unwrap(),
        99_999,
    ]);
    reader.kill_old(&conn).await;
    assert_eq!(id_of(&conn, "stranger").await.unwrap(), stranger_id);
    until("the zombie had to come back", async || {
        *zombie.reconnects().borrow() + *reader.reconnects().borrow() == 1
    })
    .await;
    assert_eq!(*stranger.reconnects().borrow(), 0);
}

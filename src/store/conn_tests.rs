//! The connections against a real server: what they do when it refuses, dies, freezes or restarts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::blocking::BlockingConn;
use super::conn::{Conn, info_field};
use super::reply::{Reply, StreamEntries};
use super::script::script;
use super::subscriber::Subscriber;
use super::tests_server::{TestRedis, until, until_within};
use crate::error::{BackendError, BackendKind, ConnectError};
use crate::id::EntryId;

script!(ECHO, "echo", allow_oom, []);

fn bytes<const N: usize>(texts: [&str; N]) -> Vec<Bytes> {
    texts
        .map(|text| Bytes::copy_from_slice(text.as_bytes()))
        .to_vec()
}

async fn send(conn: &Conn, line: &str) -> Result<Reply, BackendError> {
    let (name, args) = line.split_once(' ').unwrap_or((line, ""));
    let args = args
        .split_whitespace()
        .map(|arg| Bytes::copy_from_slice(arg.as_bytes()))
        .collect();
    conn.command(String::leak(name.to_owned()), None, args)
        .await
}

async fn listed(conn: &Conn, name: &str) -> usize {
    let list = send(conn, "CLIENT LIST").await.unwrap();
    let wanted = format!("name=streamfleet-{name}");
    list.text()
        .unwrap()
        .split_whitespace()
        .filter(|part| *part == wanted)
        .count()
}

async fn id_of(conn: &Conn, name: &str) -> Option<String> {
    let list = send(conn, "CLIENT LIST").await.ok()?;
    let wanted = format!(" name=streamfleet-{name} ");
    let line = list
        .text()
        .ok()?
        .lines()
        .find(|line| line.contains(&wanted))?
        .to_owned();
    Some(
        line.split_whitespace()
            .next()?
            .trim_start_matches("id=")
            .to_owned(),
    )
}

async fn stream(conn: &Conn, key: &str) -> Bytes {
    send(conn, &format!("XGROUP CREATE {key} servers 0 MKSTREAM"))
        .await
        .unwrap();
    Bytes::copy_from_slice(key.as_bytes())
}

async fn read(
    reader: &BlockingConn,
    block: Option<Duration>,
    keys: &[Bytes],
) -> Result<Vec<StreamEntries>, BackendError> {
    reader.read_group("servers", "me", 10, block, keys).await
}

#[tokio::test]
async fn a_wrong_password_is_fatal_at_once_and_not_shown() {
    let server = TestRedis::start(&["--requirepass", "right"]).await;
    let start = Instant::now();
    for user in [
        "redis://:hunter2@127.0.0.1",
        "redis://bob:hunter2@127.0.0.1",
        "redis://127.0.0.1",
    ] {
        let options = server.options_at(&format!("{user}:{}", server.port), "wrong");
        let error = Conn::connect(&options).await.unwrap_err();
        let text = format!("{error} {error:?} {options:?}");
        assert!(!text.contains("hunter2"), "{text}");
        let ConnectError::Backend(error) = error else {
            panic!("{text}")
        };
        assert_eq!(error.kind(), BackendKind::Fatal, "{text}");
        assert!(
            text.contains("WRONGPASS") || text.contains("NOAUTH"),
            "{text}"
        );
    }
    assert!(start.elapsed() < Duration::from_secs(3));
    let right = server.options_at(
        &format!("redis://:right@127.0.0.1:{}/3", server.port),
        "right",
    );
    let conn = Conn::connect(&right).await.unwrap();
    send(&conn, "SET k 1").await.unwrap();
    assert!(
        conn.info_text("keyspace", None)
            .await
            .unwrap()
            .contains("db3:keys=1")
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_or_frozen_is_a_transient_error() {
    let mut server = TestRedis::start(&[]).await;
    let options = server.options("absent");
    server.signal("-STOP");
    let start = Instant::now();
    let frozen = Conn::connect(&options).await.unwrap_err();
    assert!(start.elapsed() < Duration::from_millis(3_500));
    server.kill();
    let absent = Conn::connect(&options).await.unwrap_err();
    for error in [frozen, absent] {
        let ConnectError::Backend(error) = error else {
            panic!("{error:?}")
        };
        assert_eq!(error.kind(), BackendKind::NotExecuted, "{error}");
    }
}

#[tokio::test]
async fn a_unix_socket_and_a_database_number_work() {
    let server = TestRedis::start(&[]).await;
    let options = server.options_at(&format!("unix://{}?db=2", server.socket()), "unix");
    let conn = Conn::connect(&options).await.unwrap();
    send(&conn, "SET k 1").await.unwrap();
    let info = conn
        .info_text("keyspace memory server", None)
        .await
        .unwrap();
    assert_eq!(
        info_field(&info, "db2").map(|text| &text[..6]),
        Some("keys=1")
    );
    assert_eq!(info_field(&info, "maxmemory_policy"), Some("noeviction"));
    assert!(info_field(&info, "redis_version").is_some());
    let node = conn.node(b"k").await.unwrap();
    assert_eq!((node.role.as_str(), node.run_id.len()), ("master", 40));
    let reader = BlockingConn::connect(&options).await.unwrap();
    let key = stream(&conn, "s").await;
    let target = reader.unblock_target();
    let blocked =
        tokio::spawn(async move { read(&reader, Some(Duration::from_secs(5)), &[key]).await });
    until("the reader is blocked", async || {
        conn.unblock(&target).await.unwrap()
    })
    .await;
    assert_eq!(blocked.await.unwrap().unwrap(), []);
}

#[tokio::test]
async fn a_script_is_sent_again_when_the_server_forgot_it() {
    let server = TestRedis::start(&[]).await;
    let conn = server.conn("script").await;
    let binary = Bytes::from_static(&[0, 255, 13, 10, 195, 40]);
    for _ in 0..2 {
        for _ in 0..2 {
            let keys = bytes(["{q}:a", "{q}:b"]);
            let reply = conn
                .run(&ECHO, keys, vec![binary.clone(), Bytes::new()])
                .await
                .unwrap();
            let [both] = reply.into_parts().unwrap();
            let [keys, args] = both.into_parts().unwrap();
            assert_eq!(keys.array().unwrap()[1].text().unwrap(), "{q}:b");
            assert_eq!(args.array().unwrap()[0].bytes().unwrap(), &binary);
            assert_eq!(args.array().unwrap()[1].bytes().unwrap(), "");
        }
        send(&conn, "SCRIPT FLUSH").await.unwrap();
    }
    let info = conn.info_text("commandstats", None).await.unwrap();
    assert!(
        info_field(&info, "cmdstat_eval")
            .unwrap()
            .starts_with("calls=2,"),
        "{info}"
    );
    assert!(
        info_field(&info, "cmdstat_evalsha")
            .unwrap()
            .starts_with("calls=4,"),
        "{info}"
    );
}

#[tokio::test]
async fn refusals_of_a_real_server_are_classified() {
    let server = TestRedis::start(&[]).await;
    let conn = server.conn("refusals").await;
    send(&conn, "SET text 1").await.unwrap();
    send(&conn, "CONFIG SET maxmemory 1").await.unwrap();
    for (line, kind) in [
        ("XLEN text", BackendKind::WrongType),
        ("XREADGROUP GROUP g c STREAMS none >", BackendKind::Group),
        (
            "EVALSHA 0123456789012345678901234567890123456789 0",
            BackendKind::Script,
        ),
        ("SET text 2", BackendKind::NotExecuted),
        ("NOSUCH", BackendKind::Fatal),
        ("CONFIG SET maxmemory 0", BackendKind::Fatal),
        ("REPLICAOF 127.0.0.1 1", BackendKind::Fatal),
        ("SET text 2", BackendKind::NotExecuted),
    ] {
        match send(&conn, line).await {
            Ok(reply) => assert_eq!(reply.text().unwrap_or(""), "OK", "{line}"),
            Err(error) => assert_eq!(error.kind(), kind, "{line}: {error}"),
        }
    }
    // A primary that became a replica is left, to find the new one; here it is the same.
    let mut reconnects = conn.reconnects();
    reconnects.wait_for(|count| *count > 0).await.unwrap();
}

#[tokio::test]
async fn a_killed_connection_is_ambiguous_for_what_is_in_flight_and_comes_back() {
    let server = TestRedis::start(&[]).await;
    let conn = server.conn("victim").await;
    let other = server.conn("killer").await;
    until("the name is set", async || {
        listed(&other, "victim").await == 1
    })
    .await;
    let mut reconnects = conn.reconnects();
    assert_eq!(*reconnects.borrow_and_update(), 0);
    let id = id_of(&other, "victim").await.unwrap();
    // The command is in the server's hands when the connection dies.
    send(&other, "CLIENT PAUSE 1500 WRITE").await.unwrap();
    let in_flight = tokio::spawn({
        let conn = conn.clone();
        async move { send(&conn, "SET k 1").await }
    });
    until("the command is stuck", async || {
        let info = other.info_text("clients", None).await.unwrap();
        info_field(&info, "blocked_clients") == Some("1")
    })
    .await;
    send(&other, &format!("CLIENT KILL ID {id}")).await.unwrap();
    let error = in_flight.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), BackendKind::Ambiguous, "{error}");
    reconnects.wait_for(|count| *count == 1).await.unwrap();
    assert_eq!(send(&conn, "PING").await.unwrap().text().unwrap(), "PONG");
    until("the name is set again", async || {
        listed(&other, "victim").await == 1
    })
    .await;
}

#[tokio::test]
async fn a_restarted_server_is_found_again_by_every_kind_of_connection() {
    let mut server = TestRedis::start(&[]).await;
    let conn = server.conn("conn").await;
    let reader = BlockingConn::connect(&server.options("reader"))
        .await
        .unwrap();
    let channel = Bytes::from_static(b"news");
    let (_subscriber, mut messages) =
        Subscriber::connect(&server.options("sub"), vec![channel.clone()])
            .await
            .unwrap();
    let first = conn.node(b"k").await.unwrap();
    server.kill();
    let error = send(&conn, "PING").await.unwrap_err();
    assert_eq!(error.kind(), BackendKind::Ambiguous, "{error}");
    server.restart().await;
    until("commands succeed", async || {
        send(&conn, "PING").await.is_ok()
    })
    .await;
    let second = conn.node(b"k").await.unwrap();
    assert_ne!(first.run_id, second.run_id);
    let key = stream(&conn, "s").await;
    until("reads succeed", async || {
        read(&reader, None, &[key.clone()]).await.is_ok()
    })
    .await;
    conn.reconnects()
        .wait_for(|count| *count >= 1)
        .await
        .unwrap();
    reader
        .reconnects()
        .wait_for(|count| *count >= 1)
        .await
        .unwrap();
    until("messages arrive", async || {
        conn.publish(&channel, Bytes::from_static(b"hello"))
            .await
            .unwrap()
            == 1
    })
    .await;
    assert_eq!(
        messages.recv().await.unwrap(),
        (channel, Bytes::from_static(b"hello"))
    );
}

#[tokio::test]
async fn a_frozen_server_makes_commands_ambiguous_and_is_left_and_found_again() {
    let server = TestRedis::start(&[]).await;
    let mut options = server.options("frozen");
    options.command_timeout = Duration::from_millis(300);
    let conn = Conn::connect(&options).await.unwrap();
    server.signal("-STOP");
    let start = Instant::now();
    let error = send(&conn, "PING").await.unwrap_err();
    assert_eq!(error.kind(), BackendKind::Ambiguous, "{error}");
    assert!(start.elapsed() < Duration::from_millis(1_000));
    // Nothing succeeds for 5 s, and forcing a connection does not help either: a new client.
    until_within(
        Duration::from_secs(12),
        "the client is replaced",
        async || {
            let _ = send(&conn, "PING").await;
            start.elapsed() > Duration::from_secs(9)
        },
    )
    .await;
    server.signal("-CONT");
    until_within(Duration::from_secs(3), "commands succeed", async || {
        send(&conn, "PING").await.is_ok()
    })
    .await;
    conn.reconnects()
        .wait_for(|count| *count >= 1)
        .await
        .unwrap();
    let other = server.conn("other").await;
    until("the frozen connections are gone", async || {
        listed(&other, "frozen").await == 1
    })
    .await;
}

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
        let found = read(&reader, Some(Duration::from_secs(10)), &[key.clone()]).await;
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
async fn dropped_connections_are_closed() {
    let server = TestRedis::start(&[]).await;
    let watcher = server.conn("watcher").await;
    let conn = server.conn("mine").await;
    let again = conn.clone();
    let reader = BlockingConn::connect(&server.options("mine"))
        .await
        .unwrap();
    let (subscriber, messages) = Subscriber::connect(&server.options("mine"), bytes(["a"]))
        .await
        .unwrap();
    until("all are named", async || {
        listed(&watcher, "mine").await >= 2
    })
    .await;
    drop((conn, reader, subscriber, messages));
    send(&again, "PING").await.unwrap();
    until("one is left", async || clients(&watcher).await == 2).await;
    again.close().await;
    until("none is left", async || clients(&watcher).await == 1).await;
    assert_eq!(
        send(&again, "PING").await.unwrap_err().kind(),
        BackendKind::Fatal
    );
}

async fn clients(conn: &Conn) -> usize {
    send(conn, "CLIENT LIST")
        .await
        .unwrap()
        .text()
        .unwrap()
        .lines()
        .count()
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
    let pending = super::reply::streams(pending, keys.iter()).unwrap();
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
    server.signal("-STOP");
    let start = Instant::now();
    let error = read(&reader, Some(Duration::from_millis(100)), &[key.clone()])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), BackendKind::Ambiguous, "{error}");
    assert!((3_000..4_000).contains(&start.elapsed().as_millis()));
    server.signal("-CONT");
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

#[tokio::test]
async fn a_slow_listener_loses_messages_and_nothing_else() {
    let server = TestRedis::start(&[]).await;
    let conn = server.conn("conn").await;
    let channels = bytes(["a", "b"]);
    let (subscriber, mut messages) =
        Subscriber::connect(&server.options("sub"), channels[..1].to_vec())
            .await
            .unwrap();
    subscriber.add(channels[1].clone()).await.unwrap();
    until("it listens to both", async || {
        conn.publish(&channels[1], Bytes::from_static(b"0"))
            .await
            .unwrap()
            == 1
    })
    .await;
    for _ in 0..3_000 {
        conn.publish(&channels[0], Bytes::from_static(b"x"))
            .await
            .unwrap();
    }
    let mut got = 0;
    while tokio::time::timeout(Duration::from_millis(200), messages.recv())
        .await
        .is_ok()
    {
        got += 1;
    }
    assert!((1_000..=1_100).contains(&got), "{got}");
    conn.publish(&channels[1], Bytes::from_static(b"last"))
        .await
        .unwrap();
    assert_eq!(messages.recv().await.unwrap().1, "last");
}

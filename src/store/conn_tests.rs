//! The connections against a real server: what they do when it refuses, dies, freezes or restarts.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::blocking::BlockingConn;
use super::conn::{Conn, info_field};
use super::script::script;
use super::subscriber::Subscriber;
use super::tests_server::{
    TestRedis, bytes, clients, id_of, listed, options_at, read, send, stream, until, until_within,
};
use crate::error::{BackendKind, ConnectError};

script!(ECHO, "echo", allow_oom, []);

#[tokio::test]
async fn a_wrong_password_is_fatal_at_once_and_not_shown() {
    let server = TestRedis::start(&[("--requirepass", "right")]).await;
    let start = Instant::now();
    for user in [
        "redis://:hunter2@127.0.0.1",
        "redis://bob:hunter2@127.0.0.1",
        "redis://127.0.0.1",
    ] {
        let options = options_at(&format!("{user}:{}", server.port()), "wrong");
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
    let right = options_at(
        &format!("redis://:right@127.0.0.1:{}/3", server.port()),
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
    let server = TestRedis::start(&[]).await;
    let options = server.options("absent");
    server.pause().unwrap();
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
    let options = options_at(&format!("unix://{}?db=2", server.socket()), "unix");
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
async fn names_that_look_like_a_message_are_read_like_others() {
    let server = TestRedis::start(&[]).await;
    let conn = server.conn("names").await;
    for names in [
        ["message", "a", "b"],
        ["smessage", "a", "b"],
        ["subscribe", "a", "b"],
    ] {
        let key = Bytes::from(format!("set-{}", names[0]));
        send(&conn, &format!("SADD set-{} {}", names[0], names.join(" ")))
            .await
            .unwrap();
        let mut wanted = names.to_vec();
        wanted.sort_unstable();
        assert_eq!(conn.members(&key).await.unwrap(), wanted);
        let reply = conn.run(&ECHO, bytes(names), Vec::new()).await.unwrap();
        let [both] = reply.into_parts().unwrap();
        let [keys, _] = both.into_parts().unwrap();
        let keys: Vec<&str> = keys
            .array()
            .unwrap()
            .iter()
            .map(|key| key.text().unwrap())
            .collect();
        assert_eq!(keys, names);
    }
}

/// Commands whose reply is a flat list of texts: one that starts like a message makes the call hang.
const FLAT_LISTS: [&str; 10] = [
    "HGETALL",
    "HKEYS",
    "HMGET",
    "HVALS",
    "KEYS",
    "LRANGE",
    "MGET",
    "SMEMBERS",
    "ZRANGE",
    "ZRANGEBYSCORE",
];

#[test]
fn no_command_with_a_flat_list_as_its_reply_is_sent() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() || name.contains("tests") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for command in FLAT_LISTS {
            assert!(
                !text.contains(&format!("\"{command}\"")),
                "{name} sends {command}"
            );
        }
    }
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
    let server = TestRedis::start(&[]).await;
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
    until("a command says why it waits in vain", async || {
        let error = send(&conn, "PING").await.unwrap_err();
        assert_eq!(error.kind(), BackendKind::Ambiguous, "{error}");
        error.to_string().contains("not connected")
    })
    .await;
    server.restart().await.unwrap();
    until("commands succeed", async || {
        send(&conn, "PING").await.is_ok()
    })
    .await;
    let second = conn.node(b"k").await.unwrap();
    assert_ne!(first.run_id, second.run_id);
    let key = stream(&conn, "s").await;
    until("reads succeed", async || {
        read(&reader, None, std::slice::from_ref(&key))
            .await
            .is_ok()
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
    server.pause().unwrap();
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
    server.resume().unwrap();
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

#[tokio::test]
async fn a_slow_listener_loses_messages_and_nothing_else() {
    let server = TestRedis::start(&[]).await;
    let conn = server.conn("conn").await;
    let channels = bytes(["a", "b"]);
    let (_subscriber, mut messages) = Subscriber::connect(&server.options("sub"), channels.clone())
        .await
        .unwrap();
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

#[tokio::test]
async fn more_commands_than_the_buffer_holds_are_refused_as_not_executed() {
    let server = TestRedis::start(&[]).await;
    let conn = server.conn("full").await;
    server.pause().unwrap();
    let value = Bytes::from(vec![b'x'; 64 * 1024]);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..12_000 {
        let (conn, value) = (conn.clone(), value.clone());
        tasks.spawn(async move {
            conn.command("SET", None, vec![Bytes::from_static(b"k"), value])
                .await
        });
    }
    let mut refused = 0;
    while let Some(done) = tasks.join_next().await {
        match done.unwrap().unwrap_err().kind() {
            BackendKind::NotExecuted => refused += 1,
            kind => assert_eq!(kind, BackendKind::Ambiguous),
        }
    }
    assert!((1..3_000).contains(&refused), "{refused}");
    server.resume().unwrap();
    until("commands succeed", async || {
        send(&conn, "PING").await.is_ok()
    })
    .await;
}

//! The check at the end of a test finds what was left, and only that.

use std::time::Duration;

use streamfleet::testing::{self, Leak, TestCluster, TestServer};
use tokio::net::TcpStream;

/// Makes a stream with its group, as the library does for each queue.
async fn with_queue() -> TestServer {
    let server = TestServer::start().await.unwrap();
    server
        .command(&[
            "XGROUP",
            "CREATE",
            "streamfleet:{q}:s",
            "servers",
            "0",
            "MKSTREAM",
        ])
        .await
        .unwrap();
    server
}

/// What the check finds after one more command.
async fn found_after(server: &TestServer, command: &[&str]) -> Vec<Leak> {
    server.command(command).await.unwrap();
    found(server).await
}

async fn found(server: &TestServer) -> Vec<Leak> {
    match server.check_clean("streamfleet").await {
        Ok(()) => Vec::new(),
        Err(leaks) => leaks.found().iter().map(|found| found.leak).collect(),
    }
}

#[tokio::test]
async fn the_documented_rest_of_a_queue_is_clean() {
    let server = with_queue().await;
    let time = server.command(&["TIME"]).await.unwrap().texts();
    let now = format!("{}000", time[0]);
    for command in [
        &["HSET", "streamfleet:{q}:cfg", "epoch", "1"][..],
        &["HSET", "streamfleet:{q}:n", "enqueued", "1"],
        &["HSET", "streamfleet:{q}:n:493827", "enqueued:1", "1"],
        &["HSET", "streamfleet:{q}:n:d:20576", "enqueued", "1"],
        &["EXPIRE", "streamfleet:{q}:n:493827", "172800"],
        &["EXPIRE", "streamfleet:{q}:n:d:20576", "7776000"],
        // A client that was swept, and may come back.
        &[
            "HSET",
            "streamfleet:{q}:producers",
            "c0",
            &format!("1 t1 {now} 1 x"),
        ],
        &["ZADD", "streamfleet:{q}:clients", &now, "c1"],
        &["HSET", "streamfleet:{q}:producers", "c1", "1"],
        &["ZADD", "streamfleet:{q}:servers", &now, "w1"],
        &[
            "XGROUP",
            "CREATECONSUMER",
            "streamfleet:{q}:s",
            "servers",
            "w1",
        ],
        &[
            "XGROUP",
            "CREATECONSUMER",
            "streamfleet:{q}:s",
            "servers",
            "~released",
        ],
        &["SADD", "streamfleet:queues", "q"],
        &["HSET", "streamfleet:schedules", "s", "1"],
    ] {
        server.command(command).await.unwrap();
    }
    assert_eq!(found(&server).await, []);
    server.finish().await;
}

#[tokio::test]
async fn each_key_without_owner_is_found_as_its_kind() {
    let server = TestServer::start().await.unwrap();
    server.unchecked("leaks on purpose, looked at one by one");
    for (leak, command) in [
        (
            Leak::Entries,
            &["XADD", "streamfleet:{q}:s", "*", "t", "x"][..],
        ),
        (
            Leak::Receiver,
            &["XADD", "streamfleet:{q}:r:c1", "*", "o", "x"],
        ),
        (
            Leak::Scheduled,
            &["ZADD", "streamfleet:{q}:scheduled", "1", "t1"],
        ),
        (Leak::Retry, &["ZADD", "streamfleet:{q}:retry", "1", "t1"]),
        (
            Leak::Archived,
            &["ZADD", "streamfleet:{q}:archived", "1", "t1"],
        ),
        (
            Leak::Completed,
            &["ZADD", "streamfleet:{q}:completed", "1", "t1"],
        ),
        (Leak::Record, &["HSET", "streamfleet:{q}:tasks", "t1", "x"]),
        (Leak::Parked, &["SADD", "streamfleet:{q}:unknown", "mail"]),
        (
            Leak::Parked,
            &["ZADD", "streamfleet:{q}:unknown:mail", "1", "t1"],
        ),
        (
            Leak::Cancel,
            &["HSET", "streamfleet:{q}:cancel", "1-0", "1"],
        ),
        (
            Leak::Crashes,
            &["HSET", "streamfleet:{q}:crashes", "1-0", "1"],
        ),
        (
            Leak::UniqueLock,
            &["SET", "streamfleet:{q}:u:abc", "t1", "PX", "60000"],
        ),
        (Leak::Group, &["ZADD", "streamfleet:{q}:g:day", "1", "t1"]),
        (
            Leak::ServerInfo,
            &["SET", "streamfleet:server:w1", "x", "PX", "60000"],
        ),
        (
            Leak::ServerInfo,
            &["ZADD", "streamfleet:servers", "1", "w1"],
        ),
        (
            Leak::StaleOwner,
            &["ZADD", "streamfleet:{q}:clients", "1", "c1"],
        ),
        (
            Leak::StaleOwner,
            &["ZADD", "streamfleet:{q}:servers", "1", "w1"],
        ),
        (
            Leak::StaleOwner,
            &["HSET", "streamfleet:{q}:producers", "c2", "1"],
        ),
        (
            Leak::NoExpiry,
            &["HSET", "streamfleet:{q}:n:493827", "1:enqueued", "1"],
        ),
        (
            Leak::StaleOwner,
            &["HSET", "streamfleet:{q}:producers", "c2", "1 t1 1000 1 x"],
        ),
        (Leak::WrongType, &["SET", "streamfleet:{q}:cfg", "x"]),
        (Leak::WrongType, &["SET", "streamfleet:{q}:s", "x"]),
        (Leak::UnknownKey, &["SET", "streamfleet:{q}:surprise", "x"]),
        (Leak::UnknownKey, &["SET", "streamfleet:surprise", "x"]),
        (Leak::ForeignKey, &["SET", "other:{q}:s", "x"]),
    ] {
        let found = found_after(&server, command).await;
        assert_eq!(found, [leak], "after {command:?}");
        server.command(&["FLUSHALL"]).await.unwrap();
    }
}

#[tokio::test]
async fn a_pending_entry_is_found_also_after_it_was_deleted() {
    let server = with_queue().await;
    server.unchecked("leaks on purpose");
    let id = server
        .command(&["XADD", "streamfleet:{q}:s", "*", "t", "x"])
        .await
        .unwrap()
        .text()
        .unwrap();
    let read = [
        "XREADGROUP",
        "GROUP",
        "servers",
        "w1",
        "STREAMS",
        "streamfleet:{q}:s",
        ">",
    ];
    let found = found_after(&server, &read).await;
    assert_eq!(found, [Leak::Entries, Leak::Pending, Leak::Consumer]);
    let found = found_after(&server, &["XDEL", "streamfleet:{q}:s", &id]).await;
    assert_eq!(found, [Leak::Pending, Leak::Consumer]);
    let leaks = server
        .check_clean("streamfleet")
        .await
        .unwrap_err()
        .to_string();
    assert!(leaks.contains(&format!("{id} of w1")), "{leaks}");
    let found = found_after(&server, &["XACK", "streamfleet:{q}:s", "servers", &id]).await;
    assert_eq!(found, [Leak::Consumer]);
}

#[tokio::test]
async fn a_key_in_another_database_is_found() {
    let server = TestServer::start().await.unwrap();
    server.unchecked("leaks on purpose");
    let script = "redis.call('SELECT', 3) redis.call('SET', 'streamfleet:{q}:u:x', '1')";
    assert_eq!(
        found_after(&server, &["EVAL", script, "0"]).await,
        [Leak::UniqueLock]
    );
}

#[tokio::test]
async fn an_open_connection_is_found_by_its_name() {
    let server = TestServer::start().await.unwrap();
    server.unchecked("leaks on purpose");
    let stream = TcpStream::connect(("127.0.0.1", server.port()))
        .await
        .unwrap();
    stream.writable().await.unwrap();
    stream.try_write(b"CLIENT SETNAME forgotten\r\n").unwrap();
    stream.readable().await.unwrap();
    let leaks = server.check_clean("streamfleet").await.unwrap_err();
    assert_eq!(leaks.found().len(), 1);
    assert_eq!(leaks.found()[0].leak, Leak::Connection);
    assert!(leaks.to_string().contains("forgotten"), "{leaks}");
    drop(stream);
    assert_eq!(found(&server).await, []);
}

#[tokio::test]
async fn a_connection_that_closes_a_little_later_is_no_leak() {
    testing::run(async |server| {
        let stream = TcpStream::connect(("127.0.0.1", server.port()))
            .await
            .unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            drop(stream);
        });
    })
    .await;
}

#[tokio::test]
async fn an_allowed_leak_passes_with_the_records_it_owns_and_nothing_else() {
    let server = TestServer::start().await.unwrap();
    server.allow(Leak::Archived, "this test archives on purpose");
    server
        .command(&["ZADD", "streamfleet:{q}:archived", "1", "t1"])
        .await
        .unwrap();
    server
        .command(&["HSET", "streamfleet:{q}:tasks", "t1", "x"])
        .await
        .unwrap();
    assert_eq!(found(&server).await, []);
    let found = found_after(&server, &["HSET", "streamfleet:{q}:tasks", "t2", "x"]).await;
    assert_eq!(found, [Leak::Record]);
    let leaks = server
        .check_clean("streamfleet")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        leaks.contains("t2") && leaks.contains("this test archives on purpose"),
        "{leaks}"
    );
    server
        .command(&["HDEL", "streamfleet:{q}:tasks", "t2"])
        .await
        .unwrap();
    server.finish().await;
}

#[tokio::test]
async fn a_server_that_is_down_at_the_end_cannot_be_called_clean() {
    let server = TestServer::start().await.unwrap();
    server.unchecked("looked at here");
    server.kill();
    assert_eq!(found(&server).await, [Leak::ServerDown]);
}

#[tokio::test]
async fn a_test_that_leaves_something_fails_by_itself() {
    for finishes in [true, false] {
        let test = tokio::spawn(async move {
            let server = with_queue().await;
            server
                .command(&["XADD", "streamfleet:{q}:r:c1", "*", "o", "x"])
                .await
                .unwrap();
            if finishes {
                server.finish().await;
            }
        });
        let panic = test.await.unwrap_err().into_panic();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(
            message.contains("Receiver: key streamfleet:{q}:r:c1"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn another_prefix_is_looked_at_when_it_is_named() {
    TestServer::options()
        .prefix("mail")
        .run(async |server| {
            server
                .command(&["HSET", "mail:{q}:cfg", "epoch", "1"])
                .await
                .unwrap();
            let leaks = server.check_clean("streamfleet").await.unwrap_err();
            assert_eq!(leaks.found()[0].leak, Leak::ForeignKey);
        })
        .await;
}

#[tokio::test]
async fn a_leak_on_any_node_of_a_cluster_is_found() {
    let cluster = TestCluster::start().await.unwrap();
    for queue in cluster.queues_on_three_nodes("q") {
        let key = format!("streamfleet:{{{queue}}}:r:c1");
        cluster
            .command_on_key(&key, &["XADD", &key, "*", "o", "x"])
            .await
            .unwrap();
        let leaks = cluster.check_clean("streamfleet").await.unwrap_err();
        assert_eq!(leaks.found().len(), 1, "{leaks}");
        assert_eq!(leaks.found()[0].leak, Leak::Receiver);
        cluster.command_on_key(&key, &["DEL", &key]).await.unwrap();
    }
    cluster.finish().await;
}

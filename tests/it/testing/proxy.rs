//! The proxy breaks connections in the way it is told.

use std::time::Duration;

use streamfleet::testing::{self, TestServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{Mode, Proxy, eventually};

const SOON: Duration = Duration::from_secs(5);
const QUIET: Duration = Duration::from_millis(200);

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(("127.0.0.1", proxy.port()))
        .await
        .unwrap()
}

/// Sends a command and answers what came until the reply was whole, or the end.
async fn ask(stream: &mut TcpStream, command: &str, reply: &str) -> String {
    stream
        .write_all(format!("{command}\r\n").as_bytes())
        .await
        .unwrap();
    let mut read = Vec::new();
    while read.len() < reply.len() {
        match timeout(SOON, stream.read_buf(&mut read))
            .await
            .expect("an answer or an end")
        {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
    String::from_utf8(read).unwrap()
}

async fn has_ended(stream: &mut TcpStream) -> bool {
    matches!(
        timeout(SOON, stream.read(&mut [0; 64])).await,
        Ok(Ok(0) | Err(_))
    )
}

async fn value(server: &TestServer) -> Option<i64> {
    server
        .command(&["GET", "streamfleet:{q}:u:x"])
        .await
        .unwrap()
        .int()
}

const INCR: &str = "INCR streamfleet:{q}:u:x";

/// Runs a test with a proxy, and removes its key.
async fn with_proxy(test: impl AsyncFnOnce(&TestServer, &Proxy)) {
    testing::run(async |server| {
        let proxy = Proxy::start(server.port()).await;
        test(server, &proxy).await;
        server
            .command(&["DEL", "streamfleet:{q}:u:x"])
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn it_passes_and_counts() {
    with_proxy(async |_, proxy| {
        let mut stream = connect(proxy).await;
        assert_eq!(ask(&mut stream, "PING", "+PONG\r\n").await, "+PONG\r\n");
        assert_eq!((proxy.connections(), proxy.open()), (1, 1));
        assert_eq!((proxy.bytes_to_server(), proxy.bytes_to_client()), (6, 7));
        drop(stream);
        eventually("it closed", SOON, async || proxy.open() == 0).await;
    })
    .await;
}

#[tokio::test]
async fn a_cut_reply_ends_after_exactly_n_bytes() {
    with_proxy(async |_, proxy| {
        let mut stream = connect(proxy).await;
        proxy.set(Mode::CutReplyAfter(10));
        assert_eq!(ask(&mut stream, "PING", "+PONG\r\n").await, "+PONG\r\n");
        assert_eq!(ask(&mut stream, "PING", "+PONG\r\n").await, "+PO");
        assert!(has_ended(&mut stream).await);
        assert_eq!(proxy.mode(), Mode::Pass);
        let mut next = connect(proxy).await;
        assert_eq!(ask(&mut next, "PING", "+PONG\r\n").await, "+PONG\r\n");
    })
    .await;
}

#[tokio::test]
async fn a_command_whose_reply_is_lost_was_executed() {
    with_proxy(async |server, proxy| {
        let mut stream = connect(proxy).await;
        proxy.set(Mode::LoseNextReply);
        assert_eq!(ask(&mut stream, INCR, ":1\r\n").await, "");
        eventually("it was executed", SOON, async || {
            value(server).await == Some(1)
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn only_the_marked_request_loses_its_reply() {
    with_proxy(async |server, proxy| {
        let (mut other, mut stream) = (connect(proxy).await, connect(proxy).await);
        proxy.set(Mode::LoseReplyTo(":u:x"));
        assert_eq!(ask(&mut other, "PING", "+PONG\r\n").await, "+PONG\r\n");
        assert_eq!(ask(&mut stream, "PING", "+PONG\r\n").await, "+PONG\r\n");
        assert_eq!(ask(&mut stream, INCR, ":1\r\n").await, "");
        assert_eq!(ask(&mut other, INCR, ":2\r\n").await, ":2\r\n");
        assert_eq!(value(server).await, Some(2));
    })
    .await;
}

#[tokio::test]
async fn swallowed_replies_leave_the_connection_open() {
    with_proxy(async |server, proxy| {
        let mut stream = connect(proxy).await;
        proxy.set(Mode::SwallowNextReply);
        stream
            .write_all(format!("{INCR}\r\n").as_bytes())
            .await
            .unwrap();
        eventually("it was swallowed", SOON, async || {
            proxy.mode() == Mode::Pass
        })
        .await;
        assert_eq!(ask(&mut stream, INCR, ":2\r\n").await, ":2\r\n");
        proxy.set(Mode::SwallowReplies);
        stream
            .write_all(format!("{INCR}\r\n").as_bytes())
            .await
            .unwrap();
        eventually("it was executed", SOON, async || {
            value(server).await == Some(3)
        })
        .await;
        assert!(timeout(QUIET, stream.read(&mut [0; 64])).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_black_hole_lets_nothing_through_and_closes_nothing() {
    with_proxy(async |server, proxy| {
        let mut stream = connect(proxy).await;
        proxy.set(Mode::BlackHole);
        stream
            .write_all(format!("{INCR}\r\n").as_bytes())
            .await
            .unwrap();
        assert!(timeout(QUIET, stream.read(&mut [0; 64])).await.is_err());
        assert_eq!(value(server).await, None);
        let mut late = connect(proxy).await;
        assert!(timeout(QUIET, late.read(&mut [0; 64])).await.is_err());
        proxy.set(Mode::Pass);
        eventually("it goes on", SOON, async || value(server).await == Some(1)).await;
    })
    .await;
}

#[tokio::test]
async fn a_delay_is_added_to_each_way() {
    with_proxy(async |_, proxy| {
        let mut stream = connect(proxy).await;
        proxy.set(Mode::Delay(Duration::from_millis(50)));
        let start = std::time::Instant::now();
        ask(&mut stream, "PING", "+PONG\r\n").await;
        assert!(start.elapsed() >= Duration::from_millis(100));
    })
    .await;
}

#[tokio::test]
async fn a_refusing_proxy_keeps_old_connections_and_takes_new_ones_later() {
    with_proxy(async |_, proxy| {
        let mut old = connect(proxy).await;
        ask(&mut old, "PING", "+PONG\r\n").await;
        proxy.set(Mode::Refuse);
        eventually("the port is closed", SOON, async || {
            TcpStream::connect(("127.0.0.1", proxy.port()))
                .await
                .is_err()
        })
        .await;
        assert_eq!(ask(&mut old, "PING", "+PONG\r\n").await, "+PONG\r\n");
        proxy.set(Mode::Pass);
        eventually("the port is open", SOON, async || {
            TcpStream::connect(("127.0.0.1", proxy.port()))
                .await
                .is_ok()
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn all_connections_can_be_cut_at_once() {
    with_proxy(async |_, proxy| {
        let (mut one, mut two) = (connect(proxy).await, connect(proxy).await);
        ask(&mut one, "PING", "+PONG\r\n").await;
        ask(&mut two, "PING", "+PONG\r\n").await;
        proxy.cut_all();
        assert!(has_ended(&mut one).await && has_ended(&mut two).await);
        let mut next = connect(proxy).await;
        assert_eq!(ask(&mut next, "PING", "+PONG\r\n").await, "+PONG\r\n");
    })
    .await;
}

//! What the tests of this layer say to the servers of `testing`: how to reach them, waiting, and
//! commands as one line.

use std::ops::Deref;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::blocking::BlockingConn;
use super::conn::{Conn, Options};
use super::entries::StreamEntries;
use super::reply::Reply;
use crate::error::BackendError;
use crate::testing::{TestCluster, TestServer};

/// A server without a check at its end: these tests leave keys behind.
pub(super) struct TestRedis(TestServer);

impl Deref for TestRedis {
    type Target = TestServer;
    fn deref(&self) -> &TestServer {
        &self.0
    }
}

impl TestRedis {
    pub(super) async fn start(args: &[(&str, &str)]) -> Self {
        let mut options = TestServer::options().arg("--unixsocket", "redis.sock");
        for (name, value) in args {
            options = options.arg(*name, *value);
        }
        let server = options.start().await.unwrap();
        server.unchecked("nothing of a whole client or server runs on it");
        Self(server)
    }

    pub(super) fn options(&self, name: &str) -> Options {
        options_at(&self.url(), name)
    }

    pub(super) async fn conn(&self, name: &str) -> Conn {
        Conn::connect(&self.options(name)).await.unwrap()
    }

    pub(super) fn socket(&self) -> String {
        self.directory().join("redis.sock").display().to_string()
    }
}

/// A cluster without a check at its end, whose nodes see no death in what a test freezes for
/// seconds.
pub(super) async fn cluster() -> TestCluster {
    let options = TestCluster::options().arg("--cluster-node-timeout", "15000");
    let cluster = options.start().await.unwrap();
    cluster.unchecked("nothing of a whole client or server runs on it");
    cluster
}

pub(super) fn options_at(url: &str, name: &str) -> Options {
    Options {
        url: url.parse().unwrap(),
        command_timeout: Duration::from_secs(2),
        name: format!("streamfleet-{name}"),
    }
}

/// Waits for a condition, at most ten seconds.
pub(super) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    until_within(Duration::from_secs(10), what, &mut holds).await;
}

pub(super) async fn until_within(
    limit: Duration,
    what: &str,
    mut holds: impl AsyncFnMut() -> bool,
) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(super) fn bytes<const N: usize>(texts: [&str; N]) -> Vec<Bytes> {
    texts
        .map(|text| Bytes::copy_from_slice(text.as_bytes()))
        .to_vec()
}

pub(super) async fn send(conn: &Conn, line: &str) -> Result<Reply, BackendError> {
    let (name, args) = line.split_once(' ').unwrap_or((line, ""));
    let args = args
        .split_whitespace()
        .map(|arg| Bytes::copy_from_slice(arg.as_bytes()))
        .collect();
    conn.command(String::leak(name.to_owned()), None, args)
        .await
}

pub(super) async fn listed(conn: &Conn, name: &str) -> usize {
    let list = send(conn, "CLIENT LIST").await.unwrap();
    let wanted = format!("name=streamfleet-{name}");
    list.text()
        .unwrap()
        .split_whitespace()
        .filter(|part| *part == wanted)
        .count()
}

pub(super) async fn id_of(conn: &Conn, name: &str) -> Option<String> {
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

pub(super) async fn stream(conn: &Conn, key: &str) -> Bytes {
    send(conn, &format!("XGROUP CREATE {key} servers 0 MKSTREAM"))
        .await
        .unwrap();
    Bytes::copy_from_slice(key.as_bytes())
}

pub(super) async fn read(
    reader: &BlockingConn,
    block: Option<Duration>,
    keys: &[Bytes],
) -> Result<Vec<StreamEntries>, BackendError> {
    reader.read_group("servers", "me", 10, block, keys).await
}

pub(super) async fn clients(conn: &Conn) -> usize {
    send(conn, "CLIENT LIST")
        .await
        .unwrap()
        .text()
        .unwrap()
        .lines()
        .count()
}

//! A private redis-server for the tests of this layer: a free port, a temporary folder, and the
//! signals that break it.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;

use super::blocking::BlockingConn;
use super::conn::{Conn, Options};
use super::entries::StreamEntries;
use super::reply::Reply;
use crate::error::BackendError;

pub(super) struct TestRedis {
    child: Child,
    pub(super) port: u16,
    folder: TempDir,
    args: Vec<String>,
}

impl TestRedis {
    pub(super) async fn start(args: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let folder = TempDir::new().unwrap();
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let child = spawn(port, &folder, &args);
        let server = Self {
            child,
            port,
            folder,
            args,
        };
        server.answers().await;
        server
    }

    /// Three nodes that share the slots, and the address of the cluster.
    pub(super) async fn cluster() -> (Vec<Self>, String) {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(Self::start(&["--cluster-enabled", "yes"]).await);
        }
        let ranges = ["0 5460", "5461 10922", "10923 16383"];
        for (node, range) in nodes.iter().zip(ranges) {
            let conn = node.conn("setup").await;
            send(&conn, &format!("CLUSTER ADDSLOTSRANGE {range}"))
                .await
                .unwrap();
            send(&conn, &format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port))
                .await
                .unwrap();
        }
        for node in &nodes {
            let conn = node.conn("setup").await;
            until("the cluster agrees", async || {
                let info = send(&conn, "CLUSTER INFO").await.unwrap();
                let info = info.text().unwrap();
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            })
            .await;
        }
        let url = format!("redis-cluster://127.0.0.1:{}", nodes[0].port);
        (nodes, url)
    }

    /// A sentinel that watches `primary` as service `main`.
    pub(super) async fn sentinel(primary: &Self) -> Self {
        let (port, folder) = (free_port(), TempDir::new().unwrap());
        let config = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n",
            folder.path().display(),
            primary.port
        );
        let file = folder.path().join("sentinel.conf");
        std::fs::write(&file, config).unwrap();
        let child = Command::new(crate::testing::server_binary().unwrap())
            .arg(file)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self {
            child,
            port,
            folder,
            args: Vec::new(),
        };
        server.answers().await;
        server
    }

    async fn answers(&self) {
        until("the server listens", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", self.port))
                .await
                .is_ok()
        })
        .await;
    }

    pub(super) fn options(&self, name: &str) -> Options {
        self.options_at(&format!("redis://127.0.0.1:{}", self.port), name)
    }

    pub(super) fn options_at(&self, url: &str, name: &str) -> Options {
        Options {
            url: url.parse().unwrap(),
            command_timeout: Duration::from_secs(2),
            name: format!("streamfleet-{name}"),
        }
    }

    pub(super) async fn conn(&self, name: &str) -> Conn {
        Conn::connect(&self.options(name)).await.unwrap()
    }

    pub(super) fn socket(&self) -> String {
        self.folder.path().join("redis.sock").display().to_string()
    }

    pub(super) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &id])
                .status()
                .unwrap()
                .success()
        );
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) async fn restart(&mut self) {
        self.child = spawn(self.port, &self.folder, &self.args);
        self.answers().await;
    }
}

/// A free port, low enough that a cluster's second port, 10000 above it, exists.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        if port < 55_000 {
            return port;
        }
    }
}

fn spawn(port: u16, folder: &TempDir, args: &[String]) -> Child {
    Command::new(crate::testing::server_binary().unwrap())
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        ])
        .args(["--unixsocket", "redis.sock", "--loglevel", "warning"])
        .arg("--dir")
        .arg(folder.path())
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

impl Drop for TestRedis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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

//! A primary that is replaced: Sentinel names the new one, and tasks go on.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use streamfleet::Client;
use streamfleet::testing::TestServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Job, Worker, ask, ms};
use crate::support::alone::together;
use crate::support::eventually;

const PATIENCE: Duration = Duration::from_secs(30);

/// One sentinel; it is enough to outvote itself.
struct Sentinel {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Sentinel {
    async fn watch(primary: &TestServer) -> Self {
        let port = free_port().await;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("sentinel.conf");
        let settings = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\n\
             sentinel monitor jobs 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds jobs 500\n\
             sentinel failover-timeout jobs 5000\n",
            directory.path().display(),
            primary.port(),
        );
        std::fs::write(&file, settings).unwrap();
        let child = Command::new(primary.binary())
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            port,
            _directory: directory,
        }
    }

    /// The answer to one inline command, as text.
    async fn ask(&self, command: &str) -> Option<String> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let line = format!("{command}\r\n");
        socket.write_all(line.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        // It is told to nobody where an answer ends: silence does.
        while tokio::time::timeout(ms(100), socket.read_buf(&mut answer))
            .await
            .is_ok_and(|read| read.is_ok_and(|read| read > 0))
        {}
        String::from_utf8(answer).ok()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_go_on_when_the_primary_dies_and_sentinel_names_another() {
    let _together = together().await;
    let primary = TestServer::start().await.unwrap();
    let replica = TestServer::options()
        .arg("--replicaof", format!("127.0.0.1 {}", primary.port()))
        .start()
        .await
        .unwrap();
    primary.unchecked("it is killed, and its successor is checked");
    eventually("the replica follows", PATIENCE, async || {
        let info = ask(&replica, &["INFO", "replication"]).await;
        info.text().unwrap().contains("master_link_status:up")
    })
    .await;
    let sentinel = Sentinel::watch(&primary).await;
    eventually("the sentinel knows both", PATIENCE, async || {
        let answer = sentinel.ask("SENTINEL REPLICAS jobs").await;
        answer.is_some_and(|answer| answer.contains(&format!("\r\n{}\r\n", replica.port())))
    })
    .await;

    let url = format!("redis-sentinel://127.0.0.1:{}?service=jobs", sentinel.port);
    let client = Client::connect(url).await.unwrap();
    let worker = Worker::start(&client, |server| {
        server
            .lease(ms(3_000))
            .renew_every(ms(500))
            .quiet_gap(ms(1_000))
    });
    let handle = client.enqueue(Job::quick(1)).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 3);
    // One is running, some wait, one has its time still to come. All of it is on the replica too.
    let running = client.enqueue(Job::slow(2, 2_000)).await.unwrap();
    eventually("it runs", PATIENCE, async || worker.started().len() == 2).await;
    let delayed = client
        .enqueue(Job::quick(3))
        .delay(ms(1_500))
        .await
        .unwrap();
    eventually("the replica has it all", PATIENCE, async || {
        let [to, from] = [
            ask(&primary, &["INFO", "replication"])
                .await
                .text()
                .unwrap(),
            ask(&replica, &["INFO", "replication"])
                .await
                .text()
                .unwrap(),
        ]
        .map(|info| offset(&info));
        to == from
    })
    .await;
    primary.kill();
    let began = std::time::Instant::now();
    // Enqueued while nobody is primary: it is repeated until somebody is.
    let during = client.enqueue(Job::quick(4)).await.unwrap();
    assert_eq!(during.result_timeout(PATIENCE).await.unwrap(), 12);
    eprintln!(
        "a new task was done {:?} after the primary died",
        began.elapsed()
    );
    assert_eq!(delayed.result_timeout(PATIENCE).await.unwrap(), 9);
    assert_eq!(running.result_timeout(PATIENCE).await.unwrap(), 6);
    let runs = worker.started().iter().filter(|start| start.n == 2).count();
    assert_eq!(runs, 1, "the lease outlasts a failover");
    let report = worker.stop().await;
    assert_eq!((report.leases_lost, report.reclaimed), (0, 0));
    client.close().await;
    drop(sentinel);
    replica.finish().await;
}

/// How far a server is in the replication stream.
fn offset(info: &str) -> u64 {
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("master_repl_offset:"));
    line.unwrap().trim().parse().unwrap()
}

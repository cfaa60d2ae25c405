//! A private redis-server for the tests of this layer: a free port, a temporary folder, and the
//! signals that break it.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::conn::{Conn, Options};

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

fn spawn(port: u16, folder: &TempDir, args: &[String]) -> Child {
    Command::new("redis-server")
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

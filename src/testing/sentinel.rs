//! [`TestSentinel`]: one real sentinel that watches one primary.
//!
//! Owns what a sentinel is started with and told. It is a process like any other server
//! (`process`). Part of `testing`.

use std::time::Duration;

use super::process::Process;
use super::server::{COMMAND_TIMEOUT, command};
use super::wire::Reply;
use super::{TestError, TestServer};

/// How long a primary may be silent before it counts as dead.
const DOWN_AFTER: Duration = Duration::from_millis(500);
/// How long after a failed attempt the next one begins.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a sentinel may take to look at a replica that just began to follow.
const KNOWN_DEADLINE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// A private real sentinel, for one test. It is alone, and its own vote is enough.
///
/// ```no_run
/// # async fn example() -> Result<(), streamfleet::testing::TestError> {
/// use streamfleet::testing::{TestSentinel, TestServer};
/// let primary = TestServer::start().await?;
/// let replica = TestServer::options()
///     .arg("--replicaof", format!("127.0.0.1 {}", primary.port()))
///     .start()
///     .await?;
/// let sentinel = TestSentinel::watch("main", &primary).await?;
/// sentinel.knows(&replica).await?;
/// primary.kill(); // half a second later the replica is made the primary
/// println!("{}", sentinel.url());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TestSentinel {
    process: Process,
    service: String,
}

impl TestSentinel {
    /// Starts a sentinel that watches `primary` under the name `service`. A primary that is silent
    /// for 500 ms is replaced.
    ///
    /// # Errors
    /// [`TestError::NoServer`] without a server on this machine; [`TestError::Start`] if it does not
    /// come up or the installed server has no sentinel; [`TestError::Refused`] if it does not take
    /// the name.
    pub async fn watch(service: &str, primary: &TestServer) -> Result<Self, TestError> {
        let args = ["--sentinel", "--bind", "127.0.0.1"].map(str::to_owned);
        let process = Process::start(&args, None).await?;
        let sentinel = Self {
            process,
            service: service.to_owned(),
        };
        let port = primary.port().to_string();
        let [down_after, failover] =
            [DOWN_AFTER, FAILOVER_TIMEOUT].map(|time| time.as_millis().to_string());
        for words in [
            ["MONITOR", service, "127.0.0.1", &port, "1"].as_slice(),
            &["SET", service, "down-after-milliseconds", &down_after],
            &["SET", service, "failover-timeout", &failover],
        ] {
            let args: Vec<&str> = ["SENTINEL"].iter().chain(words).copied().collect();
            sentinel.command(&args).await?;
        }
        Ok(sentinel)
    }

    /// The URL to connect to, with the name of the service.
    #[must_use]
    pub fn url(&self) -> String {
        let (port, service) = (self.process.address().port, &self.service);
        format!("redis-sentinel://127.0.0.1:{port}?service={service}")
    }

    /// Sends one command to the sentinel. An error reply is [`TestError::Refused`].
    ///
    /// # Errors
    /// As [`TestServer::command`].
    pub async fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Reply, TestError> {
        command(self.process.address(), COMMAND_TIMEOUT, args).await
    }

    /// Waits until the sentinel would choose this replica: one that it does not know yet is never
    /// made the primary.
    ///
    /// # Errors
    /// [`TestError::Timeout`] after 30 s; else as [`TestServer::command`].
    pub async fn knows(&self, replica: &TestServer) -> Result<(), TestError> {
        let port = replica.port().to_string();
        let known = async {
            while !self.replicas().await?.contains(&port) {
                tokio::time::sleep(POLL).await;
            }
            Ok(())
        };
        tokio::time::timeout(KNOWN_DEADLINE, known)
            .await
            .unwrap_or(Err(TestError::Timeout(KNOWN_DEADLINE)))
    }

    /// The ports of the replicas that follow the primary.
    async fn replicas(&self) -> Result<Vec<String>, TestError> {
        let Reply::Array(replicas) = self
            .command(&["SENTINEL", "REPLICAS", &self.service])
            .await?
        else {
            return Err(TestError::Protocol("no list of replicas".into()));
        };
        Ok(replicas.iter().filter_map(port_if_linked).collect())
    }
}

/// The port in one entry of SENTINEL REPLICAS, a flat list of names and values.
fn port_if_linked(replica: &Reply) -> Option<String> {
    let Reply::Array(fields) = replica else {
        return None;
    };
    let value = |name: &str| {
        let mut pairs = fields.chunks_exact(2);
        pairs.find_map(|pair| (pair[0].text()? == name).then(|| pair[1].text())?)
    };
    (value("master-link-status")? == "ok").then(|| value("port"))?
}

//! [`TestCluster`]: three master nodes on this machine, made with raw commands.
//!
//! Owns how nodes become a cluster, and which queue is on which node. Each node is a
//! [`TestServer`]. Part of `testing`.

use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::leaks::{self, Allowed, Leak, Leaks};
use super::wire::{Address, Reply};
use super::{ServerKind, TestError, TestServer, TestServerOptions};

/// Three is the least that elects, and enough to have three queues on three nodes.
const NODES: usize = 3;
const SLOTS: u16 = 16_384;
/// A new cluster waits 2 s by itself before it takes writes.
const FORM_DEADLINE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// How many redirections one command follows.
const MAX_MOVES: usize = 5;

/// What a [`TestCluster`] is started with.
///
/// ```no_run
/// # async fn example() -> Result<(), streamfleet::testing::TestError> {
/// use streamfleet::testing::TestCluster;
/// let cluster = TestCluster::options().arg("--cluster-node-timeout", "1000").start().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TestClusterOptions {
    node: TestServerOptions,
    prefixes: Vec<String>,
    allowed: Allowed,
}

impl Default for TestClusterOptions {
    fn default() -> Self {
        let mut node = TestServer::options()
            .arg("--cluster-enabled", "yes")
            .arg("--cluster-node-timeout", "2000");
        // The cluster checks all nodes together.
        node.checked = false;
        Self {
            node,
            prefixes: Vec::new(),
            allowed: Allowed::default(),
        }
    }
}

impl TestClusterOptions {
    /// One more setting for the command line of each node.
    #[must_use]
    pub fn arg(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.node = self.node.arg(name, value);
        self
    }

    /// How each node keeps its data; by default it does not.
    #[must_use]
    pub fn aof(mut self, mode: super::AofMode) -> Self {
        self.node = self.node.aof(mode);
        self
    }

    /// A key prefix that the test uses, for the check at its end. Without any it is `streamfleet`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefixes.push(prefix.into());
        self
    }

    /// Lets one kind of leak pass in the check at the end, and says why.
    #[must_use]
    pub fn allow(mut self, leak: Leak, reason: &str) -> Self {
        self.allowed.add(leak, reason);
        self
    }

    /// Starts the nodes, makes them a cluster, and waits until each says that it is one.
    ///
    /// # Errors
    /// As [`TestServerOptions::start`]; [`TestError::NoCluster`] if they do not agree in time.
    pub async fn start(self) -> Result<TestCluster, TestError> {
        let mut nodes = Vec::with_capacity(NODES);
        for _ in 0..NODES {
            nodes.push(self.node.clone().start().await?);
        }
        let mut prefixes = self.prefixes;
        if prefixes.is_empty() {
            prefixes.push("streamfleet".to_owned());
        }
        let cluster = TestCluster {
            nodes,
            prefixes,
            allowed: Mutex::new(self.allowed),
            // Nothing of the library is there before the cluster is.
            checked: Mutex::new(false),
        };
        cluster.form().await?;
        *lock(&cluster.checked) = true;
        Ok(cluster)
    }

    /// Starts a cluster, runs the test, and checks that nothing is left on any node.
    ///
    /// # Panics
    /// If the cluster does not start, or if the test left anything behind.
    pub async fn run<F, T>(self, test: F) -> T
    where
        F: AsyncFnOnce(&TestCluster) -> T,
    {
        let cluster = super::expect_started(self.start().await);
        let output = test(&cluster).await;
        cluster.finish().await;
        output
    }
}

/// A private real cluster of three masters, for one test. It has the same check at its end as a
/// [`TestServer`], over all nodes.
///
/// ```no_run
/// # async fn example() -> Result<(), streamfleet::testing::TestError> {
/// use streamfleet::testing::TestCluster;
/// let cluster = TestCluster::start().await?;
/// let [one, two, three] = cluster.queues_on_three_nodes("mail");
/// println!("{}: {one} {two} {three}", cluster.url());
/// cluster.finish().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TestCluster {
    nodes: Vec<TestServer>,
    prefixes: Vec<String>,
    allowed: Mutex<Allowed>,
    /// Whether dropping it still has to check. Cleared by `finish` and `unchecked`.
    checked: Mutex<bool>,
}

impl TestCluster {
    /// Starts a cluster with the defaults.
    ///
    /// # Errors
    /// As [`TestClusterOptions::start`].
    pub async fn start() -> Result<Self, TestError> {
        Self::options().start().await
    }

    /// What to start a cluster with.
    #[must_use]
    pub fn options() -> TestClusterOptions {
        TestClusterOptions::default()
    }

    /// The URL to connect to; the other nodes are found from the first.
    #[must_use]
    pub fn url(&self) -> String {
        self.nodes.first().map_or_else(String::new, |node| {
            node.url().replacen("redis://", "redis-cluster://", 1)
        })
    }

    /// The nodes, each with a third of the slots in this order.
    #[must_use]
    pub fn nodes(&self) -> &[TestServer] {
        &self.nodes
    }

    /// Whether it is a Redis or a Valkey.
    #[must_use]
    pub fn kind(&self) -> ServerKind {
        self.nodes
            .first()
            .map_or(ServerKind::Redis, TestServer::kind)
    }

    /// The version of the nodes.
    #[must_use]
    pub fn version(&self) -> &str {
        self.nodes.first().map_or("", TestServer::version)
    }

    /// The node that had a key's slot when the cluster was made.
    #[must_use]
    pub fn node_of(&self, key: impl AsRef<[u8]>) -> &TestServer {
        &self.nodes[node_index(key_slot(key))]
    }

    /// Sends a command to the node that holds a key, also after its slot was moved.
    ///
    /// # Errors
    /// As [`TestServer::command`].
    pub async fn command_on_key<A: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        args: &[A],
    ) -> Result<Reply, TestError> {
        let mut node = self.node_of(key);
        for _ in 0..MAX_MOVES {
            match node.command(args).await {
                Err(TestError::Refused(text)) if text.starts_with("MOVED ") => {
                    let port = text.rsplit(':').next().and_then(|port| port.parse().ok());
                    match self.nodes.iter().find(|node| Some(node.port()) == port) {
                        Some(found) => node = found,
                        None => return Err(TestError::Refused(text)),
                    }
                }
                answer => return answer,
            }
        }
        Err(TestError::Protocol("redirected too often".into()))
    }

    /// Three queue names that begin with `name` and are on three different nodes.
    #[must_use]
    pub fn queues_on_three_nodes(&self, name: &str) -> [String; NODES] {
        let mut found = [const { String::new() }; NODES];
        for number in 0.. {
            let queue = format!("{name}-{number}");
            let place = &mut found[node_index(key_slot(format!("{{{queue}}}")))];
            if place.is_empty() {
                *place = queue;
            }
            if found.iter().all(|queue| !queue.is_empty()) {
                break;
            }
        }
        found
    }

    /// Lets one kind of leak pass in the check at the end, and says why.
    pub fn allow(&self, leak: Leak, reason: &str) {
        lock(&self.allowed).add(leak, reason);
    }

    /// Turns the check at the end off, for a cluster that no library talks to.
    pub fn unchecked(&self, _reason: &str) {
        *lock(&self.checked) = false;
    }

    /// Looks on every node for what the library left behind under one prefix.
    ///
    /// # Errors
    /// [`Leaks`], which shows as a readable list.
    pub async fn check_clean(&self, prefix: &str) -> Result<(), Leaks> {
        let allowed = lock(&self.allowed).clone();
        leaks::check_async(self.awake(), vec![prefix.to_owned()], allowed).await
    }

    /// Ends the test: checks every prefix of the options on every node, then stops the nodes.
    ///
    /// # Panics
    /// If anything was left behind. The message lists it.
    pub async fn finish(self) {
        if std::mem::replace(&mut *lock(&self.checked), false) {
            let allowed = lock(&self.allowed).clone();
            let prefixes = self.prefixes.clone();
            leaks::assert_clean(leaks::check_async(self.awake(), prefixes, allowed).await);
        }
    }

    /// The addresses of all nodes, after those that were frozen go on.
    fn awake(&self) -> Vec<Address> {
        let addresses = self.nodes.iter().map(|node| {
            let _ = node.resume();
            node.address().clone()
        });
        addresses.collect()
    }

    async fn form(&self) -> Result<(), TestError> {
        for (index, node) in self.nodes.iter().enumerate() {
            let (first, last) = slots_of(index);
            let slots = [first.to_string(), last.to_string()];
            node.command(&["CLUSTER", "ADDSLOTSRANGE", &slots[0], &slots[1]])
                .await?;
            let epoch = (index + 1).to_string();
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])
                .await?;
        }
        // Each meets each: the nodes then need no gossip to learn of one another.
        for (index, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[index + 1..] {
                let port = other.port().to_string();
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &port])
                    .await?;
            }
        }
        self.ready(FORM_DEADLINE).await
    }

    /// Waits until every node sees the whole cluster, as after a restart of one.
    ///
    /// # Errors
    /// [`TestError::NoCluster`] if they do not agree in time.
    pub async fn ready(&self, deadline: Duration) -> Result<(), TestError> {
        let start = Instant::now();
        loop {
            let mut state = String::new();
            for node in &self.nodes {
                let reason = match node.command(&["CLUSTER", "INFO"]).await {
                    Ok(info) => why_not_ready(&info.text().unwrap_or_default()),
                    Err(error) => Some(error.to_string()),
                };
                if let Some(reason) = reason {
                    let _ = write!(state, "port {}: {reason}; ", node.port());
                }
            }
            if state.is_empty() {
                return Ok(());
            }
            if start.elapsed() > deadline {
                return Err(TestError::NoCluster {
                    waited: deadline,
                    state,
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if std::thread::panicking() || !*lock(&self.checked) {
            return;
        }
        let allowed = lock(&self.allowed).clone();
        leaks::assert_clean(leaks::check_in_drop(
            &self.awake(),
            &self.prefixes,
            &allowed,
        ));
    }
}

fn why_not_ready(info: &str) -> Option<String> {
    let expected = [
        ("cluster_state", "ok".to_owned()),
        ("cluster_slots_ok", SLOTS.to_string()),
        ("cluster_known_nodes", NODES.to_string()),
        ("cluster_size", NODES.to_string()),
    ];
    expected.iter().find_map(|(name, value)| {
        let found = super::info_field(info, name).unwrap_or("missing");
        (found != value).then(|| format!("{name} is {found}, not {value}"))
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first and last slot of a node.
fn slots_of(node: usize) -> (u16, u16) {
    let edge = |node: usize| u16::try_from(usize::from(SLOTS) * node / NODES).unwrap_or(SLOTS);
    (edge(node), edge(node + 1) - 1)
}

fn node_index(slot: u16) -> usize {
    (0..NODES)
        .find(|node| slot <= slots_of(*node).1)
        .unwrap_or_default()
}

/// The cluster slot of a key: CRC16 (XMODEM) of its hash tag, or of all of it without one.
///
/// ```
/// use streamfleet::testing::key_slot;
/// assert_eq!(key_slot("streamfleet:{mail}:s"), key_slot("streamfleet:{mail}:cfg"));
/// assert_eq!(key_slot("123456789"), 0x31C3 % 16_384);
/// ```
#[must_use]
pub fn key_slot(key: impl AsRef<[u8]>) -> u16 {
    let key = key.as_ref();
    let tag = key
        .iter()
        .position(|byte| *byte == b'{')
        .and_then(|open| {
            let rest = &key[open + 1..];
            let close = rest.iter().position(|byte| *byte == b'}')?;
            // An empty tag is no tag.
            (close > 0).then(|| &rest[..close])
        })
        .unwrap_or(key);
    let crc = tag.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_hold_every_slot_once() {
        let slots: Vec<u16> = (0..NODES)
            .flat_map(|node| slots_of(node).0..=slots_of(node).1)
            .collect();
        assert_eq!(slots, (0..SLOTS).collect::<Vec<_>>());
        assert_eq!([0, 5461, 16_383].map(node_index), [0, 1, 2]);
    }

    #[test]
    fn only_the_first_tag_that_is_not_empty_counts() {
        assert_eq!(key_slot("a{b}c{d}"), key_slot("b"));
        assert_ne!(key_slot("a{}b"), key_slot(""));
        assert_eq!(key_slot("a{b"), key_slot("a{b".as_bytes()));
    }
}

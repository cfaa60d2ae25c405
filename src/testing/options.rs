//! What a server is started with, and what it turned out to be.
//!
//! Owns the command line. Part of `testing`; called by tests and by `cluster`.

use std::fmt;

use super::leaks::{Allowed, Leak};
use super::process::Process;
use super::{TestError, TestServer};

/// How the server keeps its data on disk.
///
/// ```no_run
/// # async fn example() -> Result<(), streamfleet::testing::TestError> {
/// use streamfleet::testing::{AofMode, TestServer};
/// let server = TestServer::options().aof(AofMode::Always).start().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum AofMode {
    /// Nothing on disk: a restart is empty.
    #[default]
    Off,
    /// Written at each command, synced each second: survives a killed server, not a lost machine.
    EverySec,
    /// Synced before each reply.
    Always,
}

/// Which program answers.
///
/// ```
/// use streamfleet::testing::ServerKind;
/// assert_eq!(ServerKind::Valkey.to_string(), "Valkey");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ServerKind {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What a [`TestServer`] is started with.
///
/// ```no_run
/// # async fn example() -> Result<(), streamfleet::testing::TestError> {
/// use streamfleet::testing::TestServer;
/// let server = TestServer::options()
///     .arg("--maxmemory-policy", "allkeys-lru")
///     .prefix("mail")
///     .start()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TestServerOptions {
    args: Vec<String>,
    aof: AofMode,
    pub(super) password: Option<String>,
    pub(super) prefixes: Vec<String>,
    pub(super) allowed: Allowed,
    /// Whether the server checks itself at its end; the nodes of a cluster do not.
    pub(super) checked: bool,
}

impl Default for TestServerOptions {
    fn default() -> Self {
        Self {
            args: Vec::new(),
            aof: AofMode::Off,
            password: None,
            prefixes: Vec::new(),
            allowed: Allowed::default(),
            checked: true,
        }
    }
}

impl TestServerOptions {
    /// How the data is kept; by default it is not.
    #[must_use]
    pub const fn aof(mut self, mode: AofMode) -> Self {
        self.aof = mode;
        self
    }

    /// One more setting for the command line of the server; it wins over ours.
    #[must_use]
    pub fn arg(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        if name == "--requirepass" {
            self.password = Some(value.clone());
        }
        self.args.extend([name, value]);
        self
    }

    /// Asks for a password; it becomes a part of [`TestServer::url`].
    #[must_use]
    pub fn password(self, password: impl Into<String>) -> Self {
        self.arg("--requirepass", password)
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

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// [`TestError::NoServer`] without a server on this machine, which says how to install one;
    /// [`TestError::Start`] if it does not come up.
    pub async fn start(self) -> Result<TestServer, TestError> {
        let password = self.password.as_deref();
        let process = Process::start(&self.command_line(), password).await?;
        TestServer::over(process, self).await
    }

    /// Starts a server, runs the test, and checks that nothing is left.
    ///
    /// # Panics
    /// If the server does not start, or if the test left anything behind.
    pub async fn run<F, T>(self, test: F) -> T
    where
        F: AsyncFnOnce(&TestServer) -> T,
    {
        let server = super::expect_started(self.start().await);
        let output = test(&server).await;
        server.finish().await;
        output
    }

    fn command_line(&self) -> Vec<String> {
        let appendonly = if self.aof == AofMode::Off {
            "no"
        } else {
            "yes"
        };
        let appendfsync = if self.aof == AofMode::Always {
            "always"
        } else {
            "everysec"
        };
        let ours = [
            ("--bind", "127.0.0.1"),
            ("--save", ""),
            ("--daemonize", "no"),
            ("--logfile", ""),
            ("--appendonly", appendonly),
            ("--appendfsync", appendfsync),
            // `DEBUG SLEEP` and its like are what a test of faults is made of.
            ("--enable-debug-command", "yes"),
        ];
        ours.iter()
            .flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()])
            .chain(self.args.iter().cloned())
            .collect()
    }
}

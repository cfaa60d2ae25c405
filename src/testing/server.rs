//! [`TestServer`]: one private real server, and the check at the end of its test.
//!
//! Owns the options and the calls a test makes. How the process lives is in `process`, what a
//! clean server looks like in `leaks`. Part of `testing`.

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::leaks::{self, Allowed, Leak, Leaks};
use super::process::Process;
use super::wire::{Address, Reply, Wire};
use super::{TestError, on_blocking_thread, ports};

/// How long a command may take, unless the call says otherwise.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// How often another port is tried when somebody took the one that was free.
const START_TRIES: usize = 10;

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
    password: Option<String>,
    prefixes: Vec<String>,
    allowed: Allowed,
    pub(crate) checked: bool,
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
        let mut tries = START_TRIES;
        loop {
            tries -= 1;
            let process = Process::start(
                self.command_line(),
                self.password.clone(),
                ports::reserve()?,
            )?;
            match process.ready_after_start().await {
                Ok(()) => return TestServer::over(process, self).await,
                Err(_) if tries > 0 && process.lost_its_port() => {}
                Err(error) => return Err(error),
            }
        }
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

/// A private real Redis or Valkey, for one test.
///
/// It listens on a free loopback port, works in a temporary directory, and is gone when the value
/// is dropped, when the test panics, and when the test process is killed. When the test ends
/// without a panic, the server checks by itself that the library left nothing behind: best through
/// [`run`](crate::testing::run) or [`finish`](Self::finish), else when it is dropped.
///
/// ```no_run
/// # async fn example() -> Result<(), streamfleet::testing::TestError> {
/// use streamfleet::testing::TestServer;
/// let server = TestServer::start().await?;
/// assert_eq!(server.command(&["PING"]).await?.text().as_deref(), Some("PONG"));
/// println!("{} {} on {}", server.kind(), server.version(), server.url());
/// server.finish().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TestServer {
    process: Process,
    password: Option<String>,
    kind: ServerKind,
    version: String,
    prefixes: Vec<String>,
    allowed: Mutex<Allowed>,
    /// Whether dropping it still has to check. Cleared by `finish` and `unchecked`.
    checked: Mutex<bool>,
}

impl TestServer {
    /// Starts a server with the defaults: no persistence, no password.
    ///
    /// # Errors
    /// As [`TestServerOptions::start`].
    pub async fn start() -> Result<Self, TestError> {
        Self::options().start().await
    }

    /// What to start a server with.
    #[must_use]
    pub fn options() -> TestServerOptions {
        TestServerOptions::default()
    }

    async fn over(process: Process, options: TestServerOptions) -> Result<Self, TestError> {
        let info = command(process.address(), COMMAND_TIMEOUT, vec!["INFO", "server"]).await?;
        let info = info.text().unwrap_or_default();
        let field = |name| super::info_field(&info, name).map(str::to_owned);
        let (kind, version) = match field("valkey_version") {
            Some(version) => (ServerKind::Valkey, version),
            None => (
                ServerKind::Redis,
                field("redis_version").unwrap_or_default(),
            ),
        };
        let mut prefixes = options.prefixes;
        if prefixes.is_empty() {
            prefixes.push("streamfleet".to_owned());
        }
        Ok(Self {
            process,
            password: options.password,
            kind,
            version,
            prefixes,
            allowed: Mutex::new(options.allowed),
            checked: Mutex::new(options.checked),
        })
    }

    /// The URL to connect to, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The same URL with another port, such as that of a proxy.
    #[must_use]
    pub fn url_at(&self, port: u16) -> String {
        match &self.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{port}"),
            None => format!("redis://127.0.0.1:{port}"),
        }
    }

    /// The port on 127.0.0.1; the same for the whole life of the value.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.process.address().port
    }

    /// The process id, or nothing while the server is down.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Whether it is a Redis or a Valkey.
    #[must_use]
    pub const fn kind(&self) -> ServerKind {
        self.kind
    }

    /// The version, such as `7.0.15`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The program that runs.
    #[must_use]
    pub fn binary(&self) -> &Path {
        self.process.binary()
    }

    /// The directory it works in; its log is `server.log`.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.process.directory()
    }

    /// Sends one command on a connection of its own. An error reply is [`TestError::Refused`].
    ///
    /// # Errors
    /// [`TestError::Timeout`] after 5 s; [`TestError::Closed`] or [`TestError::Io`] while the
    /// server is down.
    pub async fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Reply, TestError> {
        self.command_within(COMMAND_TIMEOUT, args).await
    }

    /// [`command`](Self::command) with another limit to the wait.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub async fn command_within<A: AsRef<[u8]>>(
        &self,
        limit: Duration,
        args: &[A],
    ) -> Result<Reply, TestError> {
        let args = args.iter().map(|arg| arg.as_ref().to_vec()).collect();
        command(self.process.address(), limit, args).await
    }

    /// Sends many commands on one connection; an error is a [`Reply::Error`] in its place.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub async fn pipeline<A: AsRef<[u8]>>(
        &self,
        commands: &[Vec<A>],
    ) -> Result<Vec<Reply>, TestError> {
        let address = self.process.address().clone();
        let commands: Vec<Vec<Vec<u8>>> = commands
            .iter()
            .map(|args| args.iter().map(|arg| arg.as_ref().to_vec()).collect())
            .collect();
        on_blocking_thread(move || Wire::connect(&address, COMMAND_TIMEOUT)?.pipeline(&commands))
            .await
    }

    /// Kills it by SIGKILL; [`restart`](Self::restart) brings it back.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Stops it by SIGTERM, as an operator would, and waits until it ended.
    ///
    /// # Errors
    /// [`TestError::Io`] if the signal cannot be sent.
    pub async fn stop(&self) -> Result<(), TestError> {
        self.process.stop().await
    }

    /// Starts it again on the same port and directory, killing it first if it runs, and waits
    /// until it has loaded its data.
    ///
    /// # Errors
    /// [`TestError::Start`] if it does not come up.
    pub async fn restart(&self) -> Result<(), TestError> {
        self.process.respawn()?;
        self.process.ready_after_restart().await
    }

    /// Freezes it by SIGSTOP: connections stay open, nothing answers.
    ///
    /// # Errors
    /// [`TestError::Io`] if the signal cannot be sent.
    pub fn pause(&self) -> Result<(), TestError> {
        self.process.pause()
    }

    /// Lets a frozen server go on.
    ///
    /// # Errors
    /// [`TestError::Io`] if the signal cannot be sent.
    pub fn resume(&self) -> Result<(), TestError> {
        self.process.signal("CONT")
    }

    /// Lets one kind of leak pass in the check at the end, and says why.
    pub fn allow(&self, leak: Leak, reason: &str) {
        lock(&self.allowed).add(leak, reason);
    }

    /// Turns the check at the end off, for a server that no library talks to.
    pub fn unchecked(&self, _reason: &str) {
        *lock(&self.checked) = false;
    }

    /// Looks for what the library left behind under one prefix.
    ///
    /// # Errors
    /// [`Leaks`], which shows as a readable list.
    pub async fn check_clean(&self, prefix: &str) -> Result<(), Leaks> {
        let addresses = vec![self.process.address().clone()];
        let (prefixes, allowed) = (vec![prefix.to_owned()], lock(&self.allowed).clone());
        let _ = self.resume();
        leaks::check_async(addresses, prefixes, allowed).await
    }

    /// Ends the test: checks every prefix of the options, then stops the server.
    ///
    /// # Panics
    /// If anything was left behind. The message lists it.
    pub async fn finish(self) {
        if std::mem::replace(&mut *lock(&self.checked), false) {
            let addresses = vec![self.process.address().clone()];
            let allowed = lock(&self.allowed).clone();
            let _ = self.resume();
            leaks::assert_clean(
                leaks::check_async(addresses, self.prefixes.clone(), allowed).await,
            );
        }
    }

    pub(crate) fn address(&self) -> &Address {
        self.process.address()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if std::thread::panicking() || !*lock(&self.checked) {
            return;
        }
        let _ = self.resume();
        let addresses = [self.process.address().clone()];
        leaks::assert_clean(leaks::check_in_drop(
            &addresses,
            &self.prefixes,
            &lock(&self.allowed),
        ));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn command<A>(address: &Address, limit: Duration, args: Vec<A>) -> Result<Reply, TestError>
where
    A: AsRef<[u8]> + Send + 'static,
{
    let address = address.clone();
    on_blocking_thread(move || Wire::connect(&address, limit)?.call(&args)).await
}

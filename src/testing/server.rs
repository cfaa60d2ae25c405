//! [`TestServer`]: one private real server, and the check at the end of its test.
//!
//! Owns the calls a test makes. What it is started with is in `options`, how the process lives in
//! `process`, what a clean server looks like in `leaks`. Part of `testing`.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::leaks::{self, Allowed, Leak, Leaks};
use super::process::Process;
use super::wire::{Address, Reply, Wire};
use super::{ServerKind, TestError, TestServerOptions, on_blocking_thread};

/// How long a command may take, unless the call says otherwise.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// A private real Redis or Valkey, for one test.
///
/// It listens on a free loopback port, works in a temporary directory, and is gone when the value
/// is dropped, when the test panics, and when the test process is killed. When the test ends
/// without a panic, the server checks by itself that the library left nothing behind: best through
/// [`run`](crate::testing::run) or [`finish`](Self::finish), else when it is dropped. (A drop in
/// a single-threaded tokio runtime does not look for connections: nothing could close them
/// meanwhile.)
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

    pub(super) async fn over(
        process: Process,
        options: TestServerOptions,
    ) -> Result<Self, TestError> {
        let info = command(process.address(), COMMAND_TIMEOUT, &["INFO", "server"]).await?;
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

pub(super) async fn command<A: AsRef<[u8]>>(
    address: &Address,
    limit: Duration,
    args: &[A],
) -> Result<Reply, TestError> {
    let address = address.clone();
    let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_ref().to_vec()).collect();
    on_blocking_thread(move || Wire::connect(&address, limit)?.call(&args)).await
}

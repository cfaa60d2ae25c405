//! Private real servers for tests, and the check that nothing is left behind.
//!
//! [`TestServer`] starts a real Redis or Valkey for one test, [`TestCluster`] three of them as a
//! cluster, [`TestSentinel`] a sentinel that watches one. When a test ends, the server checks by itself that every stream is empty, nothing is
//! pending, no key is without an owner and no connection is left; what a test leaves on purpose it
//! [allows](TestServer::allow) by name and with a reason.
//!
//! ```no_run
//! # async fn example() {
//! streamfleet::testing::run(async |server| {
//!     // Client::connect(server.url()) … enqueue, run, close
//!     assert!(server.command(&["PING"]).await.is_ok());
//! })
//! .await; // the check is here
//! # }
//! ```
//!
//! Above every layer of the library, and used by none. It shares no code with the store: a test
//! must not believe what it tests.

mod audit;
mod cluster;
mod error;
mod leaks;
mod options;
mod ports;
mod process;
mod sentinel;
mod server;
mod wire;

pub use cluster::{TestCluster, TestClusterOptions, key_slot};
pub use error::TestError;
pub use leaks::{Leak, LeakFound, Leaks};
pub use options::{AofMode, ServerKind, TestServerOptions};
pub use sentinel::TestSentinel;
pub use server::TestServer;
pub use wire::Reply;

/// Starts a server with the defaults, runs the test, and checks that nothing is left.
///
/// # Panics
/// If the server does not start, or if the test left anything behind.
///
/// ```no_run
/// # async fn example() {
/// streamfleet::testing::run(async |server| {
///     println!("{}", server.url());
/// })
/// .await;
/// # }
/// ```
pub async fn run<F, T>(test: F) -> T
where
    F: AsyncFnOnce(&TestServer) -> T,
{
    TestServer::options().run(test).await
}

#[expect(clippy::panic, reason = "the failure of a test is a panic")]
fn expect_started<T>(started: Result<T, TestError>) -> T {
    started.unwrap_or_else(|error| panic!("{error}"))
}

/// Runs blocking calls where they stop no other task.
async fn on_blocking_thread<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, TestError> + Send + 'static,
) -> Result<T, TestError> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(error) => Err(TestError::Io {
            what: "run a blocking call",
            source: std::io::Error::other(error),
        }),
    }
}

/// One field of a reply to INFO.
fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

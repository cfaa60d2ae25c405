//! What a test may have left behind, how it is allowed, and how it is told.
//!
//! Owns the words and the order of the check: connections first, because closing them takes a
//! moment and a live one may still write; then the keys, see `audit`. Part of `testing`; called by
//! `server` and `cluster`.

use std::collections::BTreeMap;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use super::audit;
use super::wire::{Address, Wire};
use super::{TestError, info_field, on_blocking_thread};

/// How long the last connections may take to close.
const CLOSE_DEADLINE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(5);

/// A kind of thing that should be gone when a test ends.
///
/// ```no_run
/// # async fn example() -> Result<(), streamfleet::testing::TestError> {
/// use streamfleet::testing::{Leak, TestServer};
/// let server = TestServer::start().await?;
/// server.allow(Leak::Archived, "the task fails for good on purpose");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Leak {
    /// A task stream still holds entries.
    Entries,
    /// An entry is pending, or a stream has a group that is not ours.
    Pending,
    /// A consumer of the group belongs to no server.
    Consumer,
    /// The result stream of a client.
    Receiver,
    /// Tasks wait for their time.
    Scheduled,
    /// Tasks wait for their next attempt.
    Retry,
    /// Tasks were archived.
    Archived,
    /// Outcomes are retained.
    Completed,
    /// A record belongs to no task that waits, was archived or is retained.
    Record,
    /// Tasks are parked because no server knew their name.
    Parked,
    /// A request to cancel is left.
    Cancel,
    /// A count of crashes is left.
    Crashes,
    /// A unique lock is held.
    UniqueLock,
    /// Tasks wait to be aggregated.
    Group,
    /// A server is still announced.
    ServerInfo,
    /// `clients`, `producers` or `servers` name somebody who is gone for more than a day.
    StaleOwner,
    /// A key that goes away by itself has no expiry.
    NoExpiry,
    /// A key holds another type than documented.
    WrongType,
    /// A key under the prefix that the documentation does not know.
    UnknownKey,
    /// A key under another prefix.
    ForeignKey,
    /// A connection is open.
    Connection,
    /// The server was down, so that nothing could be checked.
    ServerDown,
}

/// One thing that was left behind.
///
/// ```no_run
/// # async fn example() -> Result<(), streamfleet::testing::TestError> {
/// # let server = streamfleet::testing::TestServer::start().await?;
/// if let Err(leaks) = server.check_clean("streamfleet").await {
///     for found in leaks.found() {
///         println!("{:?}: {}", found.leak, found.what);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LeakFound {
    /// Of which kind.
    pub leak: Leak,
    /// The key or the connection, and what is in it.
    pub what: String,
}

/// Everything that was left behind and not allowed. Shows as a readable list.
///
/// ```no_run
/// # async fn example() -> Result<(), streamfleet::testing::TestError> {
/// # let server = streamfleet::testing::TestServer::start().await?;
/// if let Err(leaks) = server.check_clean("streamfleet").await {
///     eprintln!("{leaks}");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leaks {
    found: Vec<LeakFound>,
    allowed: Vec<String>,
}

impl Leaks {
    /// What was found, in the order of the kinds.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), streamfleet::testing::TestError> {
    /// # use streamfleet::testing::{Leak, TestServer};
    /// # let server = TestServer::start().await?;
    /// let leaks = server.check_clean("streamfleet").await.unwrap_err();
    /// assert_eq!(leaks.found()[0].leak, Leak::Receiver);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn found(&self) -> &[LeakFound] {
        &self.found
    }
}

impl std::error::Error for Leaks {}

impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the test left {} thing(s) behind:", self.found.len())?;
        for LeakFound { leak, what } in &self.found {
            writeln!(f, "  - {leak:?}: {what}")?;
        }
        for allowed in &self.allowed {
            writeln!(f, "  (allowed) {allowed}")?;
        }
        f.write_str(
            "Close clients and stop servers before the test ends, or `allow` the kind with a reason.",
        )
    }
}

/// The kinds that a test leaves on purpose, each with its reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed(BTreeMap<Leak, String>);

impl Allowed {
    pub(crate) fn add(&mut self, leak: Leak, reason: &str) {
        self.0.insert(leak, reason.to_owned());
    }
}

/// [`check`] from async code, which goes on meanwhile: connections close by themselves.
pub(crate) async fn check_async(
    addresses: Vec<Address>,
    prefixes: Vec<String>,
    allowed: Allowed,
) -> Result<(), Leaks> {
    let checked =
        on_blocking_thread(move || Ok(check(&addresses, &prefixes, &allowed, true))).await;
    checked.unwrap_or_else(|error| {
        Err(Leaks {
            found: vec![LeakFound {
                leak: Leak::ServerDown,
                what: error.to_string(),
            }],
            allowed: Vec::new(),
        })
    })
}

/// [`check`] from a `Drop`, which blocks this thread.
pub(crate) fn check_in_drop(
    addresses: &[Address],
    prefixes: &[String],
    allowed: &Allowed,
) -> Result<(), Leaks> {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        // Nothing else runs while we wait here, so what would close a connection cannot: looking
        // for connections would accuse every test that dropped its client just now.
        Ok(RuntimeFlavor::CurrentThread) => check(addresses, prefixes, allowed, false),
        Ok(_) => tokio::task::block_in_place(|| check(addresses, prefixes, allowed, true)),
        Err(_) => check(addresses, prefixes, allowed, true),
    }
}

/// Fails the test.
#[expect(clippy::panic, reason = "the failure of a test is a panic")]
#[track_caller]
pub(crate) fn assert_clean(checked: Result<(), Leaks>) {
    if let Err(leaks) = checked {
        panic!("{leaks}");
    }
}

/// Looks at every node for connections, then for keys.
fn check(
    addresses: &[Address],
    prefixes: &[String],
    allowed: &Allowed,
    connections: bool,
) -> Result<(), Leaks> {
    let mut found = Vec::new();
    if connections {
        let start = Instant::now();
        for address in addresses {
            let left = CLOSE_DEADLINE.saturating_sub(start.elapsed());
            collect(address, &mut found, |wire| open_connections(wire, left));
        }
    }
    for address in addresses {
        collect(address, &mut found, |wire| audit::keys(wire, prefixes));
    }
    found.sort_by_key(|found| found.leak);
    found.dedup();
    let (passed, found): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|found| allowed.0.contains_key(&found.leak));
    if found.is_empty() {
        return Ok(());
    }
    let allowed = passed
        .into_iter()
        .map(|LeakFound { leak, what }| format!("{leak:?}: {what} ({})", allowed.0[&leak]))
        .collect();
    Err(Leaks { found, allowed })
}

fn collect(
    address: &Address,
    found: &mut Vec<LeakFound>,
    look: impl FnOnce(&mut Wire) -> Result<Vec<LeakFound>, TestError>,
) {
    match Wire::connect(address, TIMEOUT).and_then(|mut wire| look(&mut wire)) {
        Ok(more) => found.extend(more),
        Err(error) => found.push(LeakFound {
            leak: Leak::ServerDown,
            what: format!(
                "the server on port {} cannot be asked: {error}",
                address.port
            ),
        }),
    }
}

/// The connections that are still open after at most `patience`, without our own.
fn open_connections(wire: &mut Wire, patience: Duration) -> Result<Vec<LeakFound>, TestError> {
    let start = Instant::now();
    let me = wire.call(&["CLIENT", "ID"])?.int().unwrap_or_default();
    loop {
        let list = wire.call(&["CLIENT", "LIST"])?.text().unwrap_or_default();
        let open: Vec<LeakFound> = list
            .lines()
            .filter_map(|line| describe_connection(line, me))
            .map(|what| LeakFound {
                leak: Leak::Connection,
                what,
            })
            .collect();
        if open.is_empty() || start.elapsed() >= patience {
            return Ok(open);
        }
        thread::sleep(POLL);
    }
}

/// One line of CLIENT LIST, unless it is our own connection or that of a replica.
fn describe_connection(line: &str, me: i64) -> Option<String> {
    let field = |name: &str| {
        line.split(' ')
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .unwrap_or_default()
    };
    let is_link = field("flags").contains(['S', 'M']);
    if line.is_empty() || is_link || field("id").parse() == Ok(me) {
        return None;
    }
    Some(format!(
        "connection {} named {:?} from {}, {} s old, idle for {} s, last command {}",
        field("id"),
        field("name"),
        field("addr"),
        field("age"),
        field("idle"),
        field("cmd"),
    ))
}

/// The databases that hold keys.
pub(crate) fn databases(wire: &mut Wire) -> Result<Vec<String>, TestError> {
    let info = wire.call(&["INFO", "keyspace"])?.text().unwrap_or_default();
    Ok((0..1024)
        .filter(|number| info_field(&info, &format!("db{number}")).is_some())
        .map(|number| number.to_string())
        .collect())
}

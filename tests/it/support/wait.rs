//! Waiting for a condition instead of sleeping, and counting what a server was asked.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use streamfleet::testing::TestServer;

const POLL: Duration = Duration::from_millis(10);

/// What a condition answers: a plain bool, or a `Result` whose error says what is still missing.
pub(crate) trait Condition {
    fn missing(self) -> Option<String>;
}

impl Condition for bool {
    fn missing(self) -> Option<String> {
        (!self).then(|| "it is false".to_owned())
    }
}

impl<E: Debug> Condition for Result<(), E> {
    fn missing(self) -> Option<String> {
        self.err().map(|error| format!("{error:?}"))
    }
}

/// Polls until the condition holds; panics at the deadline with what was waited for and what the
/// condition said last. A poll that hangs counts as not held.
///
/// ```ignore
/// eventually("the stream is empty", Duration::from_secs(5), async || length().await == 0).await;
/// ```
#[track_caller]
pub(crate) fn eventually<C: Condition>(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> C,
) -> impl Future<Output = Duration> {
    let caller = std::panic::Location::caller();
    async move {
        let start = Instant::now();
        loop {
            let left = deadline.saturating_sub(start.elapsed());
            let last = match tokio::time::timeout(left.max(POLL), condition()).await {
                Ok(answer) => answer.missing(),
                Err(_) => Some("the condition itself did not answer".to_owned()),
            };
            match last {
                None => return start.elapsed(),
                Some(last) if start.elapsed() >= deadline => {
                    panic!("{caller}: not within {deadline:?}: {what}; last: {last}")
                }
                Some(_) => tokio::time::sleep(POLL).await,
            }
        }
    }
}

/// How many commands a server has received so far, without the one that asks.
pub(crate) async fn commands_received(server: &TestServer) -> u64 {
    let info = server.command(&["INFO", "stats"]).await.unwrap();
    field(&info.text().unwrap(), "total_commands_processed:")
}

/// How often each command was called so far, by its lower-case name (`xreadgroup`, `evalsha`,
/// `client|kill`). Commands called by scripts are in it too.
pub(crate) async fn commands_received_by_name(server: &TestServer) -> BTreeMap<String, u64> {
    let info = server.command(&["INFO", "commandstats"]).await.unwrap();
    let info = info.text().unwrap();
    info.lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'))
        .map(|(name, stats)| (name.to_owned(), field(stats, "calls=")))
        .collect()
}

fn field(text: &str, name: &str) -> u64 {
    let start = text
        .find(name)
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        + name.len();
    let digits = text[start..].split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

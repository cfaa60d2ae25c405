//! What happens when processes die, freeze and stop, when Redis goes away, forgets or lies, and when
//! connections break: real servers, real worker processes.
//!
//! Times come from the clock that Redis reads too, since everything runs on one machine. A test that
//! measures one has the machine to itself, as far as this module goes, and has three tries; what is
//! correct is never tried twice.

mod death;
mod keys;
mod lease;
mod many;
mod outage;
mod retries;
mod waiters;
mod wire;
mod worker;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use streamfleet::testing::TestServer;

use crate::support::alone::{alone, best_of_three, together};

/// Generous: a deadline of a test is there to end it, not to measure.
pub(crate) const LONG: Duration = Duration::from_secs(60);

fn within(what: &str, took: Duration, limit: Duration) -> Result<(), String> {
    if took <= limit {
        return Ok(());
    }
    Err(format!("{what} took {took:?}, the limit is {limit:?}"))
}

/// Now, as Redis would say.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An integer reply.
async fn number(server: &TestServer, command: &[&str]) -> i64 {
    let reply = server.command(command).await.unwrap();
    reply
        .int()
        .unwrap_or_else(|| panic!("{command:?}: {reply:?}"))
}

/// One of the counters that scripts keep.
async fn counter(server: &TestServer, queue: &str, name: &str) -> i64 {
    let key = format!("streamfleet:{{{queue}}}:n");
    let reply = server.command(&["HGET", &key, name]).await.unwrap();
    reply.text().map_or(0, |text| text.parse().unwrap())
}

/// How many entries a stream was ever given.
async fn entries_added(server: &TestServer, queue: &str) -> i64 {
    let key = format!("streamfleet:{{{queue}}}:s");
    let info = server.command(&["XINFO", "STREAM", &key]).await.unwrap();
    let pair = info
        .items()
        .chunks_exact(2)
        .find(|pair| pair[0].text().as_deref() == Some("entries-added"))
        .unwrap();
    pair[1].int().unwrap()
}

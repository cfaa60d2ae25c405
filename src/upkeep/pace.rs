//! How often one of many servers looks after a queue, so that the fleet does it often enough and no
//! more.
//!
//! Layer 3. A thousand servers that all look every two seconds would burn two cores of Redis
//! (measured); instead each waits longer the more servers there are.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The longest wait of one server, however large the fleet: bounds how long the last free server of
/// a busy fleet takes to notice dead work.
const LONGEST: Duration = Duration::from_secs(30);

/// The number of servers at one queue, as last seen.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    servers: AtomicUsize,
}

impl Pace {
    pub(crate) fn see(&self, servers: usize) {
        self.servers.store(servers, Ordering::Relaxed);
    }

    /// The wait until this server's next look: `every`, but in a large fleet so long that all
    /// together look about once a second; with a random quarter more or less, so that they do not
    /// look together.
    pub(crate) fn wait(&self, every: Duration, random: f64) -> Duration {
        let servers = u32::try_from(self.servers.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let fleet = Duration::from_secs(1).saturating_mul(servers);
        // Up to two servers the configured pace stays; a dead server is counted until it is swept.
        let wait = if servers <= 2 {
            every
        } else {
            every.max(fleet.mul_f64(0.7))
        };
        wait.min(LONGEST.max(every)).mul_f64(0.75 + random / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_keeps_the_configured_pace() {
        let pace = Pace::default();
        pace.see(1);
        let every = Duration::from_secs(2);
        assert_eq!(pace.wait(every, 0.5), every);
    }

    #[test]
    fn a_large_fleet_looks_about_once_a_second_together_but_each_at_least_every_half_minute() {
        let pace = Pace::default();
        pace.see(20);
        assert_eq!(
            pace.wait(Duration::from_secs(2), 0.5),
            Duration::from_secs(14)
        );
        pace.see(1_000);
        assert_eq!(pace.wait(Duration::from_secs(2), 0.5), LONGEST);
    }
}

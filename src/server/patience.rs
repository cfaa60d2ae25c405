//! The wait after an error, so that no loop spins and no log floods.
//!
//! Layer 4. One for each loop.

use std::time::Duration;

use tokio::time::Instant;

/// The first wait and the longest one.
const FIRST: Duration = Duration::from_millis(25);
const LONGEST: Duration = Duration::from_secs(1);
/// At most one log line in this time, however many errors there are.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Counts the errors in a row of one loop.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    errors: u32,
    logged: Option<Instant>,
}

impl Patience {
    /// Something worked.
    pub(crate) fn reset(&mut self) {
        self.errors = 0;
    }

    /// Notes an error and says how long to wait: doubling from 25 ms to 1 s, drawn from the upper
    /// half, so that a fleet does not come back all at once.
    pub(crate) fn next(&mut self) -> Duration {
        let wait = (FIRST * 2_u32.saturating_pow(self.errors.min(10))).min(LONGEST);
        self.errors = self.errors.saturating_add(1);
        wait.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Logs an error of the loop, unless it logged one a moment ago, and says how long to wait.
    pub(crate) fn note(&mut self, what: &'static str, error: &dyn std::fmt::Display) -> Duration {
        let due = self
            .logged
            .is_none_or(|logged| logged.elapsed() >= LOG_EVERY);
        if due {
            self.logged = Some(Instant::now());
            tracing::warn!(%error, errors = self.errors + 1, "{what}");
        }
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_second_and_start_again_after_a_success() {
        let mut patience = Patience::default();
        assert!(patience.next() <= FIRST);
        let last = (0..20).map(|_| patience.next()).last().unwrap();
        assert!((LONGEST / 2..=LONGEST).contains(&last));
        patience.reset();
        assert!(patience.next() <= FIRST);
    }
}

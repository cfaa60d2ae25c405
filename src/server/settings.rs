//! Every number a server runs by, and which combinations of them can work.
//!
//! Layer 4. Checked once, in `build()`; read-only afterwards.

use std::time::Duration;

use crate::error::{ConfigError, check_range};
use crate::options::DEFAULT_MAX_PAYLOAD_BYTES;

/// The most handlers one server runs at a time.
pub(crate) const MAX_CONCURRENCY: usize = 100_000;

/// The settings of a server. The public way to change them is [`ServerBuilder`](crate::ServerBuilder).
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Idle time after which an entry of a silent owner may be taken over.
    pub(crate) lease: Duration,
    /// How often held entries are renewed.
    pub(crate) renew_every: Duration,
    /// When no server gave a sign for this long, Redis was away and nobody is presumed dead.
    pub(crate) quiet_gap: Duration,
    /// How many handlers run at a time.
    pub(crate) concurrency: usize,
    /// How long a handler may go on after it was told to stop.
    pub(crate) handler_grace: Duration,
    /// How long a stop waits for running handlers before it tells them.
    pub(crate) shutdown_timeout: Duration,
    /// How many processes a task may take down before it is archived as poison.
    pub(crate) max_crashes: u32,
    /// The largest payload and output, in bytes.
    pub(crate) max_payload: usize,
    /// How long one blocking read waits.
    pub(crate) block: Duration,
    /// How often the upkeep of a queue is looked after.
    pub(crate) upkeep_every: Duration,
    /// How long tasks nobody knows are kept for a newer server.
    pub(crate) unknown_grace: Duration,
    /// How long archived tasks are kept.
    pub(crate) archive_keep: Duration,
    /// How many archived tasks are kept.
    pub(crate) archive_max: usize,
    /// After how long without a sign a client's receiver is removed.
    pub(crate) client_dead_after: Duration,
}

impl Settings {
    /// The defaults, for a machine with this many cores.
    pub(crate) const fn for_cores(cores: usize) -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_every: Duration::from_secs(4),
            quiet_gap: Duration::from_secs(6),
            concurrency: cores * 8,
            handler_grace: Duration::from_secs(5),
            shutdown_timeout: Duration::from_secs(25),
            max_crashes: 3,
            max_payload: DEFAULT_MAX_PAYLOAD_BYTES,
            block: Duration::from_secs(2),
            upkeep_every: Duration::from_secs(2),
            unknown_grace: Duration::from_secs(60 * 60),
            archive_keep: Duration::from_secs(90 * 24 * 60 * 60),
            archive_max: 10_000,
            client_dead_after: Duration::from_secs(10 * 60),
        }
    }

    /// Refuses what cannot work, naming the value and the limit.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let day = Duration::from_secs(24 * 60 * 60);
        let ms = Duration::from_millis;
        check_range("concurrency", self.concurrency, 1, MAX_CONCURRENCY)?;
        check_range("max_payload", self.max_payload, 1, 64 * 1024 * 1024)?;
        check_range("archive_max", self.archive_max, 1, 1_000_000)?;
        check_range("max_crashes", self.max_crashes as usize, 1, 100)?;
        check_range("lease", self.lease, ms(500), day)?;
        check_range("renew_every", self.renew_every, ms(50), day)?;
        check_range("quiet_gap", self.quiet_gap, ms(100), day)?;
        check_range("block", self.block, ms(10), Duration::from_secs(30))?;
        check_range(
            "upkeep_every",
            self.upkeep_every,
            ms(50),
            Duration::from_secs(60),
        )?;
        check_range("handler_grace", self.handler_grace, Duration::ZERO, day)?;
        check_range(
            "shutdown_timeout",
            self.shutdown_timeout,
            Duration::ZERO,
            day,
        )?;
        check_range(
            "unknown_grace",
            self.unknown_grace,
            Duration::ZERO,
            365 * day,
        )?;
        check_range("archive_keep", self.archive_keep, ms(1), 3650 * day)?;
        check_range(
            "client_dead_after",
            self.client_dead_after,
            Duration::from_secs(1),
            30 * day,
        )?;
        self.check_lease()
    }

    /// A live owner must have renewed before its lease can end, also right after a quiet gap that
    /// was just too short to be noticed.
    fn check_lease(&self) -> Result<(), ConfigError> {
        let needed = self.quiet_gap + self.renew_every.mul_f64(1.5) + self.slack();
        if needed < self.lease {
            return Ok(());
        }
        Err(ConfigError::new(
            "lease",
            format!("{:?}", self.lease),
            format!(
                "more than {needed:?}: quiet_gap {:?} + 1.5 x renew_every {:?} + {:?}",
                self.quiet_gap,
                self.renew_every,
                self.slack()
            ),
        ))
    }

    /// One second for slow replies; a tenth of the lease where leases are shorter than ten seconds.
    fn slack(&self) -> Duration {
        Duration::from_secs(1).min(self.lease / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_pass_their_own_check() {
        Settings::for_cores(2).check().unwrap();
        Settings::for_cores(1).check().unwrap();
    }

    #[test]
    fn a_lease_that_a_live_owner_could_lose_is_refused_with_both_values() {
        let mut settings = Settings::for_cores(2);
        settings.lease = Duration::from_secs(10);
        settings.renew_every = Duration::from_secs(10);
        let error = settings.check().unwrap_err().to_string();
        assert!(
            error.contains("lease is 10s") && error.contains("renew_every 10s"),
            "{error}"
        );
    }

    #[test]
    fn zero_and_huge_concurrency_are_refused() {
        for concurrency in [0, 10_000_000] {
            let mut settings = Settings::for_cores(2);
            settings.concurrency = concurrency;
            let error = settings.check().unwrap_err().to_string();
            assert!(error.contains(&concurrency.to_string()), "{error}");
        }
    }

    #[test]
    fn a_lease_of_zero_is_refused() {
        let mut settings = Settings::for_cores(2);
        settings.lease = Duration::ZERO;
        assert!(
            settings
                .check()
                .unwrap_err()
                .to_string()
                .contains("lease is 0ns")
        );
    }
}

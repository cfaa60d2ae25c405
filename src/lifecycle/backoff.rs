//! The wait before a retry.
//!
//! Layer 1, called by `decide`.

use std::time::Duration;

use crate::options::{Backoff, MAX_BACKOFF};

/// How long to wait after so many failed attempts, the one that just failed included.
///
/// `jitter` is from 0 to 1; never more than 24 hours, and never an overflow, whatever is given.
pub(crate) fn backoff_delay(backoff: Backoff, failed_attempts: u32, jitter: f64) -> Duration {
    let jitter = if jitter.is_finite() {
        jitter.clamp(0.0, 1.0)
    } else {
        0.0
    };
    let retried = failed_attempts.saturating_sub(1);
    let wait = match backoff {
        Backoff::Curve => curve(retried, jitter),
        Backoff::Fixed(wait) => wait,
        Backoff::Exponential { initial, max } => {
            let ceiling = initial
                .saturating_mul(2_u32.saturating_pow(retried))
                .min(max)
                .min(MAX_BACKOFF);
            // Only the upper half is drawn: a wait near zero would hit a service that is down again.
            ceiling / 2 + (ceiling / 2).mul_f64(jitter)
        }
    };
    wait.min(MAX_BACKOFF)
}

fn curve(retried: u32, jitter: f64) -> Duration {
    let n = u64::from(retried);
    let base = n.saturating_pow(4).saturating_add(15);
    let spread = Duration::from_secs(30 * (n + 1));
    Duration::from_secs(base).min(MAX_BACKOFF) + spread.mul_f64(jitter)
}

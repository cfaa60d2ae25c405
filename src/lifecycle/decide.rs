//! The rules after a run.
//!
//! Layer 1, called by `server` when a run is over and when a task is not to be run at all.

use std::time::Duration;

use super::backoff::backoff_delay;
use crate::envelope::MAX_DELAY;
use crate::id::Millis;
use crate::options::Backoff;
use crate::task::Retry;

/// How a run ended without success, or why there was none. A success is settled and what a shutdown
/// interrupts is released; there is nothing to decide about either.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Run {
    /// The handler's error, and what it says about a retry.
    Failed {
        retry: Retry,
    },
    Panicked,
    TimedOut,
    Undecodable,
    OutputTooLarge,
    /// It took down too many processes.
    Poison,
    Cancelled,
    /// Its deadline passed before or during the run.
    Expired,
}

/// What happens to the task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// It runs again after `delay`, with `attempt` failures counted.
    Retry {
        delay: Duration,
        attempt: u32,
    },
    /// It runs again after `delay`; nothing is counted.
    Snooze {
        delay: Duration,
    },
    Archive,
    Cancel,
    Expire,
    Discard,
}

/// The next step after a run.
///
/// `attempt` counts the failures before this run; `now` is Redis time; `jitter` is from 0 to 1.
pub(crate) fn decide(
    run: &Run,
    attempt: u32,
    max_retries: u32,
    backoff: Backoff,
    deadline: Option<Millis>,
    now: Millis,
    jitter: f64,
) -> Next {
    // What would start at or after the deadline is of no use: it ends now, not after the wait.
    let too_late = |delay: Duration| deadline.is_some_and(|deadline| now.after(delay) >= deadline);
    let failed = |wait: Option<Duration>| {
        if attempt >= max_retries {
            return Next::Archive;
        }
        let attempt = attempt.saturating_add(1);
        let delay = wait.unwrap_or_else(|| backoff_delay(backoff, attempt, jitter));
        let delay = delay.min(MAX_DELAY);
        if too_late(delay) {
            Next::Expire
        } else {
            Next::Retry { delay, attempt }
        }
    };
    match *run {
        Run::Failed {
            retry: Retry::ByPolicy,
        }
        | Run::Panicked
        | Run::TimedOut => failed(None),
        Run::Failed {
            retry: Retry::After(wait),
        } => failed(Some(wait)),
        Run::Failed {
            retry: Retry::Snooze(wait),
        } => {
            let delay = wait.min(MAX_DELAY);
            if too_late(delay) {
                Next::Expire
            } else {
                Next::Snooze { delay }
            }
        }
        Run::Failed {
            retry: Retry::Discard,
        } => Next::Discard,
        Run::Failed {
            retry: Retry::Never,
        }
        | Run::Undecodable
        | Run::OutputTooLarge
        | Run::Poison => Next::Archive,
        Run::Cancelled => Next::Cancel,
        Run::Expired => Next::Expire,
    }
}

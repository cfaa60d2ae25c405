//! How one run learns that it shall stop.
//!
//! Layer 4. Set by the keeper (cancelled, lease lost), the executor (timeout, deadline) and the
//! shutdown; read by the handler through its context and by the executor that waits for it. The
//! first reason stays. One allocation is shared with the rest of the run, and nobody is woken
//! unless somebody waits.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// Why a run was told to stop.
///
/// ```
/// use streamfleet::StopReason;
/// assert_eq!(StopReason::LeaseLost.as_str(), "lease lost");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StopReason {
    /// Somebody cancelled the task.
    Cancelled,
    /// Another server may run this task now: what this run still does is not wanted.
    LeaseLost,
    /// The run took longer than the task's timeout.
    TimedOut,
    /// The task's deadline passed.
    Expired,
    /// The server stops; the task will run again elsewhere.
    Shutdown,
}

impl StopReason {
    /// The reason in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::LeaseLost => "lease lost",
            Self::TimedOut => "timed out",
            Self::Expired => "expired",
            Self::Shutdown => "shutdown",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Cancelled => 1,
            Self::LeaseLost => 2,
            Self::TimedOut => 3,
            Self::Expired => 4,
            Self::Shutdown => 5,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Cancelled,
            2 => Self::LeaseLost,
            3 => Self::TimedOut,
            4 => Self::Expired,
            5 => Self::Shutdown,
            _ => return None,
        })
    }
}

/// The stop signal of one run.
#[derive(Debug, Default)]
pub(crate) struct StopSignal {
    /// 0 while the run may go on, then the code of the first reason.
    reason: AtomicU8,
    /// Wakes whoever waits in `stopped`.
    told: Notify,
}

impl StopSignal {
    /// Tells the run to stop, unless it was told before. Answers whether this was the first time.
    pub(crate) fn stop(&self, reason: StopReason) -> bool {
        let first = self
            .reason
            .compare_exchange(0, reason.code(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if first {
            self.told.notify_waiters();
        }
        first
    }

    /// Why the run was told to stop, if it was.
    pub(crate) fn reason(&self) -> Option<StopReason> {
        StopReason::from_code(self.reason.load(Ordering::Acquire))
    }

    /// Waits until the run is told to stop.
    pub(crate) async fn stopped(&self) -> StopReason {
        loop {
            // Registered before the look, so that a signal between the two is not missed.
            let told = self.told.notified();
            if let Some(reason) = self.reason() {
                return reason;
            }
            told.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_stays_and_wakes_every_waiter() {
        let signal = std::sync::Arc::new(StopSignal::default());
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let signal = std::sync::Arc::clone(&signal);
                tokio::spawn(async move { signal.stopped().await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(signal.stop(StopReason::Cancelled));
        assert!(!signal.stop(StopReason::Shutdown));
        for waiter in waiters {
            assert_eq!(waiter.await.unwrap(), StopReason::Cancelled);
        }
    }
}

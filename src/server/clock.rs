//! What time it is for Redis, without asking it.
//!
//! Layer 4. Every script that answers the time sets this clock; between two answers it goes on with
//! the monotonic clock of this host, so a wrong or jumping wall clock decides nothing. An answer is
//! at most one round trip old, so the estimate is late, never early.

use std::sync::RwLock;
use std::time::Instant;

use crate::id::Millis;

/// The clock of Redis as seen from here.
#[derive(Debug)]
pub(crate) struct RedisClock {
    /// A time that Redis told, and when it arrived. Written by every renew, read by each run.
    told: RwLock<(Millis, Instant)>,
}

impl RedisClock {
    pub(crate) fn new(now: Millis) -> Self {
        Self {
            told: RwLock::new((now, Instant::now())),
        }
    }

    /// Takes over what Redis just told.
    pub(crate) fn set(&self, now: Millis) {
        let mut told = self
            .told
            .write()
            .unwrap_or_else(|broken| broken.into_inner());
        *told = (now, Instant::now());
    }

    /// The time now.
    pub(crate) fn now(&self) -> Millis {
        let told = self
            .told
            .read()
            .unwrap_or_else(|broken| broken.into_inner());
        told.0.after(told.1.elapsed())
    }
}

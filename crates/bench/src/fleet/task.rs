//! The task that is measured, and what its handler does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use streamfleet::{Context, Failure, Task};

use crate::layout::FILLER_BYTES;

/// Numbers start here, so that each is as long as the others when it is written.
const FIRST: u64 = 1 << 40;

/// A task of 100 bytes. Its result is the next number.
#[derive(Serialize, Deserialize, Task, Debug)]
#[task(name = "bench", output = u64)]
pub(crate) struct Bench {
    n: u64,
    s: String,
}

impl Bench {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            n: FIRST + number,
            s: ".".repeat(FILLER_BYTES),
        }
    }

    /// What the handler answers to [`new`](Self::new) of this number.
    pub(crate) const fn expected(number: u64) -> u64 {
        FIRST + number + 1
    }
}

/// What a handler does.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Nothing.
    Noop,
    /// Waits 10 ms.
    Sleep,
    /// Computes for 1 ms.
    Spin,
    /// Nothing, but it notes when it started.
    #[value(skip)]
    Stamp,
}

impl Work {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Noop => "no-op",
            Self::Sleep => "10 ms sleep",
            Self::Spin => "1 ms cpu",
            Self::Stamp => "stamp",
        }
    }

    pub(crate) async fn run(self) {
        match self {
            Self::Noop | Self::Stamp => {}
            Self::Sleep => tokio::time::sleep(Duration::from_millis(10)).await,
            Self::Spin => {
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(1) {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

/// What the handlers did.
#[derive(Debug)]
pub(crate) struct Counter {
    work: Work,
    ran: AtomicU64,
    made: Instant,
    /// When the last handler started, in nanoseconds after `made`. Written by `Work::Stamp` only.
    started_ns: AtomicU64,
}

impl Counter {
    pub(crate) fn new(work: Work) -> Self {
        Self {
            work,
            ran: AtomicU64::new(0),
            made: Instant::now(),
            started_ns: AtomicU64::new(0),
        }
    }

    /// How many handlers ended.
    pub(crate) fn ran(&self) -> u64 {
        self.ran.load(Ordering::Relaxed)
    }

    /// When the last handler started.
    pub(crate) fn started(&self) -> Instant {
        self.made + Duration::from_nanos(self.started_ns.load(Ordering::Acquire))
    }
}

/// The handler.
pub(crate) async fn run(cx: Context<Arc<Counter>>, task: Bench) -> Result<u64, Failure> {
    let counter = cx.state();
    if counter.work == Work::Stamp {
        let since = counter.made.elapsed().as_nanos();
        counter
            .started_ns
            .store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Release);
    }
    counter.work.run().await;
    counter.ran.fetch_add(1, Ordering::Relaxed);
    Ok(task.n + 1)
}

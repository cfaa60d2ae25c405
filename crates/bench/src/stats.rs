//! Latencies as a histogram, so that the tail is right.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Result;

/// Times of many single tasks.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    /// In nanoseconds.
    histogram: Histogram<u64>,
}

/// What is printed of them, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) tasks: u64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Latencies {
    pub(crate) fn new() -> Result<Self> {
        // One nanosecond to ten minutes, three digits.
        Ok(Self {
            histogram: Histogram::new_with_bounds(1, 600_000_000_000, 3)?,
        })
    }

    pub(crate) fn add(&mut self, time: Duration) {
        self.histogram
            .saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Takes in others.
    pub(crate) fn merge(&mut self, others: &Self) -> Result<()> {
        Ok(self.histogram.add(&others.histogram)?)
    }

    pub(crate) fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.histogram.value_at_quantile(quantile) as f64 / 1e6;
        Percentiles {
            tasks: self.histogram.len(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: self.histogram.max() as f64 / 1e6,
        }
    }
}

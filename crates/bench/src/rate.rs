//! What a run of some seconds is reduced to.

use serde::Serialize;

/// Tasks over time, and what they cost the server.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub(crate) struct Rate {
    pub(crate) tasks: u64,
    pub(crate) seconds: f64,
    /// Processor time of the server.
    pub(crate) server_seconds: f64,
    /// Processor time of this process: of the generator or of the library with its handlers.
    pub(crate) own_seconds: f64,
    /// Commands the server received, for each task; calls inside scripts are not counted.
    pub(crate) commands: f64,
}

impl Rate {
    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        let received = |rate: Self| rate.commands * rate.tasks as f64;
        let tasks = self.tasks + other.tasks;
        Self {
            tasks,
            seconds: self.seconds + other.seconds,
            server_seconds: self.server_seconds + other.server_seconds,
            own_seconds: self.own_seconds + other.own_seconds,
            commands: (received(self) + received(other)) / tasks as f64,
        }
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.tasks as f64 / self.seconds
    }

    /// Microseconds of the server for one task.
    pub(crate) fn server_us(&self) -> f64 {
        self.server_seconds * 1e6 / self.tasks as f64
    }

    /// Microseconds of this process for one task.
    pub(crate) fn own_us(&self) -> f64 {
        self.own_seconds * 1e6 / self.tasks as f64
    }

    /// The share of its core that the server used.
    pub(crate) fn busy_share(&self) -> f64 {
        self.server_seconds / self.seconds
    }
}

/// The middle of some numbers; not a number without any.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The distance between the ends of some numbers, as a share of their median.
pub(crate) fn spread(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (most - least) / median(values.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rates_together_are_their_tasks_over_their_times() {
        let rate = |tasks, commands| Rate {
            tasks,
            seconds: 2.0,
            server_seconds: 1.0,
            own_seconds: 0.5,
            commands,
        };
        let both = Rate::default().plus(rate(100, 0.1)).plus(rate(300, 0.5));
        assert!((both.per_second() - 100.0).abs() < 1e-9);
        assert!((both.server_us() - 5_000.0).abs() < 1e-9);
        assert!((both.commands - 0.4).abs() < 1e-9);
    }

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        assert!((median([4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-9);
        assert!((median([9.0, 1.0, 3.0]) - 3.0).abs() < 1e-9);
        assert!((spread(&[9.0, 10.0, 11.0]) - 0.2).abs() < 1e-9);
    }
}

//! In which order the queues are asked: weighted or strict, as in asynq.
//!
//! Layer 4, pure: randomness is passed in. Called by the reader before each round of reads.

/// How several queues share a server.
///
/// ```
/// use streamfleet::Order;
/// assert_eq!(Order::default(), Order::Weighted);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Order {
    /// A queue of weight 6 is asked first six times as often as one of weight 1; none starves.
    #[default]
    Weighted,
    /// A queue is only asked when all of higher weight are empty.
    Strict,
}

/// The order of one round, as positions in `weights`. `random` gives a number in `[0, 1)`.
pub(crate) fn round(order: Order, weights: &[u32], mut random: impl FnMut() -> f64) -> Vec<usize> {
    let mut queues: Vec<usize> = (0..weights.len()).collect();
    match order {
        Order::Strict => queues.sort_by_key(|queue| std::cmp::Reverse(weights[*queue])),
        Order::Weighted => {
            // Sorting by `u^(1/w)` is a weighted draw without replacement (Efraimidis and Spirakis, 2006).
            let keys: Vec<f64> = weights
                .iter()
                .map(|weight| random().powf(1.0 / f64::from((*weight).max(1))))
                .collect();
            queues.sort_by(|a, b| keys[*b].total_cmp(&keys[*a]));
        }
    }
    queues
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_follows_the_weights() {
        assert_eq!(round(Order::Strict, &[1, 6, 3], || 0.5), [1, 2, 0]);
    }

    #[test]
    fn weighted_asks_first_in_proportion() {
        let mut random = fastrand::Rng::with_seed(7);
        let first = (0..7_000)
            .filter(|_| round(Order::Weighted, &[6, 1], || random.f64())[0] == 0)
            .count();
        assert!(
            (5_700..6_300).contains(&first),
            "asked first {first} of 7000 times"
        );
    }

    #[test]
    fn every_queue_is_in_every_round() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..100 {
            let mut queues = round(Order::Weighted, &[1, 2, 0, 9], || random.f64());
            queues.sort_unstable();
            assert_eq!(queues, [0, 1, 2, 3]);
        }
    }
}

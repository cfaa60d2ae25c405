//! The rules after a run, as tables and as properties.

use std::time::Duration;

use proptest::option;
use proptest::prelude::*;

use super::backoff::backoff_delay;
use super::{Next, Run, decide};
use crate::envelope::MAX_DELAY;
use crate::id::Millis;
use crate::options::{Backoff, DEFAULT_MAX_RETRIES, MAX_BACKOFF};
use crate::task::Retry;

const NOW: Millis = Millis(1_700_000_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn failed(retry: Retry) -> Run {
    Run::Failed { retry }
}

/// A failure by policy with a wait of one second.
fn next(run: Run, attempt: u32, max_retries: u32, deadline: Option<u64>) -> Next {
    let deadline = deadline.map(|ms| Millis(NOW.0 + ms));
    decide(
        &run,
        attempt,
        max_retries,
        Backoff::Fixed(SECOND),
        deadline,
        NOW,
        0.5,
    )
}

#[test]
fn each_ending_without_a_retry_has_its_step() {
    for (run, step) in [
        (failed(Retry::Never), Next::Archive),
        (failed(Retry::Discard), Next::Discard),
        (Run::Undecodable, Next::Archive),
        (Run::OutputTooLarge, Next::Archive),
        (Run::Poison, Next::Archive),
        (Run::Cancelled, Next::Cancel),
        (Run::Expired, Next::Expire),
    ] {
        // Neither retries left nor the deadline change it.
        for (max_retries, deadline) in [(0, None), (25, None), (25, Some(0))] {
            assert_eq!(next(run, 0, max_retries, deadline), step, "{run:?}");
        }
    }
}

#[test]
fn a_task_is_tried_once_more_than_it_may_be_retried() {
    for run in [
        failed(Retry::ByPolicy),
        failed(Retry::After(SECOND)),
        Run::Panicked,
        Run::TimedOut,
    ] {
        for max_retries in [0, 1, 25, 1_000] {
            let (mut attempt, mut runs) = (0, 1);
            while let Next::Retry {
                attempt: failures,
                delay,
            } = next(run, attempt, max_retries, None)
            {
                assert_eq!((failures, delay), (attempt + 1, SECOND));
                attempt = failures;
                runs += 1;
            }
            assert_eq!(runs, max_retries + 1);
            assert_eq!(next(run, attempt, max_retries, None), Next::Archive);
        }
    }
}

#[test]
fn more_failures_than_retries_are_archived() {
    // `update` may lower the limit below what was counted.
    assert_eq!(next(Run::Panicked, 9, 3, None), Next::Archive);
    assert_eq!(next(Run::Panicked, u32::MAX, u32::MAX, None), Next::Archive);
}

#[test]
fn a_retry_at_the_deadline_expires_and_one_before_it_does_not() {
    for run in [
        Run::Panicked,
        failed(Retry::After(SECOND)),
        failed(Retry::Snooze(SECOND)),
    ] {
        assert_eq!(next(run, 0, 25, Some(1_000)), Next::Expire);
        assert_ne!(next(run, 0, 25, Some(1_001)), Next::Expire);
    }
    // The last failure is worth more than the deadline: it is kept to be looked at.
    assert_eq!(next(Run::Panicked, 25, 25, Some(0)), Next::Archive);
}

#[test]
fn a_snooze_counts_nothing_and_needs_no_retries() {
    let snooze = Next::Snooze { delay: SECOND };
    assert_eq!(next(failed(Retry::Snooze(SECOND)), 0, 0, None), snooze);
    assert_eq!(next(failed(Retry::Snooze(SECOND)), 25, 25, None), snooze);
}

#[test]
fn waits_that_handlers_ask_for_are_bounded() {
    let longest = next(failed(Retry::After(Duration::MAX)), 0, 1, None);
    assert_eq!(
        longest,
        Next::Retry {
            delay: MAX_DELAY,
            attempt: 1
        }
    );
    let longest = next(failed(Retry::Snooze(Duration::MAX)), 0, 1, None);
    assert_eq!(longest, Next::Snooze { delay: MAX_DELAY });
}

#[test]
fn the_curve_starts_at_fifteen_seconds_and_ends_at_a_day() {
    let curve = |failures, jitter| backoff_delay(Backoff::Curve, failures, jitter).as_secs_f64();
    assert_eq!([curve(1, 0.0), curve(1, 0.5)], [15.0, 30.0]);
    assert_eq!([curve(3, 0.0), curve(3, 0.5)], [31.0, 76.0]);
    assert_eq!(
        [curve(25, 0.0), curve(1_000, 1.0), curve(u32::MAX, 0.3)],
        [86_400.0; 3]
    );
    let days: f64 = (1..=DEFAULT_MAX_RETRIES)
        .map(|n| curve(n, 0.5))
        .sum::<f64>()
        / 86_400.0;
    assert!((10.0..12.0).contains(&days), "all retries take {days} days");
}

#[test]
fn an_exponential_wait_doubles_and_is_drawn_from_the_upper_half() {
    let doubling = Backoff::Exponential {
        initial: SECOND,
        max: SECOND * 6,
    };
    let lowest = [1, 2, 3, 4, u32::MAX].map(|n| backoff_delay(doubling, n, 0.0).as_millis());
    assert_eq!(lowest, [500, 1_000, 2_000, 3_000, 3_000]);
    let middle = [1, 2, 3, 4].map(|n| backoff_delay(doubling, n, 0.5).as_millis());
    assert_eq!(middle, [750, 1_500, 3_000, 4_500]);
}

#[test]
fn a_jitter_that_is_no_number_is_none() {
    for jitter in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
        assert_eq!(backoff_delay(Backoff::Curve, 1, jitter), SECOND * 15);
    }
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        any::<u64>().prop_map(Duration::from_nanos),
        any::<u64>().prop_map(Duration::from_millis),
        Just(Duration::ZERO),
        Just(Duration::MAX),
    ]
}

fn backoff() -> impl Strategy<Value = Backoff> {
    prop_oneof![
        Just(Backoff::Curve),
        duration().prop_map(Backoff::Fixed),
        (duration(), duration()).prop_map(|(initial, max)| Backoff::Exponential { initial, max }),
    ]
}

fn run() -> impl Strategy<Value = Run> {
    prop_oneof![
        Just(failed(Retry::ByPolicy)),
        duration().prop_map(|wait| failed(Retry::After(wait))),
        duration().prop_map(|wait| failed(Retry::Snooze(wait))),
        Just(failed(Retry::Never)),
        Just(failed(Retry::Discard)),
        Just(Run::Panicked),
        Just(Run::TimedOut),
        Just(Run::Undecodable),
        Just(Run::OutputTooLarge),
        Just(Run::Poison),
        Just(Run::Cancelled),
        Just(Run::Expired),
    ]
}

proptest! {
    #[test]
    fn every_run_has_a_step_within_the_limits(
        run in run(),
        attempt: u32,
        max_retries: u32,
        backoff in backoff(),
        deadline in option::of(any::<u64>().prop_map(Millis)),
        now in any::<u64>().prop_map(Millis),
        jitter: f64,
    ) {
        let step = decide(&run, attempt, max_retries, backoff, deadline, now, jitter);
        let again = decide(&run, attempt, max_retries, backoff, deadline, now, jitter);
        prop_assert_eq!(step, again, "the same run has the same step");
        match step {
            Next::Retry { delay, attempt: counted } => {
                prop_assert_eq!(counted, attempt + 1);
                prop_assert!(counted <= max_retries);
                let by_policy = !matches!(run, Run::Failed { retry: Retry::After(_) });
                let longest = if by_policy { MAX_BACKOFF } else { MAX_DELAY };
                prop_assert!(delay <= longest);
                prop_assert!(deadline.is_none_or(|deadline| now.after(delay) < deadline));
            }
            Next::Snooze { delay } => {
                prop_assert!(delay <= MAX_DELAY);
                prop_assert!(deadline.is_none_or(|deadline| now.after(delay) < deadline));
            }
            Next::Expire => prop_assert!(run == Run::Expired || deadline.is_some()),
            Next::Cancel => prop_assert_eq!(run, Run::Cancelled),
            Next::Discard => prop_assert_eq!(run, failed(Retry::Discard)),
            Next::Archive => prop_assert!(!matches!(
                run,
                Run::Cancelled | Run::Expired
            )),
        }
    }

    #[test]
    fn attempts_only_rise_and_the_story_ends(
        runs in prop::collection::vec(run(), 1..200),
        max_retries in 0..20_u32,
        jitter in 0.0..1.0_f64,
    ) {
        let (mut attempt, mut now) = (0, NOW);
        for run in &runs {
            match decide(run, attempt, max_retries, Backoff::Curve, None, now, jitter) {
                Next::Retry { delay, attempt: counted } => {
                    prop_assert_eq!(counted, attempt + 1);
                    attempt = counted;
                    now = now.after(delay);
                }
                Next::Snooze { delay } => now = now.after(delay),
                _ => break,
            }
            prop_assert!(attempt <= max_retries);
        }
    }

    #[test]
    fn a_backoff_is_never_over_its_cap(backoff in backoff(), failures: u32, jitter: f64) {
        let delay = backoff_delay(backoff, failures, jitter);
        prop_assert!(delay <= MAX_BACKOFF);
        match backoff {
            Backoff::Fixed(wait) => prop_assert_eq!(delay, wait.min(MAX_BACKOFF)),
            Backoff::Exponential { max, .. } => prop_assert!(delay <= max),
            Backoff::Curve => prop_assert!(delay >= SECOND * 15),
        }
    }
}

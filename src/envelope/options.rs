//! What an enqueue may ask for: the limits of every option, and options turned into parts.
//!
//! Layer 1. Called by `client` before anything is sent; `parts` holds what arrives from other
//! producers to the same limits. When a task starts is not a part of it: see [`wall_millis`].

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::parts::Parts;
use crate::error::{ConfigError, shown};
use crate::id::{Millis, duration_ms};
use crate::options::{Backoff, MAX_BACKOFF, StartAt, TaskOptions};

/// The most retries a task may have.
pub(crate) const MAX_RETRIES: u32 = 1_000;
/// The longest time one run may have.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(30 * DAY);
/// The longest wait before a task starts: ten years.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(3_653 * DAY);
/// The most bytes of all header names and values together.
pub(crate) const MAX_HEADER_BYTES: usize = 8 * 1024;
/// The latest time in an envelope, the end of the year 9999: scripts hold times as doubles, which
/// are exact up to 2^53.
pub(crate) const MAX_TIME: Millis = Millis(253_402_300_799_999);

const DAY: u64 = 24 * 60 * 60;

/// Checks the options and makes the optional parts of the envelope.
///
/// `now_wall` is the clock of this host. It only bounds how far ahead a start may be; Redis
/// decides when it is.
pub(crate) fn resolve(options: &TaskOptions, now_wall: SystemTime) -> Result<Parts, ConfigError> {
    check_start(options.start.unwrap_or_default(), now_wall)?;
    check_headers(&options.headers)?;
    Ok(Parts {
        max_retries: options.max_retries.map(check_retries).transpose()?,
        timeout: options.timeout.map(check_timeout).transpose()?,
        deadline: options.deadline.map(check_deadline).transpose()?,
        backoff: options.backoff.map(check_backoff).transpose()?,
        headers: options.headers.clone(),
        ..Parts::default()
    })
}

/// A time of day as milliseconds since 1970, rounded up so that nothing is early; none outside of
/// 1970 to 9999.
pub(crate) fn wall_millis(time: SystemTime) -> Option<Millis> {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Millis(duration_ms(since_1970))).filter(|millis| *millis <= MAX_TIME)
}

pub(super) fn check_retries(retries: u32) -> Result<u32, ConfigError> {
    if retries > MAX_RETRIES {
        let limit = format!("0 to {MAX_RETRIES}");
        return Err(ConfigError::new("max_retries", retries.to_string(), limit));
    }
    Ok(retries)
}

pub(super) fn check_timeout(timeout: Duration) -> Result<Duration, ConfigError> {
    if !(Duration::from_millis(1)..=MAX_TIMEOUT).contains(&timeout) {
        return Err(ConfigError::new(
            "timeout",
            format!("{timeout:?}"),
            "1ms to 30 days",
        ));
    }
    Ok(whole_ms(timeout))
}

/// The back-off in whole milliseconds, as it is stored.
pub(super) fn check_backoff(backoff: Backoff) -> Result<Backoff, ConfigError> {
    match backoff {
        Backoff::Curve => Ok(Backoff::Curve),
        Backoff::Fixed(wait) if wait <= MAX_BACKOFF => Ok(Backoff::Fixed(whole_ms(wait))),
        Backoff::Fixed(wait) => Err(ConfigError::new(
            "backoff",
            format!("{wait:?}"),
            "0 to 24 hours",
        )),
        Backoff::Exponential { initial, max } => {
            let least = Duration::from_millis(1);
            if initial < least || max < initial || max > MAX_BACKOFF {
                return Err(ConfigError::new(
                    "backoff",
                    format!("{initial:?} doubling up to {max:?}"),
                    "1ms or more, doubling up to as much or more, and to at most 24 hours",
                ));
            }
            Ok(Backoff::Exponential {
                initial: whole_ms(initial),
                max: whole_ms(max),
            })
        }
    }
}

pub(super) fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    let mut bytes = 0_usize;
    for (name, value) in headers {
        check_header(name, value)?;
        bytes = bytes.saturating_add(name.len()).saturating_add(value.len());
    }
    check_header_bytes(bytes)
}

pub(super) fn check_header(name: &str, value: &str) -> Result<(), ConfigError> {
    if name.is_empty() || name.chars().chain(value.chars()).any(char::is_control) {
        return Err(ConfigError::new(
            "header",
            format!("\"{}: {}\"", shown(name), shown(value)),
            "a name and a value without control characters",
        ));
    }
    Ok(())
}

pub(super) fn check_header_bytes(bytes: usize) -> Result<(), ConfigError> {
    if bytes > MAX_HEADER_BYTES {
        return Err(ConfigError::new(
            "size of all headers",
            format!("{bytes} bytes"),
            format!("at most {MAX_HEADER_BYTES} bytes"),
        ));
    }
    Ok(())
}

fn check_deadline(deadline: SystemTime) -> Result<Millis, ConfigError> {
    wall_millis(deadline).ok_or_else(|| {
        ConfigError::new("deadline", from_1970(deadline), "a time from 1970 to 9999")
    })
}

fn check_start(start: StartAt, now_wall: SystemTime) -> Result<(), ConfigError> {
    let (setting, value, delay) = match start {
        StartAt::Now => return Ok(()),
        StartAt::After(delay) => ("delay", format!("{delay:?}"), delay),
        // A time in the past is now.
        StartAt::At(time) => {
            let delay = time.duration_since(now_wall).unwrap_or_default();
            ("at", from_1970(time), delay)
        }
    };
    if delay > MAX_DELAY {
        return Err(ConfigError::new(setting, value, "at most 10 years ahead"));
    }
    Ok(())
}

fn from_1970(time: SystemTime) -> String {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => format!("{since:?} after 1970"),
        Err(before) => format!("{:?} before 1970", before.duration()),
    }
}

fn whole_ms(duration: Duration) -> Duration {
    Duration::from_millis(duration_ms(duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn error(options: &TaskOptions) -> String {
        resolve(options, NOW).unwrap_err().to_string()
    }

    #[test]
    fn nothing_asked_for_is_no_part() {
        assert_eq!(
            resolve(&TaskOptions::default(), NOW).unwrap(),
            Parts::default()
        );
    }

    #[test]
    fn everything_asked_for_is_taken_over() {
        let options = TaskOptions::default()
            .max_retries(MAX_RETRIES)
            .timeout(MAX_TIMEOUT)
            .delay(MAX_DELAY)
            .deadline(NOW + Duration::from_micros(1_500))
            .backoff(Backoff::Fixed(MAX_BACKOFF))
            .header("traceparent", "00-x");
        let parts = resolve(&options, NOW).unwrap();
        assert_eq!(parts.max_retries, Some(1_000));
        assert_eq!(parts.timeout, Some(MAX_TIMEOUT));
        assert_eq!(parts.deadline, Some(Millis(2)), "rounded up");
        assert_eq!(parts.backoff, Some(Backoff::Fixed(MAX_BACKOFF)));
        assert_eq!(parts.headers["traceparent"], "00-x");
    }

    #[test]
    fn parts_of_a_millisecond_are_rounded_up() {
        let odd = Duration::from_nanos(1_000_001);
        let options = TaskOptions::default()
            .timeout(odd)
            .backoff(Backoff::Exponential {
                initial: odd,
                max: odd,
            });
        let parts = resolve(&options, NOW).unwrap();
        let two = Duration::from_millis(2);
        assert_eq!(parts.timeout, Some(two));
        assert_eq!(
            parts.backoff,
            Some(Backoff::Exponential {
                initial: two,
                max: two
            })
        );
    }

    #[test]
    fn errors_name_the_value_and_the_limit() {
        let base = TaskOptions::default;
        let day = Duration::from_secs(DAY);
        for (options, text) in [
            (
                base().max_retries(1_001),
                "max_retries is 1001, but must be 0 to 1000",
            ),
            (
                base().timeout(Duration::ZERO),
                "timeout is 0ns, but must be 1ms to 30 days",
            ),
            (
                base().timeout(day * 31),
                "timeout is 2678400s, but must be 1ms to 30 days",
            ),
            (
                base().delay(day * 4_000),
                "delay is 345600000s, but must be at most 10 years ahead",
            ),
            (
                base().delay(Duration::MAX),
                "but must be at most 10 years ahead",
            ),
            (
                base().at(NOW + day * 4_000),
                "at is 345600000s after 1970, but must be at most",
            ),
            (
                base().deadline(NOW - Duration::from_secs(5)),
                "deadline is 5s before 1970, but must be a time from 1970 to 9999",
            ),
            (
                base().deadline(NOW + day * 4_000_000),
                "but must be a time from 1970 to 9999",
            ),
            (
                base().backoff(Backoff::Fixed(day * 2)),
                "backoff is 172800s, but must be 0 to 24 hours",
            ),
            (
                base().header("a", "x\r\ny"),
                r#"header is "a: x\r\ny", but must be a name and a value"#,
            ),
            (base().header("", "x"), "without control characters"),
            (
                base().header("a", "x".repeat(8_192)),
                "8193 bytes, but must be at most 8192 bytes",
            ),
        ] {
            let error = error(&options);
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn backoffs_that_cannot_double_are_refused() {
        let [zero, one, two] = [0, 1, 2].map(Duration::from_secs);
        for (initial, max) in [
            (zero, one),
            (two, one),
            (one, MAX_BACKOFF + one),
            (one, Duration::MAX),
        ] {
            let options = TaskOptions::default().backoff(Backoff::Exponential { initial, max });
            assert!(
                error(&options).starts_with("backoff is "),
                "{initial:?} {max:?}"
            );
        }
    }

    #[test]
    fn a_start_in_the_past_is_now() {
        let options = TaskOptions::default().at(NOW - Duration::from_secs(9));
        assert!(resolve(&options, NOW).is_ok());
    }

    #[test]
    fn wall_times_before_1970_and_after_9999_are_none() {
        assert_eq!(wall_millis(NOW), Some(Millis(0)));
        assert_eq!(wall_millis(NOW - Duration::from_nanos(1)), None);
        let last = Duration::from_millis(MAX_TIME.0);
        assert_eq!(wall_millis(NOW + last), Some(MAX_TIME));
        assert_eq!(wall_millis(NOW + last + Duration::from_nanos(1)), None);
    }
}

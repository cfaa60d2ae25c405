//! The values of `#[task(...)]` that are checked while compiling: names and durations.
//!
//! Pure functions of text, called by `args`. The rule for names is that of `streamfleet::QueueName`,
//! the other limits are those of streamfleet's `envelope::options`, which checks them again at run
//! time; they must stay equal.

/// The longest name, as in `streamfleet::MAX_NAME_BYTES`.
const MAX_NAME_BYTES: usize = 128;

/// The most retries of a task.
pub(crate) const MAX_RETRIES: u32 = 1_000;

const DAY: u64 = 24 * 60 * 60 * 1000;

/// What a duration may be.
pub(crate) struct Limits {
    least_ms: u64,
    most_ms: u64,
    text: &'static str,
}

/// How long one run may take.
pub(crate) const TIMEOUT: Limits = Limits {
    least_ms: 1,
    most_ms: 30 * DAY,
    text: "1ms to 30d",
};

/// How long after the enqueue a task may start.
pub(crate) const DELAY: Limits = Limits {
    least_ms: 0,
    most_ms: 3_653 * DAY,
    text: "0ms to 3653d",
};

/// A wait before a retry that does not grow.
pub(crate) const FIXED_WAIT: Limits = Limits {
    least_ms: 0,
    most_ms: DAY,
    text: "0ms to 24h",
};

/// A wait before a retry that doubles.
pub(crate) const DOUBLING_WAIT: Limits = Limits {
    least_ms: 1,
    most_ms: DAY,
    text: "1ms to 24h",
};

/// What is wrong with a name, if anything.
pub(crate) fn name(kind: &str, name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("{kind} is empty"));
    }
    if let Some(wrong) = name.chars().find(|c| !is_name_char(*c)) {
        return Err(format!(
            "{kind} \"{}\" holds {wrong:?}, but may hold only A-Z a-z 0-9 . _ -",
            name.escape_debug()
        ));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(format!(
            "{kind} has {} bytes, the limit is {MAX_NAME_BYTES}",
            name.len()
        ));
    }
    Ok(())
}

const fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// The milliseconds of a duration such as `30s`.
pub(crate) fn duration_ms(text: &str, limits: &Limits) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => DAY,
        _ => 0,
    };
    if number.is_empty() || factor == 0 {
        return Err(format!(
            "\"{}\" is not a duration: write a whole number and one unit of ms, s, m, h, d, \
             such as \"30s\"",
            text.escape_debug()
        ));
    }
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .filter(|millis| (limits.least_ms..=limits.most_ms).contains(millis))
        .ok_or_else(|| format!("duration \"{text}\" is out of its limits, {}", limits.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_1_to_128_of_the_alphabet() {
        assert_eq!(name("name", "A-z.0_9"), Ok(()));
        assert_eq!(name("name", &"x".repeat(128)), Ok(()));
        for wrong in ["", "a b", "a:b", "{a}", "é", "a\n", &"x".repeat(129)] {
            assert!(name("name", wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        assert_eq!(duration_ms("250ms", &DELAY), Ok(250));
        assert_eq!(duration_ms("30s", &DELAY), Ok(30_000));
        assert_eq!(duration_ms("5m", &DELAY), Ok(300_000));
        assert_eq!(duration_ms("1h", &DELAY), Ok(3_600_000));
        assert_eq!(duration_ms("365d", &DELAY), Ok(365 * DAY));
        for wrong in [
            "",
            "30",
            "s",
            "1.5s",
            "-1s",
            "1 s",
            "1s ",
            "1S",
            "1h30m",
            "1µs",
            "3654d",
            "18446744073709551616ms",
            "18446744073709551615d",
        ] {
            assert!(duration_ms(wrong, &DELAY).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn each_kind_of_duration_has_its_limits() {
        assert!(duration_ms("0s", &TIMEOUT).is_err());
        assert!(duration_ms("30d", &TIMEOUT).is_ok());
        assert!(duration_ms("31d", &TIMEOUT).is_err());
        assert!(duration_ms("0s", &FIXED_WAIT).is_ok());
        assert!(duration_ms("0s", &DOUBLING_WAIT).is_err());
        assert!(duration_ms("25h", &DOUBLING_WAIT).is_err());
    }
}

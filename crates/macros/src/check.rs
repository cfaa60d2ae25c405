//! The values of `#[task(...)]` that are checked while compiling: names and durations.
//!
//! Pure functions of text, called by `args`. The rule for names is that of `streamfleet::QueueName`
//! and must stay equal to it; a test of streamfleet compares the two.

/// The longest name, as in `streamfleet::MAX_NAME_BYTES`.
const MAX_NAME_BYTES: usize = 128;

/// The longest duration, a year: more is a slip of the unit.
const MAX_MILLIS: u64 = 365 * 24 * 60 * 60 * 1000;

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
pub(crate) fn duration_ms(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
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
        .filter(|millis| *millis <= MAX_MILLIS)
        .ok_or_else(|| format!("duration \"{text}\" is longer than the limit of 365d"))
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
        assert_eq!(duration_ms("250ms"), Ok(250));
        assert_eq!(duration_ms("30s"), Ok(30_000));
        assert_eq!(duration_ms("5m"), Ok(300_000));
        assert_eq!(duration_ms("1h"), Ok(3_600_000));
        assert_eq!(duration_ms("365d"), Ok(MAX_MILLIS));
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
            "366d",
            "18446744073709551616ms",
            "18446744073709551615d",
        ] {
            assert!(duration_ms(wrong).is_err(), "{wrong:?}");
        }
    }
}

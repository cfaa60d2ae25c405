//! Outcomes as the task's own types.
//!
//! Layer 4. Runs where a result is awaited, not in the receiver loop: decoding costs whoever wants
//! the value.

use super::waiter::{Outcome, Waiter};
use crate::envelope::{Ending, decode_payload, encode_payload};
use crate::error::ResultError;
use crate::options::Codec;
use crate::task::{Failure, Task};

/// What the result of a task is.
pub(super) fn typed<T: Task>(
    waiter: &Waiter,
    outcome: &Outcome,
) -> Result<T::Output, ResultError<T::Error>> {
    let ending = match outcome {
        Outcome::Ended(ending) => ending,
        Outcome::Archived { reason, text } => return Err(archived::<T>(waiter, reason, text)),
        Outcome::Lost => return Err(ResultError::Lost),
        Outcome::Closed => return Err(ResultError::Closed),
    };
    Err(match ending {
        Ending::Succeeded { codec, output } => {
            return decode_payload(*codec, output).map_err(ResultError::Decode);
        }
        Ending::Failed { codec, error, text } => match decode_payload(*codec, error) {
            Ok(error) => ResultError::Failed(error),
            Err(why) => ResultError::Decode(format!("{why}; the task failed: {text}")),
        },
        Ending::Panicked(text) => ResultError::Panicked(text.clone()),
        Ending::TimedOut(timeout) => ResultError::TimedOut(*timeout),
        Ending::Poison { crashes } => ResultError::Poison { crashes: *crashes },
        Ending::NoHandler(text) => ResultError::NoHandler(text.clone()),
        Ending::Undecodable(text) => ResultError::Undecodable(text.clone()),
        Ending::OutputTooLarge { bytes, limit } => ResultError::OutputTooLarge {
            bytes: *bytes,
            limit: *limit,
        },
        Ending::Archived => ResultError::Archived,
        Ending::Cancelled => ResultError::Cancelled,
        Ending::Expired => ResultError::Expired,
        Ending::Discarded(text) => ResultError::Discarded(text.clone()),
        Ending::Deleted => ResultError::Deleted,
    })
}

/// The outcome that the record of an archived task tells: a word and a text, no values.
fn archived<T: Task>(waiter: &Waiter, reason: &str, text: &str) -> ResultError<T::Error> {
    let text = text.to_owned();
    match reason {
        "panicked" => ResultError::Panicked(text),
        "timed_out" => ResultError::TimedOut(waiter.timeout),
        "poison" => ResultError::Poison {
            crashes: first_number(&text),
        },
        "no_handler" => ResultError::NoHandler(text),
        "undecodable" => ResultError::Undecodable(text),
        "operator" | "archived" => ResultError::Archived,
        // A [`Failure`] can be made from a text; an error type of the user's cannot.
        "failed" => encode_payload(Codec::MessagePack, &Failure::new(text.as_str()))
            .and_then(|bytes| decode_payload(Codec::MessagePack, &bytes))
            .map_or_else(|_| value_lost(&text), ResultError::Failed),
        _ => value_lost(&text),
    }
}

fn value_lost<E>(text: &str) -> ResultError<E> {
    ResultError::Decode(format!(
        "the notice was lost; the task was archived: {text}"
    ))
}

/// The first number in a text for people, such as the crashes in that of a poison task.
fn first_number(text: &str) -> u32 {
    text.split(|character: char| !character.is_ascii_digit())
        .find_map(|digits| digits.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Square(u64);
    impl Task for Square {
        const NAME: &'static str = "square";
        type Output = u64;
        type Error = Failure;
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Code(u32);
    impl std::fmt::Display for Code {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "code {}", self.0)
        }
    }
    impl crate::TaskError for Code {}
    #[derive(Serialize, Deserialize)]
    struct Coded;
    impl Task for Coded {
        const NAME: &'static str = "coded";
        type Output = ();
        type Error = Code;
    }

    fn waiter() -> std::sync::Arc<Waiter> {
        Waiter::for_test(Duration::from_secs(7))
    }

    fn record(reason: &str, text: &str) -> Outcome {
        Outcome::Archived {
            reason: reason.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn an_output_of_another_type_is_a_decode_error() {
        let output = encode_payload(Codec::MessagePack, &"text").unwrap();
        let outcome = Outcome::Ended(Ending::Succeeded {
            codec: Codec::MessagePack,
            output,
        });
        assert!(matches!(
            typed::<Square>(&waiter(), &outcome),
            Err(ResultError::Decode(_))
        ));
    }

    #[test]
    fn malformed_output_does_not_panic() {
        let output = Bytes::from_static(&[0x91; 700]);
        let outcome = Outcome::Ended(Ending::Succeeded {
            codec: Codec::MessagePack,
            output,
        });
        assert!(matches!(
            typed::<Square>(&waiter(), &outcome),
            Err(ResultError::Decode(_))
        ));
    }

    #[test]
    fn the_record_of_a_failed_task_gives_a_failure_with_its_text() {
        let error = typed::<Square>(&waiter(), &record("failed", "no route")).unwrap_err();
        assert!(matches!(error, ResultError::Failed(failure) if failure.message() == "no route"));
    }

    #[test]
    fn the_record_of_a_task_with_its_own_error_type_gives_the_text() {
        let error = typed::<Coded>(&waiter(), &record("failed", "code 7")).unwrap_err();
        assert!(matches!(error, ResultError::Decode(text) if text.contains("code 7")));
    }

    #[test]
    fn the_record_of_a_task_that_ran_too_long_gives_the_timeout_it_was_enqueued_with() {
        let error = typed::<Square>(&waiter(), &record("timed_out", "")).unwrap_err();
        assert!(matches!(error, ResultError::TimedOut(time) if time == Duration::from_secs(7)));
    }
}

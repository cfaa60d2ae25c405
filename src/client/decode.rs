//! Outcomes as the task's own types.
//!
//! Layer 4. Runs where a result is awaited, not in the receiver loop: decoding costs whoever wants
//! the value.

use super::waiter::{Outcome, Waiter};
use crate::envelope::{Ending, decode_payload, encode_payload};
use crate::error::ResultError;
use crate::options::Codec;
use crate::store::FoundAt;
use crate::task::{Failure, Task};

/// What the result of a task is.
pub(super) fn typed<T: Task>(outcome: &Outcome) -> Result<T::Output, ResultError<T::Error>> {
    let ending = match outcome {
        Outcome::Ended(ending) => ending,
        Outcome::FailedText(text) => return Err(failed_text::<T>(text)),
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

/// The record keeps the text of an error, not its value. [`Failure`] can be made from a text.
fn failed_text<T: Task>(text: &str) -> ResultError<T::Error> {
    encode_payload(Codec::MessagePack, &Failure::new(text))
        .and_then(|bytes| decode_payload(Codec::MessagePack, &bytes))
        .map_or_else(
            |_| ResultError::Decode(format!("the error's value was lost; the task failed: {text}")),
            ResultError::Failed,
        )
}

/// The outcome that the record of an archived task tells.
pub(super) fn archived(waiter: &Waiter, at: FoundAt) -> Outcome {
    let error = at.error.unwrap_or_default();
    Outcome::Ended(match at.reason.as_deref().unwrap_or_default() {
        "panicked" => Ending::Panicked(error),
        "timed_out" => Ending::TimedOut(waiter.timeout),
        "poison" => Ending::Poison { crashes: at.crashes },
        "no_handler" => Ending::NoHandler(error),
        "undecodable" | "output_too_large" => Ending::Undecodable(error),
        "operator" | "archived" => Ending::Archived,
        _ => return Outcome::FailedText(error),
    })
}

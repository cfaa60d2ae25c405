//! Outcomes as the task's own types.
//!
//! Layer 4. Runs where a result is awaited, not in the receiver loop: decoding costs whoever wants
//! the value.

use super::waiter::Outcome;
use crate::envelope::{Ending, decode_payload};
use crate::error::ResultError;
use crate::task::Task;

/// What the result of a task is.
pub(super) fn typed<T: Task>(outcome: &Outcome) -> Result<T::Output, ResultError<T::Error>> {
    let ending = match outcome {
        Outcome::Ended(ending) => ending,
        Outcome::Unreadable(why) => return Err(ResultError::Decode(why.clone())),
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::envelope::encode_payload;
    use crate::options::Codec;
    use crate::task::Failure;

    #[derive(Serialize, Deserialize)]
    struct Square(u64);
    impl Task for Square {
        const NAME: &'static str = "square";
        type Output = u64;
        type Error = Failure;
    }

    #[test]
    fn an_output_of_another_type_is_a_decode_error() {
        let output = encode_payload(Codec::MessagePack, &"text").unwrap();
        let outcome = Outcome::Ended(Ending::Succeeded {
            codec: Codec::MessagePack,
            output,
        });
        assert!(matches!(
            typed::<Square>(&outcome),
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
            typed::<Square>(&outcome),
            Err(ResultError::Decode(_))
        ));
    }
}

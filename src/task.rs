//! What a task is: a payload type with a name, the type of its output, and errors that are data.
//!
//! Layer 0: words only. Handlers are `server`, encoding is `envelope`.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::options::{Codec, TaskOptions};

/// A typed payload with a stable name.
///
/// Usually derived:
///
/// ```
/// # #[cfg(feature = "macros")] {
/// use serde::{Deserialize, Serialize};
/// use streamfleet::Task;
///
/// #[derive(Serialize, Deserialize, Task)]
/// #[task(name = "image.resize", output = String)]
/// struct Resize {
///     url: String,
/// }
/// assert_eq!(Resize::NAME, "image.resize");
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a task",
    label = "not a task",
    note = "derive it: `#[derive(Serialize, Deserialize, Task)]` with `#[task(name = \"...\")]`"
)]
pub trait Task: Serialize + DeserializeOwned + Send + 'static {
    /// The name on the wire. It never follows the type's name, so that types can be renamed.
    const NAME: &'static str;

    /// How the payload and the output are written.
    const CODEC: Codec = Codec::MessagePack;

    /// What a successful run returns to whoever awaits it.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// What a failed run returns. [`Failure`] takes any standard error.
    type Error: TaskError;

    /// Options used unless the enqueue says otherwise.
    fn options() -> TaskOptions {
        TaskOptions::default()
    }
}

/// An error that crosses processes: it is data, and it says what shall happen next.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use streamfleet::{Retry, TaskError};
///
/// #[derive(Debug, Serialize, Deserialize)]
/// enum MailError {
///     NoSuchUser,
///     Busy,
/// }
/// impl std::fmt::Display for MailError {
///     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
///         f.write_str("mail was not sent")
///     }
/// }
/// impl TaskError for MailError {
///     fn retry(&self) -> Retry {
///         match self {
///             MailError::NoSuchUser => Retry::Never,
///             MailError::Busy => Retry::ByPolicy,
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a task",
    label = "not a `TaskError`",
    note = "use `streamfleet::Failure`, which takes any standard error by `?`, or implement `TaskError` for your own type"
)]
pub trait TaskError: fmt::Display + Serialize + DeserializeOwned + Send + 'static {
    /// What happens after this error.
    fn retry(&self) -> Retry {
        Retry::ByPolicy
    }
}

/// What happens after a failed run.
///
/// ```
/// use std::time::Duration;
/// use streamfleet::Retry;
/// assert_ne!(Retry::Never, Retry::After(Duration::from_secs(1)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Retry {
    /// Try again after the task's back-off, while retries are left.
    #[default]
    ByPolicy,
    /// Try again after this time, while retries are left.
    After(Duration),
    /// Archive now.
    Never,
    /// Run again after this time; no retry is used up.
    Snooze(Duration),
    /// End without success and without a place in the archive.
    Discard,
}

/// The ready-made task error: a text, the texts of its causes, and what happens next.
///
/// Any standard error becomes one by `?`, retried by policy.
///
/// ```
/// use streamfleet::{Failure, Retry, TaskError};
/// fn parse(text: &str) -> Result<u32, Failure> {
///     Ok(text.parse::<u32>()?)
/// }
/// assert_eq!(parse("x").unwrap_err().retry(), Retry::ByPolicy);
/// assert_eq!(Failure::never("empty image").retry(), Retry::Never);
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    message: String,
    causes: Vec<String>,
    #[serde(default)]
    retry: Retry,
}

impl Failure {
    /// A failure that is retried by the task's policy.
    ///
    /// ```
    /// assert_eq!(streamfleet::Failure::new("no route").message(), "no route");
    /// ```
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            causes: Vec::new(),
            retry: Retry::ByPolicy,
        }
    }

    /// A failure that no retry can mend: the task is archived now.
    ///
    /// ```
    /// use streamfleet::{Failure, Retry, TaskError};
    /// assert_eq!(Failure::never("bad address").retry(), Retry::Never);
    /// ```
    pub fn never(message: impl Into<String>) -> Self {
        Self::new(message).with_retry(Retry::Never)
    }

    /// A failure to be retried after a time of its own, such as a server's `Retry-After`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use streamfleet::{Failure, Retry, TaskError};
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(Failure::retry_after(minute, "busy").retry(), Retry::After(minute));
    /// ```
    pub fn retry_after(wait: Duration, message: impl Into<String>) -> Self {
        Self::new(message).with_retry(Retry::After(wait))
    }

    /// Not a failure at all: run again later without using up a retry.
    ///
    /// ```
    /// use std::time::Duration;
    /// use streamfleet::{Failure, Retry, TaskError};
    /// let hour = Duration::from_secs(3600);
    /// assert_eq!(Failure::snooze(hour).retry(), Retry::Snooze(hour));
    /// ```
    #[must_use]
    pub fn snooze(wait: Duration) -> Self {
        Self::new("snoozed").with_retry(Retry::Snooze(wait))
    }

    /// End the task without success and without a place in the archive.
    ///
    /// ```
    /// use streamfleet::{Failure, Retry, TaskError};
    /// assert_eq!(Failure::discard("user is gone").retry(), Retry::Discard);
    /// ```
    pub fn discard(message: impl Into<String>) -> Self {
        Self::new(message).with_retry(Retry::Discard)
    }

    /// The same failure with another consequence.
    ///
    /// ```
    /// use streamfleet::{Failure, Retry, TaskError};
    /// let failure = Failure::new("gone").with_retry(Retry::Never);
    /// assert_eq!(failure.retry(), Retry::Never);
    /// ```
    #[must_use]
    pub const fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// What went wrong, without its causes.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The texts of the causes, from the nearest to the root.
    ///
    /// ```
    /// assert!(streamfleet::Failure::new("x").causes().is_empty());
    /// ```
    #[must_use]
    pub fn causes(&self) -> &[String] {
        &self.causes
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for cause in &self.causes {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failure({self}, {:?})", self.retry)
    }
}

impl TaskError for Failure {
    fn retry(&self) -> Retry {
        self.retry
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut causes = Vec::new();
        let mut source = error.source();
        while let Some(cause) = source {
            causes.push(cause.to_string());
            source = cause.source();
        }
        Self {
            message: error.to_string(),
            causes,
            retry: Retry::ByPolicy,
        }
    }
}

//! The states of a task, in asynq's words.
//!
//! Layer 0.

use std::fmt;

/// Where a task is.
///
/// ```
/// use streamfleet::TaskState;
/// assert_eq!(TaskState::Retry.to_string(), "retry");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TaskState {
    /// In the stream, not handed to a server.
    Pending,
    /// In the stream and handed to a server.
    Active,
    /// Waits for its first time.
    Scheduled,
    /// Failed, waits for its next attempt.
    Retry,
    /// Ended without success and kept for a person to look at.
    Archived,
    /// Succeeded and kept for its retention.
    Completed,
    /// Waits in a group to be combined with others.
    Aggregating,
    /// Waits for a server that knows its name or its envelope's version.
    Parked,
}

impl TaskState {
    /// The word used in Redis, logs and tools.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Scheduled => "scheduled",
            Self::Retry => "retry",
            Self::Archived => "archived",
            Self::Completed => "completed",
            Self::Aggregating => "aggregating",
            Self::Parked => "parked",
        }
    }

    /// The state of a word from Redis.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "pending" => Self::Pending,
            "active" => Self::Active,
            "scheduled" => Self::Scheduled,
            "retry" => Self::Retry,
            "archived" => Self::Archived,
            "completed" => Self::Completed,
            "aggregating" => Self::Aggregating,
            "parked" => Self::Parked,
            _ => return None,
        })
    }

    /// Whether the task has reached its one terminal outcome.
    ///
    /// ```
    /// use streamfleet::TaskState;
    /// assert!(TaskState::Archived.is_final() && !TaskState::Active.is_final());
    /// ```
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Archived | Self::Completed)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

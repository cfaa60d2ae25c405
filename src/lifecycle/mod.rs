//! What happens after a run: retried, archived, ended, handed back.
//!
//! Layer 1, pure: the clock and the jitter are arguments, so that every rule is a property test.
//! It decides only; `store` writes, `server` calls.
//!
//! - `decide`: the ending of a run and the task's policy -> the next step
//! - `backoff`: the wait before a retry

mod backoff;
mod decide;
#[cfg(test)]
mod tests;

pub(crate) use decide::{Next, Run, decide};

//! What a handler is given beside its task.
//!
//! Layer 4. Made by the executor, one for each run.

use std::fmt;
use std::sync::Arc;

/// What a handler is given beside its task: the application's state.
///
/// ```
/// use streamfleet::{Context, Failure};
///
/// struct App {
///     greeting: String,
/// }
///
/// # #[cfg(feature = "macros")] {
/// #[derive(serde::Serialize, serde::Deserialize, streamfleet::Task)]
/// #[task(name = "greet", output = String)]
/// struct Greet {
///     who: String,
/// }
///
/// async fn greet(cx: Context<App>, task: Greet) -> Result<String, Failure> {
///     Ok(format!("{} {}", cx.state().greeting, task.who))
/// }
/// # }
/// ```
pub struct Context<S> {
    /// Shared by all runs of this server; given to the builder by the user.
    state: Arc<S>,
}

impl<S> Context<S> {
    pub(crate) const fn new(state: Arc<S>) -> Self {
        Self { state }
    }

    /// The state that was given to the server's builder.
    ///
    /// ```
    /// fn limit(cx: &streamfleet::Context<usize>) -> usize {
    ///     *cx.state()
    /// }
    /// ```
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }
}

// By hand: neither needs anything of `S`.
impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
        }
    }
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

//! The configuration of a server.
//!
//! Layer 4.

use std::fmt;
use std::sync::Arc;

use crate::server::context::Context;
use crate::server::handler::{AsyncHandler, BlockingHandler, ErasedHandler, Handler};
use crate::task::Task;

/// The configuration of a server.
pub struct ServerBuilder<S> {
    /// One for each task name that this server runs.
    handlers: Vec<Arc<dyn ErasedHandler<S>>>,
}

impl<S: Send + Sync + 'static> ServerBuilder<S> {
    /// Runs tasks of the type `T` with this handler: an `async fn(Context<S>, T)` or a closure that
    /// returns a future of `Result<T::Output, T::Error>`. One handler for each task name.
    ///
    /// ```
    /// # #[cfg(feature = "macros")] {
    /// use serde::{Deserialize, Serialize};
    /// use streamfleet::{Context, Failure, ServerBuilder, Task};
    ///
    /// #[derive(Serialize, Deserialize, Task)]
    /// #[task(name = "ping")]
    /// struct Ping;
    ///
    /// #[derive(Serialize, Deserialize, Task)]
    /// #[task(name = "double", output = u64)]
    /// struct Double(u64);
    ///
    /// async fn double(_cx: Context<()>, task: Double) -> Result<u64, Failure> {
    ///     Ok(task.0.checked_mul(2).ok_or(Failure::never("too large"))?)
    /// }
    ///
    /// fn handlers(server: ServerBuilder<()>) -> ServerBuilder<()> {
    ///     server.on(double).on(async |_cx, _task: Ping| Ok(()))
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn on<T: Task, H: Handler<S, T>>(mut self, handler: H) -> Self {
        self.handlers
            .push(Arc::new(AsyncHandler::<H, T>::new(handler)));
        self
    }

    /// Runs tasks of the type `T` with this handler, which may block: each run has a thread of its
    /// own. A run that is over its timeout cannot be stopped; it keeps its slot until it ends.
    ///
    /// ```
    /// # #[cfg(feature = "macros")] {
    /// use serde::{Deserialize, Serialize};
    /// use streamfleet::{Context, Failure, ServerBuilder, Task};
    ///
    /// #[derive(Serialize, Deserialize, Task)]
    /// #[task(name = "file.size", output = u64)]
    /// struct FileSize(String);
    ///
    /// fn file_size(_cx: Context<()>, task: FileSize) -> Result<u64, Failure> {
    ///     Ok(std::fs::metadata(task.0)?.len())
    /// }
    ///
    /// fn handlers(server: ServerBuilder<()>) -> ServerBuilder<()> {
    ///     server.on_blocking(file_size)
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn on_blocking<T, F>(mut self, handler: F) -> Self
    where
        T: Task,
        F: Fn(Context<S>, T) -> Result<T::Output, T::Error> + Send + Sync + 'static,
    {
        self.handlers
            .push(Arc::new(BlockingHandler::<F, T>::new(handler)));
        self
    }
}

impl<S> fmt::Debug for ServerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.handlers.iter().map(|handler| handler.name()).collect();
        f.debug_struct("ServerBuilder")
            .field("handlers", &names)
            .finish_non_exhaustive()
    }
}

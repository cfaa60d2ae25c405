//! From a typed handler to one the executor can keep in a table.
//!
//! Layer 4. Owns decoding the payload, calling the user's function, and encoding what it returned.
//! It does not decide what a failure leads to (`lifecycle`), and it catches no panic and knows no
//! timeout (the executor, which calls it). Made by `ServerBuilder::on`.

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::envelope::{decode_payload, encode_payload};
use crate::options::Codec;
use crate::server::context::Context;
use crate::task::{Retry, Task, TaskError};

/// A function that runs tasks of the type `T`: an `async fn(Context<S>, T)`, or a closure that returns
/// a future, of `Result<T::Output, T::Error>`.
///
/// A closure that captures something gives each run its own clone of it:
/// `move |cx, task: Mail| { let http = http.clone(); async move { … } }`. Mostly it is simpler to keep
/// it in the server's state. A type with fields of its own can be a handler too:
///
/// ```
/// # #[cfg(feature = "macros")] {
/// use serde::{Deserialize, Serialize};
/// use streamfleet::{Context, Failure, Handler, ServerBuilder, Task};
///
/// #[derive(Serialize, Deserialize, Task)]
/// #[task(name = "mail.send")]
/// struct Mail {
///     to: String,
/// }
///
/// struct Mailer {
///     sender: String,
/// }
///
/// impl<S: Send + Sync + 'static> Handler<S, Mail> for Mailer {
///     async fn call(&self, _cx: Context<S>, mail: Mail) -> Result<(), Failure> {
///         println!("from {} to {}", self.sender, mail.to);
///         Ok(())
///     }
/// }
///
/// fn handlers(server: ServerBuilder<()>) -> ServerBuilder<()> {
///     server.on(Mailer { sender: "me".into() })
/// }
/// # }
/// ```
// A trait, although `on` could ask for `Fn(Context<S>, T) -> Fut` itself: so a wrong output reads
// "expected `Result<String, _>`, found `Result<usize, _>`" at the handler; a bound on `Fut` reads
// "type mismatch resolving `<Resize as Task>::Output == usize`" at `on`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "not a handler",
    note = "a handler is an `async fn(Context<S>, T) -> Result<T::Output, T::Error>` of a task `T`"
)]
pub trait Handler<S, T: Task>: Send + Sync + 'static {
    /// One run of one task.
    fn call(
        &self,
        cx: Context<S>,
        task: T,
    ) -> impl Future<Output = Result<T::Output, T::Error>> + Send;
}

impl<S, T, F, Fut> Handler<S, T> for F
where
    T: Task,
    F: Fn(Context<S>, T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T::Output, T::Error>> + Send,
{
    fn call(
        &self,
        cx: Context<S>,
        task: T,
    ) -> impl Future<Output = Result<T::Output, T::Error>> + Send {
        self(cx, task)
    }
}

/// How a run ended that neither panicked nor was cut off.
#[derive(Debug)]
pub(crate) enum HandlerEnd {
    /// The handler's output, in the codec that the payload came in.
    Succeeded { codec: Codec, output: Bytes },
    /// The handler's error: as data for the waiter, as text for people, and what it asks for.
    /// `error` is empty when it could not be encoded; the text says so.
    Failed {
        codec: Codec,
        error: Bytes,
        text: String,
        retry: Retry,
    },
    /// The payload is not the handler's task. The handler was not called.
    Undecodable(String),
    /// The handler succeeded, but its output cannot be written.
    OutputUnencodable(String),
}

/// A handler without its types.
pub(crate) trait ErasedHandler<S>: Send + Sync {
    /// The name of the task it runs.
    fn name(&self) -> &'static str;

    /// Whether dropping the future of [`run`](Self::run) leaves the handler running on a thread: then
    /// the executor awaits it to its end, whatever it took, and keeps its lease and slot until then.
    fn outlives_its_future(&self) -> bool;

    /// One run. Everything happens inside the future, also the decoding, so that a panic of a
    /// user's `Deserialize` is caught where a panic of the handler is.
    fn run(&self, cx: Context<S>, payload: Bytes, codec: Codec) -> BoxFuture<'static, HandlerEnd>;
}

/// A handler that awaits.
pub(crate) struct AsyncHandler<H, T> {
    /// Shared with each run: its future outlives the borrow of `self`, and `H` need not be `Clone`.
    handler: Arc<H>,
    task: PhantomData<fn(T)>,
}

/// A handler that blocks; each run has a thread of tokio's blocking pool.
pub(crate) struct BlockingHandler<F, T> {
    handler: Arc<F>,
    task: PhantomData<fn(T)>,
}

impl<H, T> AsyncHandler<H, T> {
    pub(crate) fn new(handler: H) -> Self {
        Self {
            handler: Arc::new(handler),
            task: PhantomData,
        }
    }
}

impl<F, T> BlockingHandler<F, T> {
    pub(crate) fn new(handler: F) -> Self {
        Self {
            handler: Arc::new(handler),
            task: PhantomData,
        }
    }
}

impl<S, T, H> ErasedHandler<S> for AsyncHandler<H, T>
where
    S: Send + Sync + 'static,
    T: Task,
    H: Handler<S, T>,
{
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn outlives_its_future(&self) -> bool {
        false
    }

    fn run(&self, cx: Context<S>, payload: Bytes, codec: Codec) -> BoxFuture<'static, HandlerEnd> {
        let handler = Arc::clone(&self.handler);
        Box::pin(async move {
            let task: T = match decode_payload(codec, &payload) {
                Ok(task) => task,
                Err(wrong) => return HandlerEnd::Undecodable(wrong),
            };
            // The payload may be large and the run long.
            drop(payload);
            end::<T>(codec, handler.call(cx, task).await)
        })
    }
}

impl<S, T, F> ErasedHandler<S> for BlockingHandler<F, T>
where
    S: Send + Sync + 'static,
    T: Task,
    F: Fn(Context<S>, T) -> Result<T::Output, T::Error> + Send + Sync + 'static,
{
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn outlives_its_future(&self) -> bool {
        true
    }

    fn run(&self, cx: Context<S>, payload: Bytes, codec: Codec) -> BoxFuture<'static, HandlerEnd> {
        let handler = Arc::clone(&self.handler);
        Box::pin(async move {
            let span = tracing::Span::current();
            let run = move || {
                let _entered = span.entered();
                let task: T = match decode_payload(codec, &payload) {
                    Ok(task) => task,
                    Err(wrong) => return HandlerEnd::Undecodable(wrong),
                };
                drop(payload);
                end::<T>(codec, handler(cx, task))
            };
            match tokio::task::spawn_blocking(run).await {
                Ok(end) => end,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime shuts down before the run began. It drops this future too; ending
                    // it would count an attempt that was none.
                    Err(_) => std::future::pending().await,
                },
            }
        })
    }
}

/// What the handler returned, as bytes.
fn end<T: Task>(codec: Codec, result: Result<T::Output, T::Error>) -> HandlerEnd {
    match result {
        Ok(output) => match encode_payload(codec, &output) {
            Ok(output) => HandlerEnd::Succeeded { codec, output },
            Err(wrong) => HandlerEnd::OutputUnencodable(wrong),
        },
        Err(error) => {
            let retry = error.retry();
            let mut text = error.to_string();
            // A failure stays a failure with its own consequence, even if the waiter gets less of it.
            let error = encode_payload(codec, &error).unwrap_or_else(|wrong| {
                text = format!("{text} (as data it could not be encoded: {wrong})");
                Bytes::new()
            });
            HandlerEnd::Failed {
                codec,
                error,
                text,
                retry,
            }
        }
    }
}

#[cfg(test)]
#[path = "handler_tests.rs"]
mod tests;

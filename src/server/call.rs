//! Calls a handler: catches its panics, tells it when its time is over, and drops it when it does
//! not listen.
//!
//! Layer 4. It knows nothing of Redis; `run` gives it a handler, `conclude` takes what came out.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, CatchUnwind};
use tokio::time::Instant;

use crate::envelope::{MAX_TEXT_BYTES, cut_text};
use crate::id::Millis;
use crate::options::Codec;
use crate::server::bound::AnyHandler;
use crate::server::context::Run;
use crate::server::handler::HandlerEnd;
use crate::server::run_info::Held;
use crate::server::signal::StopReason;

/// When a run is cut off, and why then.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) at: Instant,
    pub(crate) reason: StopReason,
    pub(crate) timeout: Duration,
}

impl Cut {
    /// The earlier of the timeout and the deadline.
    pub(crate) fn of(timeout: Duration, deadline: Option<Millis>, now: Millis) -> Self {
        let left = deadline.map(|deadline| deadline.since(now));
        let (after, reason) = match left {
            Some(left) if left < timeout => (left, StopReason::Expired),
            _ => (timeout, StopReason::TimedOut),
        };
        Self {
            at: Instant::now() + after,
            reason,
            timeout,
        }
    }
}

/// What came out of a handler.
#[derive(Debug)]
pub(crate) enum Ran {
    /// It returned by itself, maybe after it was told to stop.
    Returned(HandlerEnd),
    /// It panicked.
    Panicked(String),
    /// It was told to stop, did not return within the grace, and was dropped.
    Dropped(StopReason),
}

/// A handler that is about to run.
pub(crate) struct Call<'a> {
    handler: &'a dyn AnyHandler,
    /// The handler's future; or the panic of one that panicked before there was a future.
    made: Result<BoxFuture<'static, HandlerEnd>, Box<dyn Any + Send>>,
}

impl<'a> Call<'a> {
    /// Calls the handler; nothing of an async handler runs before [`run`](Self::run).
    pub(crate) fn new(
        handler: &'a dyn AnyHandler,
        run: Arc<Run>,
        payload: Bytes,
        codec: Codec,
    ) -> Self {
        let made = catch_unwind(AssertUnwindSafe(|| handler.run(run, payload, codec)));
        Self { handler, made }
    }

    /// Runs it to its end.
    pub(crate) async fn run(self, held: &Held, cut: &Cut, grace: Duration) -> Ran {
        let mut running = match self.made {
            Ok(future) => AssertUnwindSafe(future).catch_unwind(),
            Err(panic) => return Ran::Panicked(panic_text(&*panic)),
        };
        // Most handlers that need no waiting are done at the first poll: they pay for no timer.
        let first = std::future::poll_fn(|cx| match running.poll_unpin(cx) {
            Poll::Ready(end) => Poll::Ready(Some(end)),
            Poll::Pending => Poll::Ready(None),
        })
        .await;
        match first {
            Some(end) => returned(end),
            None => {
                let outlives = self.handler.outlives_its_future();
                Box::pin(wait(running, held, cut, grace, outlives)).await
            }
        }
    }
}

/// A handler that runs, with its panics caught.
type Running = CatchUnwind<AssertUnwindSafe<BoxFuture<'static, HandlerEnd>>>;

/// Waits for a handler until its time is over, and then for the grace.
async fn wait(
    mut running: Running,
    held: &Held,
    cut: &Cut,
    grace: Duration,
    outlives: bool,
) -> Ran {
    let reason = tokio::select! {
        biased;
        end = &mut running => return returned(end),
        reason = told(held, cut) => reason,
    };
    // A blocking handler cannot be dropped: its thread goes on, so its lease and its slot do too.
    let end = if outlives {
        Ok(running.await)
    } else {
        let end = tokio::time::timeout(grace, &mut running).await;
        // Destructors of the handler's locals may panic as well.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(running)));
        end
    };
    match end {
        Ok(end) => returned(end),
        Err(_) => {
            tracing::debug!(entry = %held.entry, "a handler did not stop when told and was dropped");
            Ran::Dropped(reason)
        }
    }
}

/// Waits until the run is told to stop, by somebody else or by its own time.
async fn told(held: &Held, cut: &Cut) -> StopReason {
    tokio::select! {
        reason = held.signal.stopped() => reason,
        () = tokio::time::sleep_until(cut.at) => {
            held.signal.stop(cut.reason);
            cut.reason
        }
    }
}

fn returned(end: Result<HandlerEnd, Box<dyn Any + Send>>) -> Ran {
    match end {
        Ok(end) => Ran::Returned(end),
        Err(panic) => Ran::Panicked(panic_text(&*panic)),
    }
}

/// The message of a panic, if it has one.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message");
    cut_text(text, MAX_TEXT_BYTES).to_owned()
}

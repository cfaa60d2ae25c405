//! A handler with the state it is called with: all that the executor sees of either.
//!
//! Layer 4. Here the type of the state ends; everything that runs tasks is free of it.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::options::Codec;
use crate::server::context::{Context, Run};
use crate::server::handler::{ErasedHandler, HandlerEnd};

/// A handler without any of its types.
pub(crate) trait AnyHandler: Send + Sync {
    /// Whether dropping the future leaves the handler running on a thread.
    fn outlives_its_future(&self) -> bool;

    /// One run.
    fn run(&self, run: Arc<Run>, payload: Bytes, codec: Codec) -> BoxFuture<'static, HandlerEnd>;
}

/// A handler and the state of its server.
pub(crate) struct Bound<S> {
    state: Arc<S>,
    handler: Arc<dyn ErasedHandler<S>>,
}

impl<S> Bound<S> {
    pub(crate) fn new(state: Arc<S>, handler: Arc<dyn ErasedHandler<S>>) -> Self {
        Self { state, handler }
    }
}

impl<S: Send + Sync + 'static> AnyHandler for Bound<S> {
    fn outlives_its_future(&self) -> bool {
        self.handler.outlives_its_future()
    }

    fn run(&self, run: Arc<Run>, payload: Bytes, codec: Codec) -> BoxFuture<'static, HandlerEnd> {
        let cx = Context::new(Arc::clone(&self.state), run);
        self.handler.run(cx, payload, codec)
    }
}

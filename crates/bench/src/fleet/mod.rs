//! The library, used as a user would use it: default options but for the concurrency.
//!
//! - `task`: the task and its handlers
//! - `load`: many tasks at once, awaited or forgotten; enqueues only
//! - `single`: one task at a time

mod load;
mod single;
mod task;

use std::sync::Arc;

use streamfleet::{Client, Server, StopReport};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use load::{Shape, enqueue, forget, tracked};
pub(crate) use single::single;
use task::Counter;
pub(crate) use task::{Bench, Work};

use crate::Result;
use crate::layout::QUEUE;

/// A server that runs in this process until it is stopped.
pub(crate) struct Fleet {
    pub(crate) client: Client,
    pub(crate) counter: Arc<Counter>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<std::result::Result<StopReport, streamfleet::ServerError>>,
}

impl Fleet {
    pub(crate) async fn start(url: &str, concurrency: usize, work: Work) -> Result<Self> {
        let client = Client::connect(url).await?;
        let counter = Arc::new(Counter::new(work));
        let server = Server::builder(&client, Arc::clone(&counter))
            .queue(QUEUE, 1)
            .concurrency(concurrency)
            .on(task::run)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run_until(async {
            // A sender that is dropped stops it too.
            let _ = stopped.await;
        }));
        Ok(Self {
            client,
            counter,
            stop,
            running,
        })
    }

    /// Waits until so many handlers ran.
    pub(crate) async fn ran(&self, tasks: u64) {
        while self.counter.ran() < tasks {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    /// Stops the server in order and closes the client.
    ///
    /// # Errors
    /// The server did not settle what it ran, or ran it another number of times.
    pub(crate) async fn stop(self, tasks: u64) -> Result<()> {
        let _ = self.stop.send(());
        let report = self.running.await??;
        self.client.close().await;
        let ran = self.counter.ran();
        if ran != tasks || report.succeeded != tasks {
            return Err(format!(
                "{tasks} tasks were enqueued, {ran} handlers ran, {} successes were settled",
                report.succeeded
            )
            .into());
        }
        Ok(())
    }
}

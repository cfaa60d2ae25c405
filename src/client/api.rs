//! [`Client`]: what users hold.
//!
//! Layer 4. A cheap clone; the last clone ends the loops and closes the connections.

use std::fmt;
use std::sync::Arc;

use super::builder::{ClientBuilder, Settings};
use super::bulk::EnqueueAll;
use super::enqueue::Enqueue;
use super::shared::Owner;
use crate::error::ConnectError;
use crate::id::{ClientId, Prefix};
use crate::inspect::Inspector;
use crate::store::Store;
use crate::store::url::RedisUrl;
use crate::task::Task;

/// Enqueues tasks and awaits their results.
///
/// Clones are cheap and share everything. A client stays alive while there is a clone of it or a
/// [`TaskHandle`](crate::TaskHandle); [`close`](Self::close) ends it in order.
///
/// ```no_run
/// # #[cfg(feature = "macros")] {
/// use serde::{Deserialize, Serialize};
/// use streamfleet::{Client, Task};
///
/// #[derive(Serialize, Deserialize, Task)]
/// #[task(name = "greet", output = String)]
/// struct Greet {
///     name: String,
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("redis://127.0.0.1").await?;
/// let greeting = client
///     .enqueue(Greet { name: "Ada".into() })
///     .await?
///     .result()
///     .await?;
/// client.close().await;
/// # Ok(()) }
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(super) owner: Arc<Owner>,
}

impl Client {
    /// Connects with the default settings.
    ///
    /// The URL is `redis://`, `rediss://` (feature `tls`), `redis-cluster://`, `redis-sentinel://`
    /// or `redis+unix://`, with user, password and database number as usual.
    ///
    /// # Errors
    /// [`ConnectError`]: the URL cannot be used, Redis does not answer or refuses, it is older than
    /// 7.0, or it may evict queued tasks.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), streamfleet::ConnectError> {
    /// let client = streamfleet::Client::connect("redis://127.0.0.1").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(url: impl Into<String>) -> Result<Self, ConnectError> {
        Self::builder(url).connect().await
    }

    /// Sets up a client before it connects.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), streamfleet::ConnectError> {
    /// use streamfleet::Client;
    /// let client = Client::builder("redis://127.0.0.1").prefix("shop").connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(url)
    }

    /// Enqueues one task. The builder is sent when it is awaited.
    ///
    /// When it is `Ok`, the task is in Redis. Through an outage it is repeated until the client's
    /// enqueue deadline, and never makes a duplicate.
    ///
    /// ```no_run
    /// # #[cfg(feature = "macros")] {
    /// # use serde::{Deserialize, Serialize};
    /// # use streamfleet::{Client, Task};
    /// # #[derive(Serialize, Deserialize, Task)]
    /// # #[task(name = "mail", output = ())]
    /// # struct Mail { to: String }
    /// # async fn example(client: Client) -> Result<(), streamfleet::EnqueueError> {
    /// use std::time::Duration;
    /// let mail = Mail { to: "ada@example.org".into() };
    /// let id = client
    ///     .enqueue(mail)
    ///     .queue("low")
    ///     .delay(Duration::from_secs(60))
    ///     .max_retries(3)
    ///     .forget()
    ///     .await?;
    /// # Ok(()) }
    /// # }
    /// ```
    pub fn enqueue<T: Task>(&self, task: T) -> Enqueue<T> {
        Enqueue::new(Some(self.clone()), task)
    }

    /// Enqueues many tasks of one type with the same options, in order, in batches. There is one
    /// result for each task.
    ///
    /// ```no_run
    /// # #[cfg(feature = "macros")] {
    /// # use serde::{Deserialize, Serialize};
    /// # use streamfleet::{Client, Task};
    /// # #[derive(Serialize, Deserialize, Task)]
    /// # #[task(name = "square", output = u64)]
    /// # struct Square(u64);
    /// # async fn example(client: Client) -> Result<(), streamfleet::EnqueueError> {
    /// let results = client.enqueue_all((0..1_000).map(Square)).queue("low").await?;
    /// assert_eq!(results.len(), 1_000);
    /// # Ok(()) }
    /// # }
    /// ```
    pub fn enqueue_all<T: Task>(&self, tasks: impl IntoIterator<Item = T>) -> EnqueueAll<T> {
        EnqueueAll::new(self.clone(), tasks.into_iter().collect())
    }

    /// Looks at queues and tasks, and acts on them.
    ///
    /// ```no_run
    /// # async fn example(client: streamfleet::Client) -> Result<(), streamfleet::InspectError> {
    /// let counts = client.inspect().counts("default").await?;
    /// println!("{} tasks wait", counts.pending);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn inspect(&self) -> Inspector {
        Inspector::new(self.store().clone(), self.id().clone())
    }

    /// Ends this client and all its clones: whoever waits gets `Closed`, what it has in Redis
    /// beside the tasks is removed, the connections are closed. Tasks that were enqueued go on.
    ///
    /// ```no_run
    /// # async fn example(client: streamfleet::Client) {
    /// client.close().await;
    /// # }
    /// ```
    pub async fn close(&self) {
        self.owner.shared.close().await;
    }

    /// The id of this client, random for each connect.
    #[must_use]
    pub fn id(&self) -> &ClientId {
        &self.owner.shared.id
    }

    /// The first part of every key.
    #[must_use]
    pub fn prefix(&self) -> &Prefix {
        &self.owner.shared.settings.prefix
    }

    /// For servers and the inspector: the calls of Redis, over this client's connection.
    pub(crate) fn store(&self) -> &Store {
        &self.owner.shared.store
    }

    /// For servers, which make connections of their own.
    pub(crate) fn url(&self) -> &RedisUrl {
        &self.owner.shared.connect.url
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.owner.shared.settings
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.owner.shared.is_closed()
    }
}

impl fmt::Debug for Client {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", self.id())
            .field("prefix", self.prefix())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

//! The configuration of a server, checked as a whole before anything starts.
//!
//! Layer 4.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::client::Client;
use crate::error::{BuildError, ConfigError, ServerError};
use crate::id::{ConsumerId, QueueName, check_name};
use crate::server::bound::{AnyHandler, Bound};
use crate::server::choose::Order;
use crate::server::context::Context;
use crate::server::handler::{AsyncHandler, BlockingHandler, ErasedHandler, Handler};
use crate::server::hooks::{ArchivedTask, Hooks, LostLease};
use crate::server::report::StopReport;
use crate::server::serve::serve;
use crate::server::settings::Settings;
use crate::task::Task;

/// The largest weight of a queue.
const MAX_WEIGHT: u32 = 1_000_000;

/// The configuration of a server. Every setting has a default; the whole is checked by
/// [`build`](Self::build).
///
/// ```no_run
/// # use std::time::Duration;
/// # use streamfleet::{Client, Context, Failure, Server, shutdown_signal};
/// # #[derive(serde::Serialize, serde::Deserialize, streamfleet::Task)]
/// # #[task(name = "image.resize", output = String)]
/// # struct Resize { url: String }
/// # async fn resize(_: Context<()>, task: Resize) -> Result<String, Failure> { Ok(task.url) }
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("redis://127.0.0.1").await?;
/// let report = Server::builder(&client, ())
///     .queue("critical", 6)
///     .queue("low", 1)
///     .concurrency(64)
///     .on(resize)
///     .build()?
///     .run_until(shutdown_signal())
///     .await?;
/// # Ok(()) }
/// ```
#[must_use]
pub struct ServerBuilder<S> {
    client: Client,
    state: Arc<S>,
    label: String,
    order: Order,
    queues: Vec<(String, u32)>,
    settings: Settings,
    /// In the order they were given, so that a duplicate is named in `build`.
    handlers: Vec<Arc<dyn ErasedHandler<S>>>,
    hooks: Hooks,
}

/// A server that is ready to run.
#[must_use]
pub struct Server {
    pub(crate) client: Client,
    pub(crate) me: ConsumerId,
    pub(crate) order: Order,
    pub(crate) queues: Vec<(QueueName, u32)>,
    pub(crate) settings: Settings,
    pub(crate) handlers: HashMap<&'static str, Box<dyn AnyHandler>>,
    pub(crate) hooks: Hooks,
}

impl Server {
    /// Starts the configuration of a server. `state` is shared by all handlers.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), streamfleet::ConnectError> {
    /// # use streamfleet::{Client, Server};
    /// struct App {
    ///     bucket: String,
    /// }
    /// let client = Client::connect("redis://127.0.0.1").await?;
    /// let builder = Server::builder(&client, App { bucket: "images".into() });
    /// # Ok(()) }
    /// ```
    pub fn builder<S: Send + Sync + 'static>(client: &Client, state: S) -> ServerBuilder<S> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        ServerBuilder {
            client: client.clone(),
            state: Arc::new(state),
            label: "server".to_owned(),
            order: Order::default(),
            queues: Vec::new(),
            settings: Settings::for_cores(cores),
            handlers: Vec::new(),
            hooks: Hooks::default(),
        }
    }

    /// The name that Redis and the logs know this server by: its label and a random suffix.
    #[must_use]
    pub fn id(&self) -> &ConsumerId {
        &self.me
    }

    /// Runs until `stop` is ready, then stops in order: takes nothing new, hands back what was not
    /// started, gives running handlers the shutdown timeout, tells them, and hands back what does
    /// not end, without counting an attempt.
    ///
    /// Dropping the returned future is a hard stop: nothing is waited for, and other servers take
    /// over when the leases end.
    ///
    /// # Errors
    /// [`ServerError::Start`] if Redis cannot be reached, refuses, or holds keys of another layout;
    /// [`ServerError::LoopDied`] if a part of the server died, which is a bug.
    pub async fn run_until(
        self,
        stop: impl Future<Output = ()>,
    ) -> Result<StopReport, ServerError> {
        serve(self, stop).await
    }
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
    pub fn on_blocking<T, F>(mut self, handler: F) -> Self
    where
        T: Task,
        F: Fn(Context<S>, T) -> Result<T::Output, T::Error> + Send + Sync + 'static,
    {
        self.handlers
            .push(Arc::new(BlockingHandler::<F, T>::new(handler)));
        self
    }

    /// Serves this queue. `weight` says how much more often it is asked first than others;
    /// without any call the server serves `default`.
    pub fn queue(mut self, name: impl Into<String>, weight: u32) -> Self {
        self.queues.push((name.into(), weight));
        self
    }

    /// How several queues share this server; weighted unless set.
    pub const fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// How many handlers run at a time, 1 to 100,000; 8 per core unless set.
    pub const fn concurrency(mut self, handlers: usize) -> Self {
        self.settings.concurrency = handlers;
        self
    }

    /// The first part of the server's name in Redis and in logs, of the alphabet of names.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// How long a silent server keeps its tasks before others take them over; 15 s unless set.
    /// Handlers may take longer: their leases are renewed.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How often leases are renewed; 4 s unless set.
    pub const fn renew_every(mut self, every: Duration) -> Self {
        self.settings.renew_every = every;
        self
    }

    /// When no server was heard for this long, Redis was away and nobody is presumed dead; 6 s
    /// unless set. `quiet_gap + 1.5 x renew_every + 1 s` must be less than the lease.
    pub const fn quiet_gap(mut self, gap: Duration) -> Self {
        self.settings.quiet_gap = gap;
        self
    }

    /// How long a stop waits for running handlers before it tells them; 25 s unless set.
    pub const fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.settings.shutdown_timeout = timeout;
        self
    }

    /// How long a handler may go on after it was told to stop before it is dropped; 5 s unless set.
    pub const fn handler_grace(mut self, grace: Duration) -> Self {
        self.settings.handler_grace = grace;
        self
    }

    /// How many processes a task may take down while it runs as the only suspect, before it is
    /// archived as poison, 1 to 100; 3 unless set. Two deaths before that are held against nobody:
    /// whatever else ran in the process may have been the cause.
    pub const fn max_crashes(mut self, crashes: u32) -> Self {
        self.settings.max_crashes = crashes;
        self
    }

    /// The largest payload that is run and the largest output that is returned, in bytes; 1 MiB
    /// unless set.
    pub const fn max_payload(mut self, bytes: usize) -> Self {
        self.settings.max_payload = bytes;
        self
    }

    /// How long tasks that no server knows are kept before they are archived; 1 hour unless set.
    pub const fn unknown_grace(mut self, grace: Duration) -> Self {
        self.settings.unknown_grace = grace;
        self
    }

    /// How long, and how many, archived tasks are kept; 90 days and 10,000 unless set.
    pub const fn archive(mut self, keep: Duration, most: usize) -> Self {
        self.settings.archive_keep = keep;
        self.settings.archive_max = most;
        self
    }

    /// After how long without a sign of life a client's receiver is removed; 10 minutes unless set.
    pub const fn client_dead_after(mut self, silence: Duration) -> Self {
        self.settings.client_dead_after = silence;
        self
    }

    /// How often the upkeep of each queue is looked after; 2 s unless set.
    pub const fn upkeep_every(mut self, every: Duration) -> Self {
        self.settings.upkeep_every = every;
        self
    }

    /// Calls this for every task that this server archives, also for one whose process died. It
    /// must not block.
    pub fn on_archived(mut self, hook: impl Fn(&ArchivedTask) + Send + Sync + 'static) -> Self {
        self.hooks.archived.push(Arc::new(hook));
        self
    }

    /// Calls this for every run of this server that lost its lease. It must not block.
    pub fn on_lease_lost(mut self, hook: impl Fn(&LostLease) + Send + Sync + 'static) -> Self {
        self.hooks.lease_lost.push(Arc::new(hook));
        self
    }

    /// Checks the whole configuration.
    ///
    /// # Errors
    /// [`BuildError`], naming the value and its limit.
    pub fn build(self) -> Result<Server, BuildError> {
        self.settings.check()?;
        check_name("label", &self.label)?;
        let queues = checked_queues(&self.queues)?;
        let mut handlers: HashMap<&'static str, Box<dyn AnyHandler>> = HashMap::new();
        for handler in self.handlers {
            let name = handler.name();
            check_name("task", name)?;
            match handlers.entry(name) {
                Entry::Occupied(_) => return Err(BuildError::DuplicateTask { name }),
                Entry::Vacant(slot) => {
                    slot.insert(Box::new(Bound::new(Arc::clone(&self.state), handler)));
                }
            }
        }
        if handlers.is_empty() {
            return Err(BuildError::NoHandlers);
        }
        let random = Uuid::new_v4().as_u64_pair().1;
        Ok(Server {
            client: self.client,
            me: ConsumerId::from_random(&self.label, random),
            order: self.order,
            queues,
            settings: self.settings,
            handlers,
            hooks: self.hooks,
        })
    }
}

fn checked_queues(queues: &[(String, u32)]) -> Result<Vec<(QueueName, u32)>, BuildError> {
    if queues.is_empty() {
        return Ok(vec![(QueueName::default(), 1)]);
    }
    let mut checked: Vec<(QueueName, u32)> = Vec::with_capacity(queues.len());
    for (name, weight) in queues {
        let name = QueueName::new(name)?;
        if !(1..=MAX_WEIGHT).contains(weight) {
            let setting = format!("weight of queue {name}");
            let limit = format!("1 to {MAX_WEIGHT}");
            return Err(ConfigError::new(setting, weight.to_string(), limit).into());
        }
        if checked.iter().any(|(known, _)| *known == name) {
            return Err(
                ConfigError::new("queues", format!("{name} twice"), "each queue once").into(),
            );
        }
        checked.push((name, *weight));
    }
    Ok(checked)
}

impl<S> fmt::Debug for ServerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.handlers.iter().map(|handler| handler.name()).collect();
        f.debug_struct("ServerBuilder")
            .field("queues", &self.queues)
            .field("handlers", &names)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("me", &self.me)
            .field("queues", &self.queues)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

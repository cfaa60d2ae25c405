//! What a behaviour acts in: a server, a prefix of its own, three queues, and the clients and
//! servers it starts, which are taken down after it whether it failed or not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use streamfleet::testing::Reply;
use streamfleet::{
    Client, ClientBuilder, Page, ResultError, Server, ServerBuilder, ServerError, StopReport, Task,
    TaskHandle, TaskId,
};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::app::{App, run_blocking, run_nothing, run_step, run_sum};
use crate::support::Redis;

/// How long anything may take that should be soon; machines are busy.
pub(super) const SOON: Duration = Duration::from_secs(30);
/// A time that never comes in a test.
pub(super) const HOUR: Duration = Duration::from_secs(60 * 60);

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) struct World {
    pub(super) redis: Arc<Redis>,
    pub(super) prefix: &'static str,
    queues: [String; 3],
    clients: Mutex<Vec<Client>>,
    servers: Mutex<Vec<Running>>,
}

/// A server that runs.
#[derive(Clone)]
pub(super) struct Running {
    stop: CancellationToken,
    #[expect(clippy::type_complexity, reason = "what `run_until` answers")]
    task: Arc<Mutex<Option<JoinHandle<Result<StopReport, ServerError>>>>>,
}

impl World {
    pub(super) fn new(redis: Arc<Redis>, name: &'static str) -> Self {
        Self {
            queues: redis.queues("q"),
            redis,
            prefix: name,
            clients: Mutex::default(),
            servers: Mutex::default(),
        }
    }

    /// The queue of behaviours that need one.
    pub(super) fn queue(&self) -> &str {
        &self.queues[0]
    }

    /// Three queues, in a cluster on three nodes.
    pub(super) fn queues(&self) -> &[String; 3] {
        &self.queues
    }

    pub(super) fn client_builder(&self) -> ClientBuilder {
        Client::builder(self.redis.url()).prefix(self.prefix)
    }

    /// A client that is closed when the behaviour has ended.
    pub(super) async fn client(&self) -> Client {
        self.connect(self.client_builder()).await
    }

    pub(super) async fn connect(&self, builder: ClientBuilder) -> Client {
        let client = builder.connect().await.unwrap();
        self.clients.lock().unwrap().push(client.clone());
        client
    }

    /// A server of the usual tasks, quick in everything but its lease; its queues are to be named.
    pub(super) fn builder(client: &Client, app: &App) -> ServerBuilder<App> {
        Server::builder(client, app.clone())
            .concurrency(8)
            .upkeep_every(ms(200))
            .handler_grace(ms(200))
            .on(run_step)
            .on(run_sum)
            .on(run_nothing)
            .on_blocking(run_blocking)
    }

    /// Starts a server, which is stopped when the behaviour has ended.
    pub(super) fn start<S: Send + Sync + 'static>(&self, builder: ServerBuilder<S>) -> Running {
        let server = builder.build().unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let task = tokio::spawn(server.run_until(stopped));
        let running = Running {
            stop,
            task: Arc::new(Mutex::new(Some(task))),
        };
        self.servers.lock().unwrap().push(running.clone());
        running
    }

    /// Starts a usual server of the usual queue.
    pub(super) fn serve(&self, client: &Client, app: &App) -> Running {
        self.start(Self::builder(client, app).queue(self.queue(), 1))
    }

    pub(super) fn key(&self, queue: &str, kind: &str) -> String {
        format!("{}:{{{queue}}}:{kind}", self.prefix)
    }

    /// A command about a key of a queue: `args` without the key, which is put after the first.
    pub(super) async fn command(&self, queue: &str, kind: &str, args: &[&[u8]]) -> Reply {
        let key = self.key(queue, kind);
        let mut all: Vec<&[u8]> = vec![args[0], key.as_bytes()];
        all.extend(&args[1..]);
        self.redis.command_on_key(&key, &all).await.unwrap()
    }

    /// The clock of the server that holds a queue, in milliseconds.
    pub(super) async fn now(&self, queue: &str) -> u64 {
        let key = self.key(queue, "s");
        let time = self.redis.command_on_key(&key, &["TIME"]).await.unwrap();
        let numbers: Vec<u64> = time.texts().iter().map(|t| t.parse().unwrap()).collect();
        numbers[0] * 1000 + numbers[1] / 1000
    }

    /// Whether the stream of a queue is empty and nothing is pending.
    pub(super) async fn is_drained(&self, queue: &str) -> bool {
        let key = self.key(queue, "s");
        let length = self.command(queue, "s", &[b"XLEN"]).await;
        let pending = ["XPENDING", &key, "servers"];
        // Without a group nobody has ever read here.
        let pending = self.redis.command_on_key(&key, &pending).await;
        let pending = pending.ok().and_then(|reply| reply.items()[0].int());
        (length.int(), pending) == (Some(0), Some(0))
    }

    /// Takes down what runs; after a success also removes what was archived. Answers what could
    /// not be taken down.
    pub(super) async fn finish(self, succeeded: bool) -> Option<String> {
        let servers = std::mem::take(&mut *self.servers.lock().unwrap());
        let mut wrong = None;
        for server in servers {
            if let Some(Err(error)) = server.stopped().await {
                wrong = Some(error);
            }
        }
        let clients = std::mem::take(&mut *self.clients.lock().unwrap());
        if let Some(client) = clients.iter().find(|client| is_open(client))
            && succeeded
        {
            for queue in &self.queues {
                clear_archive(client, queue).await;
            }
        }
        for client in clients {
            client.close().await;
        }
        wrong
    }
}

fn is_open(client: &Client) -> bool {
    !format!("{client:?}").contains("closed: true")
}

/// Removes every archived task by the means of a user.
async fn clear_archive(client: &Client, queue: &str) {
    let inspect = client.inspect();
    loop {
        let page = inspect.archived(queue, Page::first(100)).await.unwrap();
        if page.tasks.is_empty() {
            return;
        }
        for task in page.tasks {
            inspect.delete(queue, &task.id).await.unwrap();
        }
    }
}

impl Running {
    /// Stops the server in order, and answers its report.
    pub(super) async fn stop(&self) -> StopReport {
        self.stopped().await.unwrap().unwrap()
    }

    /// Drops the future of the server.
    pub(super) async fn drop_it(&self) {
        let task = self.task.lock().unwrap().take().unwrap();
        task.abort();
        let _ = task.await;
    }

    /// `None` if it was stopped before.
    async fn stopped(&self) -> Option<Result<StopReport, String>> {
        let task = self.task.lock().unwrap().take()?;
        self.stop.cancel();
        Some(match tokio::time::timeout(SOON * 2, task).await {
            Ok(Ok(report)) => report.map_err(|error| error.to_string()),
            Ok(Err(error)) => Err(panic_text(error)),
            Err(_) => Err("a server did not stop".to_owned()),
        })
    }
}

/// The outcome of a task, which is to come soon.
#[track_caller]
pub(super) fn ended<T: Task>(
    handle: &TaskHandle<T>,
) -> impl Future<Output = Result<T::Output, ResultError<T::Error>>> {
    let caller = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(SOON, handle.result()).await {
            Ok(outcome) => outcome,
            Err(_) => panic!(
                "{caller}: task {} has no outcome within {SOON:?}: {:?}",
                handle.id(),
                handle.status().await
            ),
        }
    }
}

/// Fails unless a value has this shape, and shows the value.
macro_rules! assert_shape {
    ($value:expr, $($shape:tt)+) => {
        match $value {
            $($shape)+ => {}
            ref other => panic!(
                "{}:{}: expected {}, found {other:?}",
                file!(), line!(), stringify!($($shape)+)
            ),
        }
    };
}
pub(super) use assert_shape;

/// Every archived task of a queue.
pub(super) async fn archived(client: &Client, queue: &str) -> Vec<streamfleet::TaskInfo> {
    let page = client.inspect().archived(queue, Page::first(100)).await;
    page.unwrap().tasks
}

/// The one archived task of this id.
pub(super) async fn archived_task(
    client: &Client,
    queue: &str,
    id: &TaskId,
) -> streamfleet::TaskInfo {
    let all = archived(client, queue).await;
    let found = all.iter().find(|task| task.id == *id);
    found
        .unwrap_or_else(|| panic!("{id} is not in the archive: {all:?}"))
        .clone()
}

pub(super) fn panic_text(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "it was aborted".to_owned();
    };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

//! One client of fred behind a pointer that can be swapped, and the task that watches over it.
//!
//! Layer 2, used by `conn`, `blocking` and `subscriber` only. It owns the settings that keep fred
//! from repeating, losing or hanging on commands; when a client is replaced; and the ids that its
//! connections had. It does not know any command but CLIENT SETNAME.
//!
//! What fred does not do by itself: it never notices a server that is frozen while somebody goes on
//! writing to it, its router task ends on some errors, and a dropped client stays connected.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::{ClientInterface, ClientLike, EventInterface};
use fred::types::config::{
    ClusterDiscoveryPolicy, Config, ConnectionConfig, Options as CallOptions, PerformanceConfig,
    ReconnectPolicy, Server, ServerConfig, TcpConfig,
};
use fred::types::{ClusterHash, ConnectHandle, CustomCommand, RespVersion};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::AbortHandle;

use super::class::{backend_error, client_kind, connect_kind};
use super::url::{Place, RedisUrl};
use crate::error::{BackendError, BackendKind, ConnectError};

/// How long one attempt to connect may take, and the few commands that fred sends then.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long no command may succeed before the client counts as frozen.
const FROZEN_AFTER: Duration = Duration::from_secs(5);
/// The same while fred says that it is reconnecting: that may rightly take long.
const STUCK_AFTER: Duration = Duration::from_secs(30);
/// How long a forced reconnection may take before the client is thrown away.
const FORCE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a new client rests after its router task ended.
const REBUILD_PAUSE: Duration = Duration::from_secs(1);
/// Commands that may wait in the client; more are refused at once.
const MAX_QUEUED: usize = 10_000;
/// Ids of old connections that are remembered to be killed.
const MAX_OLD: usize = 64;

/// How to reach Redis.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) url: RedisUrl,
    /// How long a command may take, from the call to the reply.
    pub(crate) command_timeout: Duration,
    /// What CLIENT LIST shows, such as `streamfleet-keeper-web-1`.
    pub(crate) name: String,
}

/// A connection that was ours: where, its id there, and the name it had at first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct OldConnection {
    pub(super) server: Server,
    pub(super) id: i64,
    pub(super) first_name: String,
}

/// What a connection and its watching task share.
pub(super) struct Shared {
    pub(super) options: Options,
    /// `None` where each command brings its own deadline.
    default_timeout: Option<Duration>,
    slot: RwLock<Slot>,
    reconnects: watch::Sender<u64>,
    ids: Mutex<Ids>,
    requests: mpsc::Sender<Request>,
    suspects: Suspects,
}

/// The client in use. It is empty only once the connection was closed.
#[derive(Default)]
struct Slot {
    link: Option<Link>,
    /// What the watching task has to follow next, after somebody replaced the client.
    next: Option<Followed>,
    /// Rises with each client, so that nobody replaces one twice for the same reason.
    generation: u64,
}

/// A client, what it tells of its connections, and its router task.
type Followed = (Client, Events, ConnectHandle);

/// One client of fred. Dropping it ends its router task, and with that its connections.
struct Link {
    client: Client,
    generation: u64,
    router: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.router.abort();
    }
}

#[derive(Default)]
struct Ids {
    current: HashMap<Server, i64>,
    first_name: String,
    old: Vec<OldConnection>,
}

/// What the watching task is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// Connect anew: the server became a replica, or nothing succeeds any more.
    Reconnect { generation: u64 },
}

/// Owns the shared state: dropping it closes the connection and ends the watching task.
pub(super) struct Guard {
    shared: Arc<Shared>,
    watcher: AbortHandle,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.clear();
        self.watcher.abort();
    }
}

impl std::ops::Deref for Guard {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("url", &self.shared.options.url)
            .field("name", &self.shared.options.name)
            .finish_non_exhaustive()
    }
}

impl Guard {
    /// Connects once. From then on the connection is kept up for ever.
    pub(super) async fn connect(
        options: &Options,
        default_timeout: Option<Duration>,
    ) -> Result<Self, ConnectError> {
        let secrets = options.url.secrets();
        let failed = |error: &Error| {
            ConnectError::Backend(backend_error(
                connect_kind(error),
                error.details(),
                &secrets,
            ))
        };
        let client = build(options, default_timeout, true).map_err(|error| failed(&error))?;
        let mut events = client.reconnect_rx();
        let mut router = client.connect();
        // From here on an early return drops the link, and that ends the router.
        let link = Link {
            client,
            generation: 0,
            router: router.abort_handle(),
        };
        let tries = u32::try_from(options.url.hosts().clamp(1, 3)).unwrap_or(1);
        let connected = tokio::time::timeout(CONNECT_TIMEOUT * tries, async {
            tokio::select! {
                () = until_connected(&link.client) => Ok(()),
                ended = &mut router => Err(ended),
            }
        });
        match connected.await {
            Ok(Ok(())) => {}
            Ok(Err(Ok(Err(error)))) => return Err(failed(&error)),
            Ok(Err(_)) => return Err(not_connected("the client ended".to_owned())),
            Err(_) => {
                return Err(not_connected(format!(
                    "no answer within {:?}",
                    CONNECT_TIMEOUT * tries
                )));
            }
        }
        drain(&mut events);
        let (requests, asked) = mpsc::channel(1);
        let shared = Arc::new(Shared {
            options: options.clone(),
            default_timeout,
            slot: RwLock::default(),
            reconnects: watch::Sender::new(0),
            ids: Mutex::default(),
            requests,
            suspects: Suspects::default(),
        });
        shared.remember_ids(&link.client);
        let client = link.client.clone();
        shared.write_slot().link = Some(link);
        let watcher = tokio::spawn(watch_over(
            Arc::clone(&shared),
            client,
            events,
            router,
            asked,
        ));
        Ok(Self {
            shared,
            watcher: watcher.abort_handle(),
        })
    }
}

impl Shared {
    /// The client in use, and which one it is.
    pub(super) fn client(&self) -> Result<(Client, u64), BackendError> {
        let slot = self.slot.read().unwrap_or_else(PoisonError::into_inner);
        match &slot.link {
            Some(link) => Ok((link.client.clone(), link.generation)),
            None => Err(BackendError::new(
                BackendKind::Fatal,
                "the connection was closed",
            )),
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.options.url.is_cluster()
    }

    pub(super) fn reconnects(&self) -> watch::Receiver<u64> {
        self.reconnects.subscribe()
    }

    /// An error of fred as callers see it.
    pub(super) fn error(&self, error: &Error) -> BackendError {
        backend_error(
            client_kind(error),
            error.details(),
            &self.options.url.secrets(),
        )
    }

    /// Asks for a new connection. Asking again while one is being made does nothing.
    pub(super) fn reconnect(&self, generation: u64) {
        let _ = self.requests.try_send(Request::Reconnect { generation });
    }

    /// Notes that a command succeeded.
    pub(super) fn succeeded(&self, slot: u16) {
        self.suspects.clear(slot);
    }

    /// Notes that a command got no reply within its time; acts when that is no accident any more.
    pub(super) fn timed_out(&self, slot: u16, since: Instant, client: &Client, generation: u64) {
        let limit = if client.is_connected() {
            FROZEN_AFTER
        } else {
            STUCK_AFTER
        };
        if self.suspects.add(slot, since) >= limit {
            self.suspects.clear(slot);
            self.warn(
                "redis does not answer, connecting anew",
                &"no reply in time",
            );
            self.reconnect(generation);
        }
    }

    /// Throws the client away at once, and with it what is in flight. The new one connects by itself
    /// and takes commands already.
    pub(super) fn replace(&self, generation: u64) {
        let mut slot = self.write_slot();
        if slot.generation != generation || slot.link.is_none() {
            return;
        }
        match self.next_client(&mut slot) {
            // The watching task sees the end of the old router.
            Ok(next) => slot.next = Some(next),
            Err(error) => self.warn("failed to build a redis client", &self.error(&error)),
        }
    }

    /// The connections that were ours before, taken out.
    pub(super) fn take_old(&self) -> Vec<OldConnection> {
        std::mem::take(&mut self.lock_ids().old)
    }

    /// Puts back what could not be killed yet.
    pub(super) fn keep_old(&self, old: OldConnection) {
        let mut ids = self.lock_ids();
        if ids.old.len() < MAX_OLD {
            ids.old.push(old);
        }
    }

    fn lock_ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_slot(&self) -> std::sync::RwLockWriteGuard<'_, Slot> {
        self.slot.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear(&self) {
        self.write_slot().link = None;
    }

    /// Closes the connection: commands that are in flight may end first, up to a second.
    pub(super) async fn close(&self, politely: bool) {
        let Some(link) = self.write_slot().link.take() else {
            return;
        };
        if politely {
            let _ = tokio::time::timeout(Duration::from_secs(1), link.client.quit()).await;
        }
    }

    /// Compares the ids of the connections with those known; the ones that are gone become old.
    fn remember_ids(&self, client: &Client) {
        let mut ids = self.lock_ids();
        let next = client.connection_ids();
        let first_name = std::mem::replace(&mut ids.first_name, client.id().to_owned());
        for (server, id) in std::mem::replace(&mut ids.current, next) {
            if ids.current.get(&server) != Some(&id) && ids.old.len() < MAX_OLD {
                ids.old.push(OldConnection {
                    server,
                    id,
                    first_name: first_name.clone(),
                });
            }
        }
    }

    /// What to follow next; `None` when the connection was closed.
    fn followed(&self) -> Option<Result<Followed, Error>> {
        let mut slot = self.write_slot();
        slot.link.as_ref()?;
        match slot.next.take() {
            Some(next) => Some(Ok(next)),
            None => Some(self.next_client(&mut slot)),
        }
    }

    /// Puts a new client in the place of the old one.
    fn next_client(&self, slot: &mut Slot) -> Result<Followed, Error> {
        let client = build(&self.options, self.default_timeout, false)?;
        let events = client.reconnect_rx();
        let router = client.connect();
        slot.generation += 1;
        let generation = slot.generation;
        slot.link = Some(Link {
            client: client.clone(),
            generation,
            router: router.abort_handle(),
        });
        Ok((client, events, router))
    }

    fn warn(&self, what: &str, error: &dyn fmt::Display) {
        tracing::warn!(connection = %self.options.name, %error, "{what}");
    }
}

/// Tells of every single connection that was made; the client as a whole is ready a moment later.
type Events = broadcast::Receiver<Server>;

fn drain(events: &mut Events) {
    while !matches!(
        events.try_recv(),
        Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed)
    ) {}
}

/// Waits until the client is ready. Its own wait may miss the moment, so it is asked again.
async fn until_connected(client: &Client) {
    while !client.is_connected() {
        let _ = tokio::time::timeout(Duration::from_millis(25), client.wait_for_connect()).await;
        // A failed attempt ends the wait at once.
        if !client.is_connected() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn not_connected(text: String) -> ConnectError {
    BackendError::new(BackendKind::NotExecuted, text).into()
}

/// Follows one client after the other until the connection is dropped.
async fn watch_over(
    shared: Arc<Shared>,
    mut client: Client,
    mut events: Events,
    mut router: ConnectHandle,
    mut requests: mpsc::Receiver<Request>,
) {
    name_connections(&shared, &client).await;
    loop {
        watch_one(&shared, &client, &mut events, &mut router, &mut requests).await;
        router.abort();
        loop {
            match shared.followed() {
                None => return,
                Some(Ok(next)) => {
                    (client, events, router) = next;
                    break;
                }
                Some(Err(error)) => {
                    shared.warn("failed to build a redis client", &shared.error(&error));
                    tokio::time::sleep(REBUILD_PAUSE).await;
                }
            }
        }
    }
}

/// Follows one client until it has to be replaced.
async fn watch_one(
    shared: &Shared,
    client: &Client,
    events: &mut Events,
    router: &mut ConnectHandle,
    requests: &mut mpsc::Receiver<Request>,
) {
    let born = Instant::now();
    let generation = shared.client().map_or(0, |(_, generation)| generation);
    let mut made = false;
    loop {
        tokio::select! {
            event = events.recv(), if !made => match event {
                // The ids of a node that joins a cluster are known a moment after its event.
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    made = true;
                }
                // Only when the client is gone, which ends the router too.
                Err(broadcast::error::RecvError::Closed) => tokio::time::sleep(REBUILD_PAUSE).await,
            },
            () = until_connected(client), if made => {
                made = false;
                drain(events);
                established(shared, client).await;
            }
            ended = &mut *router => {
                if let Ok(Err(error)) = ended {
                    shared.warn("the redis client ended, building a new one", &shared.error(&error));
                    // One that ends at once, for a reason that stays, must not spin.
                    tokio::time::sleep(REBUILD_PAUSE.saturating_sub(born.elapsed())).await;
                }
                return;
            }
            request = requests.recv() => {
                let Some(Request::Reconnect { generation: wanted }) = request else { return };
                if wanted == generation && !force(shared, client).await {
                    return;
                }
            }
        }
    }
}

/// Connects anew with the same client; whether that went well.
async fn force(shared: &Shared, client: &Client) -> bool {
    // In a cluster fred keeps connections that look healthy, so a frozen node would stay.
    if shared.is_cluster() {
        return false;
    }
    matches!(
        tokio::time::timeout(FORCE_TIMEOUT, client.force_reconnection()).await,
        Ok(Ok(()))
    )
}

/// Tells that a connection was made, after its id is known.
async fn established(shared: &Shared, client: &Client) {
    shared.remember_ids(client);
    shared.reconnects.send_modify(|count| *count += 1);
    name_connections(shared, client).await;
}

/// Gives every connection the name that people look for in CLIENT LIST. Refusals do not matter.
async fn name_connections(shared: &Shared, client: &Client) {
    let allowed = |letter: &char| letter.is_ascii_graphic();
    let name: String = shared.options.name.chars().filter(allowed).collect();
    for server in client.connection_ids().into_keys() {
        let options = CallOptions {
            cluster_node: shared.is_cluster().then_some(server),
            timeout: Some(CONNECT_TIMEOUT),
            ..CallOptions::default()
        };
        let command = CustomCommand::new_static("CLIENT SETNAME", ClusterHash::Random, false);
        let _ = client
            .with_options(&options)
            .custom_raw(command, vec![name.as_str()])
            .await;
    }
}

/// Commands that got no reply, by slot, so that one frozen node of a cluster shows while the
/// others answer. Without a cluster everything is in slot 0.
#[derive(Default)]
struct Suspects {
    /// How many slots are in the map: the price of a success is one load.
    len: AtomicUsize,
    by_slot: Mutex<HashMap<u16, (u32, Instant)>>,
}

impl Suspects {
    fn clear(&self, slot: u16) {
        if self.len.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut map = self.by_slot.lock().unwrap_or_else(PoisonError::into_inner);
        map.remove(&slot);
        self.len.store(map.len(), Ordering::Release);
    }

    /// How long nothing succeeded, from the second timeout on.
    fn add(&self, slot: u16, since: Instant) -> Duration {
        let mut map = self.by_slot.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, first) = map.entry(slot).or_insert((0, since));
        *count += 1;
        let silent = if *count < 2 {
            Duration::ZERO
        } else {
            first.elapsed()
        };
        self.len.store(map.len(), Ordering::Release);
        silent
    }
}

fn build(
    options: &Options,
    default_timeout: Option<Duration>,
    fail_fast: bool,
) -> Result<Client, Error> {
    let url = &options.url;
    let config = Config {
        fail_fast,
        username: url.user.clone(),
        password: url.password.clone(),
        database: url.database,
        server: server_config(&url.place),
        // RESP3 answers reads of streams with a map, which loses their order.
        version: RespVersion::RESP2,
        #[cfg(feature = "tls")]
        tls: if url.tls {
            Some(fred::types::config::TlsConnector::default_rustls()?.into())
        } else {
            None
        },
        ..Config::default()
    };
    let connection = ConnectionConfig {
        connection_timeout: CONNECT_TIMEOUT,
        internal_command_timeout: CONNECT_TIMEOUT,
        // More than one would send a command again whose reply was lost: a duplicate.
        max_command_attempts: 1,
        max_command_buffer_len: MAX_QUEUED,
        auto_client_setname: true,
        // Error replies go to the one command that got them. As a reason to reconnect, fred would
        // hand them to everything in flight, also to what was executed.
        reconnect_errors: Vec::new(),
        tcp: TcpConfig {
            nodelay: Some(true),
            keepalive: Some(socket2::TcpKeepalive::new().with_time(Duration::from_secs(15))),
            #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
            user_timeout: Some(Duration::from_secs(10)),
            ..TcpConfig::default()
        },
        ..ConnectionConfig::default()
    };
    let performance = PerformanceConfig {
        default_command_timeout: default_timeout.unwrap_or(Duration::ZERO),
        broadcast_channel_capacity: 1_024,
        ..PerformanceConfig::default()
    };
    // fred adds its jitter before it cuts at the longest delay, so that has to differ as well.
    let longest = 1_500 + fastrand::u32(0..=500);
    let policy = ReconnectPolicy::new_exponential(0, 50, longest, 2);
    Ok(Client::new(
        config,
        Some(performance),
        Some(connection),
        Some(policy),
    ))
}

fn server_config(place: &Place) -> ServerConfig {
    let servers = |hosts: &[super::url::Host]| {
        hosts
            .iter()
            .map(|host| Server::new(host.name.as_str(), host.port))
            .collect()
    };
    match place {
        Place::One(host) => ServerConfig::Centralized {
            server: Server::new(host.name.as_str(), host.port),
        },
        Place::Cluster(hosts) => ServerConfig::Clustered {
            hosts: servers(hosts),
            policy: ClusterDiscoveryPolicy::UseCache,
        },
        Place::Sentinel {
            hosts,
            service,
            user,
            password,
        } => ServerConfig::Sentinel {
            hosts: servers(hosts),
            service_name: service.clone(),
            username: user.clone(),
            password: password.clone(),
        },
        Place::Unix(path) => ServerConfig::Unix { path: path.clone() },
    }
}

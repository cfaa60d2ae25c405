//! One client of fred behind a pointer that can be swapped.
//!
//! Layer 2, used by `conn`, `blocking` and `subscriber` only. It owns the client in use, when it is
//! replaced, and the ids that its connections had. It knows no commands.
//!
//! What fred does not do by itself: it never notices a server that is frozen while somebody goes on
//! writing to it, its router task ends on some errors, and a dropped client stays connected.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientInterface, ClientLike};
use fred::types::ConnectHandle;
use fred::types::config::Server;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::class::{backend_error, client_kind, connect_kind};
use super::settings::{CONNECT_TIMEOUT, build};
use super::suspects::Suspects;
use super::url::RedisUrl;
use super::watcher::{Events, until_connected, watch_over};
use crate::error::{BackendError, BackendKind, ConnectError};

/// How long no command may succeed before the client counts as frozen.
const FROZEN_AFTER: Duration = Duration::from_secs(5);
/// The same while fred says that it is reconnecting: that may rightly take long.
const STUCK_AFTER: Duration = Duration::from_secs(30);
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
    /// Why there is no connection, until there is one again.
    outage: Mutex<Option<String>>,
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
pub(super) type Followed = (Client, Events, ConnectHandle);

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
        let mut events = Events::new(&client);
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
        events.drain();
        let (requests, asked) = mpsc::channel(1);
        let shared = Arc::new(Shared {
            options: options.clone(),
            default_timeout,
            slot: RwLock::default(),
            reconnects: watch::Sender::new(0),
            ids: Mutex::default(),
            requests,
            suspects: Suspects::default(),
            outage: Mutex::default(),
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

    /// Notes that a connection was made again, after its id is known, and tells it.
    pub(super) fn found(&self, client: &Client) {
        self.remember_ids(client);
        self.reconnects.send_modify(|count| *count += 1);
        if self.lock_outage().take().is_some() {
            tracing::info!(connection = %self.options.name, "connected to redis again");
        }
    }

    /// Notes why a connection was lost or not made. One line is logged per outage, however long.
    pub(super) fn lost(&self, error: &Error) {
        let text = backend_error(
            BackendKind::Ambiguous,
            error.details(),
            &self.options.url.secrets(),
        );
        if self.lock_outage().replace(text.to_string()).is_none() {
            self.warn("lost the connection to redis, connecting again", &text);
        }
    }

    fn lock_outage(&self) -> MutexGuard<'_, Option<String>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error of fred as callers see it.
    pub(super) fn error(&self, error: &Error) -> BackendError {
        let kind = client_kind(error);
        // A command that waited in vain says what it waited for.
        if let (ErrorKind::Timeout, Some(cause)) = (error.kind(), &*self.lock_outage()) {
            return BackendError::new(kind, format!("no reply in time, not connected: {cause}"));
        }
        backend_error(kind, error.details(), &self.options.url.secrets())
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
    pub(super) fn followed(&self) -> Option<Result<Followed, Error>> {
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
        let events = Events::new(&client);
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

    pub(super) fn warn(&self, what: &str, error: &dyn fmt::Display) {
        tracing::warn!(connection = %self.options.name, %error, "{what}");
    }
}

fn not_connected(text: String) -> ConnectError {
    BackendError::new(BackendKind::NotExecuted, text).into()
}

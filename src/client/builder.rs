//! The settings of a client, their limits, and the first connection.
//!
//! Layer 4. Everything is checked here, before anything is sent: combinations that cannot work, a
//! server that is too old, and one that would throw queued tasks away.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::api::Client;
use super::ids::IdSource;
use super::shared::{Owner, Shared};
use crate::error::{ConfigError, ConnectError, check_range};
use crate::id::{ClientId, Prefix};
use crate::options::DEFAULT_MAX_PAYLOAD_BYTES;
use crate::store::Store;
use crate::store::conn::{Conn, Options as ConnOptions, info_field};
use crate::store::url::RedisUrl;

/// The oldest Redis that has all we need: functions of streams, and `#!lua` flags.
const OLDEST_REDIS: (u32, u32) = (7, 0);
/// The largest payload that may be allowed: a string of Redis has at most 512 MiB.
const LARGEST_PAYLOAD: usize = 256 * 1024 * 1024;
const LARGEST_BUFFER: usize = 10_000_000;

/// What a client was set to.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) prefix: Prefix,
    pub(crate) max_payload: usize,
    pub(crate) enqueue_deadline: Duration,
    /// Tasks of one queue that may wait for their answer.
    pub(crate) buffer: usize,
    pub(crate) client_dead_after: Duration,
    pub(crate) waiter_silence: Duration,
    pub(crate) command_timeout: Duration,
}

/// Configures a [`Client`]. Made by [`Client::builder`].
///
/// ```no_run
/// # async fn example() -> Result<(), streamfleet::ConnectError> {
/// use std::time::Duration;
/// use streamfleet::Client;
///
/// let client = Client::builder("redis://127.0.0.1")
///     .prefix("shop")
///     .enqueue_deadline(Duration::from_secs(10))
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a client is made by `connect`"]
pub struct ClientBuilder {
    url: String,
    prefix: Result<Prefix, crate::error::InvalidName>,
    settings: Settings,
    eviction_allowed: bool,
}

impl ClientBuilder {
    pub(super) fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: Ok(Prefix::default()),
            settings: Settings {
                prefix: Prefix::default(),
                max_payload: DEFAULT_MAX_PAYLOAD_BYTES,
                enqueue_deadline: Duration::from_secs(30),
                buffer: 10_000,
                client_dead_after: Duration::from_secs(600),
                waiter_silence: Duration::from_secs(30),
                command_timeout: Duration::from_secs(5),
            },
            eviction_allowed: false,
        }
    }

    /// The first part of every key, so that several fleets can share one Redis; `streamfleet`
    /// unless set. Clients and servers that work together have the same.
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        self.prefix = Prefix::new(prefix);
        self
    }

    /// The largest payload, in bytes; 1 MiB unless set.
    pub const fn max_payload(mut self, bytes: usize) -> Self {
        self.settings.max_payload = bytes;
        self
    }

    /// How long an enqueue is repeated through an outage; 30 seconds unless set. At most half of
    /// [`client_dead_after`](Self::client_dead_after).
    pub const fn enqueue_deadline(mut self, deadline: Duration) -> Self {
        self.settings.enqueue_deadline = deadline;
        self
    }

    /// How many tasks of one queue may wait for Redis to take them; 10,000 unless set. More are
    /// refused as [`EnqueueError::BufferFull`](crate::EnqueueError::BufferFull).
    pub const fn buffer(mut self, tasks: usize) -> Self {
        self.settings.buffer = tasks;
        self
    }

    /// After which time without a sign of life servers remove what a client left behind;
    /// 10 minutes unless set. Servers should be set to the same.
    pub const fn client_dead_after(mut self, time: Duration) -> Self {
        self.settings.client_dead_after = time;
        self
    }

    /// After which time without any outcome the awaited tasks are looked up; 30 seconds unless
    /// set. It is doubled up to 16 times as long while nothing happens.
    pub const fn waiter_silence(mut self, time: Duration) -> Self {
        self.settings.waiter_silence = time;
        self
    }

    /// How long one command may take; 5 seconds unless set.
    pub const fn command_timeout(mut self, timeout: Duration) -> Self {
        self.settings.command_timeout = timeout;
        self
    }

    /// Connect though Redis may throw away our keys when its memory is full. Queued tasks are then
    /// **lost** without a trace. Only for a Redis where that can never happen.
    pub const fn allow_eviction(mut self) -> Self {
        self.eviction_allowed = true;
        self
    }

    /// Checks the settings and connects.
    ///
    /// # Errors
    /// [`ConnectError`]: a setting or the URL cannot work, Redis does not answer or refuses, it is
    /// too old, or it may evict queued tasks.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let settings = Settings {
            prefix: self.prefix?,
            ..self.settings
        };
        settings.check()?;
        let url: RedisUrl = self.url.parse()?;
        let random = Uuid::new_v4();
        let id = ClientId::from_random(random);
        let command_timeout = settings.command_timeout;
        let options = |role: &str| ConnOptions {
            url: url.clone(),
            command_timeout,
            name: format!("streamfleet-{role}-{id}"),
        };
        let conn = Conn::connect(&options("client")).await?;
        if let Err(error) = check_server(&conn, self.eviction_allowed).await {
            conn.close().await;
            return Err(error);
        }
        let store = Store::new(conn, settings.prefix.clone());
        let ids = IdSource::new(Uuid::new_v4());
        let shared = Shared::new(settings, store, options("receiver"), id, ids);
        Ok(Client {
            owner: Arc::new(Owner {
                shared: Arc::new(shared),
            }),
        })
    }
}

impl fmt::Debug for ClientBuilder {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("prefix", &self.prefix)
            .field("settings", &self.settings)
            .field("eviction_allowed", &self.eviction_allowed)
            .finish_non_exhaustive()
    }
}

impl Settings {
    fn check(&self) -> Result<(), ConfigError> {
        check_range("max_payload", self.max_payload, 1, LARGEST_PAYLOAD)?;
        check_range("buffer", self.buffer, 1, LARGEST_BUFFER)?;
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(24 * 60 * 60));
        let brief = Duration::from_millis(10);
        check_range("client_dead_after", self.client_dead_after, second, day)?;
        check_range("waiter_silence", self.waiter_silence, brief, day)?;
        check_range(
            "command_timeout",
            self.command_timeout,
            brief,
            Duration::from_secs(60),
        )?;
        // A producer's last batch is forgotten with the client: a later repeat could not be told
        // from a new batch.
        let longest = self.client_dead_after / 2;
        if self.enqueue_deadline < brief || self.enqueue_deadline > longest {
            let limit = format!("{brief:?} to {longest:?}, half of client_dead_after");
            let value = format!("{:?}", self.enqueue_deadline);
            return Err(ConfigError::new("enqueue_deadline", value, limit));
        }
        Ok(())
    }
}

/// Refuses a server that cannot keep the promise. INFO says both things, and is allowed where
/// CONFIG is not.
async fn check_server(conn: &Conn, eviction_allowed: bool) -> Result<(), ConnectError> {
    let info = conn.info_text("", None).await?;
    let found = info_field(&info, "redis_version").unwrap_or("of unknown version");
    let mut numbers = found
        .split('.')
        .map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < OLDEST_REDIS {
        return Err(ConnectError::TooOld {
            found: found.to_owned(),
        });
    }
    let policy = info_field(&info, "maxmemory_policy").unwrap_or("noeviction");
    if policy != "noeviction" && !eviction_allowed {
        return Err(ConnectError::Evicting {
            policy: policy.to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<(), String> {
        let builder = change(ClientBuilder::new("redis://127.0.0.1"));
        builder.settings.check().map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_fit_together() {
        assert_eq!(check(|builder| builder), Ok(()));
    }

    #[test]
    fn an_enqueue_deadline_beyond_half_of_the_clients_death_names_both() {
        let error =
            check(|builder| builder.enqueue_deadline(Duration::from_secs(301))).unwrap_err();
        assert_eq!(
            error,
            "enqueue_deadline is 301s, but must be 10ms to 300s, half of client_dead_after"
        );
    }

    #[test]
    fn settings_out_of_range_name_value_and_limit() {
        for (error, wanted) in [
            (
                check(|builder| builder.buffer(0)),
                "buffer is 0, but must be 1 to 10000000",
            ),
            (
                check(|builder| builder.max_payload(0)),
                "max_payload is 0, but must be 1 to 268435456",
            ),
            (
                check(|builder| builder.command_timeout(Duration::from_secs(61))),
                "command_timeout is 61s, but must be 10ms to 60s",
            ),
        ] {
            assert_eq!(error.unwrap_err(), wanted);
        }
    }

    #[test]
    fn debug_shows_no_url() {
        let builder = ClientBuilder::new("redis://:hunter2@localhost");
        assert!(!format!("{builder:?}").contains("hunter2"));
    }
}

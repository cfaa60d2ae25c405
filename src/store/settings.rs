//! The settings that keep fred from repeating, losing or hanging on commands.
//!
//! Layer 2, used by `link`. Each one that is not the default says why. The configuration holds the
//! password and is never logged.

use std::time::Duration;

use fred::clients::Client;
use fred::error::Error;
use fred::types::RespVersion;
use fred::types::config::{
    ClusterDiscoveryPolicy, Config, ConnectionConfig, PerformanceConfig, ReconnectPolicy, Server,
    ServerConfig, TcpConfig,
};

use super::link::Options;
use super::url::{Host, Place};

/// How long one attempt to connect may take, and the few commands that fred sends then.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Commands that may wait in the client; more are refused at once.
const MAX_QUEUED: usize = 10_000;

/// A client that is not connected yet. With `fail_fast` its first attempt is its only one.
pub(super) fn build(
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
    // Work goes on within two seconds of a server's return, so the longest wait is well below.
    let longest = 1_000 + fastrand::u32(0..=500);
    let policy = ReconnectPolicy::new_exponential(0, 50, longest, 2);
    Ok(Client::new(
        config,
        Some(performance),
        Some(connection),
        Some(policy),
    ))
}

fn server_config(place: &Place) -> ServerConfig {
    let servers = |hosts: &[Host]| {
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

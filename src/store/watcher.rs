//! The task that follows the clients of one connection: tells of reconnects, replaces the frozen.
//!
//! Layer 2, started by `link` and ended with it. One task a connection, for its whole life.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::{ClientInterface, ClientLike, EventInterface};
use fred::types::config::{Options as CallOptions, Server};
use fred::types::{ClusterHash, ConnectHandle, CustomCommand};
use tokio::sync::{broadcast, mpsc};

use super::link::{Request, Shared};
use super::settings::CONNECT_TIMEOUT;

/// How long a forced reconnection may take before the client is thrown away.
const FORCE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a new client rests after its router task ended.
const REBUILD_PAUSE: Duration = Duration::from_secs(1);

/// What fred tells about the connections of one client.
pub(super) struct Events {
    /// Every single connection that was made; the client as a whole is ready a moment later.
    made: broadcast::Receiver<Server>,
    /// Every connection that was lost or could not be made.
    failed: broadcast::Receiver<(Error, Option<Server>)>,
}

impl Events {
    /// To be made before the client connects, so that nothing is missed.
    pub(super) fn new(client: &Client) -> Self {
        Self {
            made: client.reconnect_rx(),
            failed: client.error_rx(),
        }
    }

    /// Forgets what one connection told several times.
    pub(super) fn drain(&mut self) {
        use broadcast::error::TryRecvError::Lagged;
        while matches!(self.made.try_recv(), Ok(_) | Err(Lagged(_))) {}
        while matches!(self.failed.try_recv(), Ok(_) | Err(Lagged(_))) {}
    }
}

/// Waits until the client is ready. Its own wait may miss the moment, so it is asked again.
pub(super) async fn until_connected(client: &Client) {
    while !client.is_connected() {
        let _ = tokio::time::timeout(Duration::from_millis(25), client.wait_for_connect()).await;
        // A failed attempt ends the wait at once.
        if !client.is_connected() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Follows one client after the other until the connection is dropped.
pub(super) async fn watch_over(
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
            event = events.made.recv(), if !made => match event {
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
                events.drain();
                established(shared, client).await;
            }
            // Lagged or closed: there is nothing to say, or nothing to follow any more.
            Ok((error, _)) = events.failed.recv() => shared.lost(&error),
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
    shared.found(client);
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

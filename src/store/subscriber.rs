//! A connection that listens to channels.
//!
//! Layer 2, used for wake-ups of servers. Messages are hints: one may be lost while the connection
//! is made again or when the listener is slow, and each has a poll behind it. It subscribes again
//! by itself and asks for a sign of life now and then, since a silent channel looks like a dead one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fred::clients::Client;
use fred::interfaces::{ClientLike, EventInterface, PubsubInterface};
use fred::types::config::Options as CallOptions;
use fred::types::{ClusterHash, CustomCommand, Message, Value};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::AbortHandle;

use super::link::{Guard, Options};
use crate::error::ConnectError;

/// Messages that wait for a slow listener; more are dropped.
const MAX_WAITING: usize = 1_024;
/// How often a sign of life is asked for, and how long it may take.
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Listens to channels. Dropping it disconnects.
#[derive(Debug)]
pub(crate) struct Subscriber {
    guard: Arc<Guard>,
    listener: AbortHandle,
}

/// A channel and what was published there.
pub(crate) type ChannelMessage = (Bytes, Bytes);

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Subscriber {
    /// Connects once and listens; from then on it never gives up.
    pub(crate) async fn connect(
        options: &Options,
        channels: Vec<Bytes>,
    ) -> Result<(Self, mpsc::Receiver<ChannelMessage>), ConnectError> {
        let guard = Arc::new(Guard::connect(options, Some(options.command_timeout)).await?);
        let (sender, messages) = mpsc::channel(MAX_WAITING);
        let reconnects = guard.reconnects();
        let (client, _) = guard.client()?;
        let incoming = client.message_rx();
        subscribe(&client, &channels)
            .await
            .map_err(|error| guard.error(&error))?;
        let task = listen(Arc::clone(&guard), channels, incoming, reconnects, sender);
        let listener = tokio::spawn(task).abort_handle();
        Ok((Self { guard, listener }, messages))
    }

    /// Disconnects.
    pub(crate) async fn close(&self) {
        self.listener.abort();
        self.guard.close(false).await;
    }
}

async fn subscribe(client: &Client, channels: &[Bytes]) -> Result<(), fred::error::Error> {
    let names: Vec<String> = channels
        .iter()
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    client.subscribe(names).await
}

async fn listen(
    guard: Arc<Guard>,
    channels: Vec<Bytes>,
    mut incoming: broadcast::Receiver<Message>,
    mut reconnects: watch::Receiver<u64>,
    sender: mpsc::Sender<ChannelMessage>,
) {
    let mut ping = tokio::time::interval(PING_EVERY);
    ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ping.reset();
    loop {
        tokio::select! {
            message = incoming.recv() => match message {
                // A full listener loses the message: it is a hint, and memory is not.
                Ok(message) => drop(sender.try_send(taken(message))),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => {
                    // The client was replaced; the next reconnect brings another one.
                    if reconnects.changed().await.is_err() {
                        return;
                    }
                    incoming = match again(&guard, &channels).await {
                        Some(incoming) => incoming,
                        None => return,
                    };
                }
            },
            changed = reconnects.changed() => {
                if changed.is_err() {
                    return;
                }
                incoming = match again(&guard, &channels).await {
                    Some(incoming) => incoming,
                    None => return,
                };
            }
            _ = ping.tick() => check(&guard).await,
            () = sender.closed() => return,
        }
    }
}

/// Subscribes on the client in use; `None` when the connection was closed.
async fn again(guard: &Guard, channels: &[Bytes]) -> Option<broadcast::Receiver<Message>> {
    let (client, _) = guard.client().ok()?;
    let incoming = client.message_rx();
    if let Err(error) = subscribe(&client, channels).await {
        // The connection was lost again; the next reconnect follows.
        tracing::debug!(error = %guard.error(&error), "failed to subscribe");
    }
    Some(incoming)
}

async fn check(guard: &Guard) {
    let Ok((client, generation)) = guard.client() else {
        return;
    };
    if !client.is_connected() {
        return;
    }
    let options = CallOptions {
        timeout: Some(PING_TIMEOUT),
        ..CallOptions::default()
    };
    let command = CustomCommand::new_static("PING", ClusterHash::Random, false);
    let sent = client
        .with_options(&options)
        .custom_raw(command, Vec::<Value>::new())
        .await;
    if sent.is_err() && client.is_connected() {
        guard.replace(generation);
    }
}

fn taken(message: Message) -> ChannelMessage {
    let value = match message.value {
        Value::Bytes(bytes) => bytes,
        Value::String(text) => text.into_inner(),
        _ => Bytes::new(),
    };
    (message.channel.into_inner(), value)
}

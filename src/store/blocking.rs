//! A connection for one blocking reader of streams, used for nothing else.
//!
//! Layer 2, used by the reader of a server and the receiver of a client. Only one read at a time.
//! A read has its own deadline, because Redis or the way to it may freeze in the middle; past it,
//! or when the caller drops the read, the connection is closed at once, since Redis would hand the
//! next entry to a reader that is gone. To stop a read, unblock it, and take what it returns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fred::error::ErrorKind;
use fred::interfaces::{ClientInterface, ClientLike, Resp3Frame};
use fred::types::config::Options as CallOptions;
use fred::types::{ClusterHash, CustomCommand, Value};
use fred::util::redis_keyslot;
use tokio::sync::watch;

use super::conn::{Conn, Options, number};
use super::entries::{StreamEntries, streams};
use super::link::{Guard, OldConnection};
use crate::error::{BackendError, ConnectError};
use crate::id::{EntryId, duration_ms};

/// What a read may take longer than it blocks.
const GRACE: Duration = Duration::from_secs(3);

/// A connection for one reader.
#[derive(Debug)]
pub(crate) struct BlockingConn {
    guard: Arc<Guard>,
}

/// Where a reader can be woken; it follows reconnects, and does not keep the connection open.
#[derive(Clone, Debug)]
pub(crate) struct UnblockTarget {
    guard: std::sync::Weak<Guard>,
}

impl BlockingConn {
    /// Connects once; from then on it never gives up.
    pub(crate) async fn connect(options: &Options) -> Result<Self, ConnectError> {
        Ok(Self {
            guard: Arc::new(Guard::connect(options, None).await?),
        })
    }

    /// Reads new entries for a consumer: nothing at once (`block` is `None`), or waits for some.
    /// Streams come in the order Redis sent them. In a cluster all keys must be in one slot.
    pub(crate) async fn read_group(
        &self,
        group: &str,
        consumer: &str,
        count: usize,
        block: Option<Duration>,
        keys: &[Bytes],
    ) -> Result<Vec<StreamEntries>, BackendError> {
        let mut args = Vec::with_capacity(8 + 2 * keys.len());
        args.extend(["GROUP", group, consumer].map(text));
        push_count_and_block(&mut args, count, block);
        args.push(Value::from_static_str("STREAMS"));
        args.extend(keys.iter().cloned().map(Value::Bytes));
        args.extend(keys.iter().map(|_| Value::from_static_str(">")));
        let reply = self.send("XREADGROUP", keys.first(), block, args).await?;
        streams(reply, |key| keys.iter().position(|asked| asked == key))
    }

    /// Reads entries after the ids given, and waits for some.
    pub(crate) async fn read(
        &self,
        count: usize,
        block: Duration,
        keys_and_last: &[(Bytes, EntryId)],
    ) -> Result<Vec<StreamEntries>, BackendError> {
        let mut args = Vec::with_capacity(5 + 2 * keys_and_last.len());
        push_count_and_block(&mut args, count, Some(block));
        args.push(Value::from_static_str("STREAMS"));
        args.extend(
            keys_and_last
                .iter()
                .map(|(key, _)| Value::Bytes(key.clone())),
        );
        args.extend(
            keys_and_last
                .iter()
                .map(|(_, last)| text(&last.to_string())),
        );
        let first = keys_and_last.first().map(|(key, _)| key);
        let reply = self.send("XREAD", first, Some(block), args).await?;
        streams(reply, |key| {
            keys_and_last.iter().position(|(asked, _)| asked == key)
        })
    }

    /// What [`Conn::unblock`] needs to wake a read of this connection.
    pub(crate) fn unblock_target(&self) -> UnblockTarget {
        UnblockTarget {
            guard: Arc::downgrade(&self.guard),
        }
    }

    /// Kills the connections that this one had before: to Redis they may still be alive, and take
    /// entries that nobody sees. Where the ACL forbids it, nothing happens.
    pub(crate) async fn kill_old(&self, by: &Conn) {
        for old in self.guard.take_old() {
            if let Err(error) = kill(&old, &self.guard.options.name, by).await {
                tracing::debug!(%error, "failed to kill an old connection");
                if error.kind().is_transient() {
                    self.guard.keep_old(old);
                }
            }
        }
    }

    /// Counts the times the connection was made again.
    pub(crate) fn reconnects(&self) -> watch::Receiver<u64> {
        self.guard.reconnects()
    }

    /// Disconnects. A read that is in flight ends with an error.
    pub(crate) async fn close(&self) {
        self.guard.close(false).await;
    }

    /// Makes ids on the same server look like connections that were lost.
    #[cfg(test)]
    pub(super) fn pretend_old(&self, ids: &[i64]) {
        let (client, _) = self.guard.client().unwrap();
        let server = client.connection_ids().into_keys().next().unwrap();
        for id in ids {
            let first_name = client.id().to_owned();
            self.guard.keep_old(OldConnection {
                server: server.clone(),
                id: *id,
                first_name,
            });
        }
    }

    async fn send(
        &self,
        name: &'static str,
        key: Option<&Bytes>,
        block: Option<Duration>,
        args: Vec<Value>,
    ) -> Result<Resp3Frame, BackendError> {
        let (client, generation) = self.guard.client()?;
        let slot = key
            .filter(|_| self.guard.is_cluster())
            .map(|key| redis_keyslot(key));
        let hash = slot.map_or(ClusterHash::Random, ClusterHash::Custom);
        let options = CallOptions {
            timeout: Some(block.unwrap_or_default().saturating_add(GRACE)),
            ..CallOptions::default()
        };
        let since = Instant::now();
        let mut flight = InFlight {
            guard: &self.guard,
            generation,
            landed: false,
        };
        let command = CustomCommand::new_static(name, hash, block.is_some());
        let sent = client
            .with_options(&options)
            .custom_raw(command, args)
            .await;
        flight.landed = true;
        match sent {
            Ok(frame) => {
                self.guard.succeeded(0);
                Ok(frame)
            }
            Err(error) => {
                if *error.kind() == ErrorKind::Timeout {
                    if client.is_connected() {
                        tracing::warn!(
                            connection = %self.guard.options.name,
                            "a read got no reply, connecting anew"
                        );
                        self.guard.replace(generation);
                    } else {
                        self.guard.timed_out(0, since, &client, generation);
                    }
                }
                Err(self.guard.error(&error))
            }
        }
    }
}

/// Closes the connection if the read is dropped before it returned.
struct InFlight<'a> {
    guard: &'a Guard,
    generation: u64,
    landed: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.landed {
            self.guard.replace(self.generation);
        }
    }
}

impl Conn {
    /// Wakes the read of a blocking connection, which then returns nothing. Says whether one was
    /// blocked: a read that is about to be sent has to be unblocked again.
    pub(crate) async fn unblock(&self, target: &UnblockTarget) -> Result<bool, BackendError> {
        let Some(guard) = target.guard.upgrade() else {
            return Ok(false);
        };
        let Ok((client, _)) = guard.client() else {
            return Ok(false);
        };
        drop(guard);
        let mut woken = false;
        // In a cluster only the node of the slot is blocked on; the others answer 0.
        for (server, id) in client.connection_ids() {
            if self.is_cluster() && !self.reaches(&server) {
                continue;
            }
            let args = vec![id_arg(id), Bytes::from_static(b"TIMEOUT")];
            woken |= self
                .command_at(&server, "CLIENT UNBLOCK", args)
                .await?
                .int()?
                == 1;
        }
        Ok(woken)
    }
}

/// Kills one connection after its name proved that it is ours: a server that was restarted gives
/// the same ids to others.
async fn kill(old: &OldConnection, name: &str, by: &Conn) -> Result<(), BackendError> {
    if by.is_cluster() && !by.reaches(&old.server) {
        return Ok(());
    }
    let args = vec![Bytes::from_static(b"ID"), id_arg(old.id)];
    let listed = by
        .command_at(&old.server, "CLIENT LIST", args.clone())
        .await?;
    let ours = listed.text()?.split_whitespace().any(|part| {
        part.strip_prefix("name=")
            .is_some_and(|found| found == old.first_name || found == name)
    });
    if ours {
        by.command_at(&old.server, "CLIENT KILL", args).await?;
    }
    Ok(())
}

fn id_arg(id: i64) -> Bytes {
    Bytes::from(id.to_string())
}

fn text(text: &str) -> Value {
    Value::Bytes(Bytes::copy_from_slice(text.as_bytes()))
}

fn push_count_and_block(args: &mut Vec<Value>, count: usize, block: Option<Duration>) {
    args.push(Value::from_static_str("COUNT"));
    args.push(Value::Bytes(number(count.max(1) as u64)));
    if let Some(block) = block {
        // 0 would block for ever.
        args.push(Value::from_static_str("BLOCK"));
        args.push(Value::Bytes(number(duration_ms(block).max(1))));
    }
}

//! The shared connection: commands and scripts, many callers, one at a time on the wire.
//!
//! Layer 2, used by everything above that talks to Redis. It never blocks: a blocking read has a
//! connection of its own (`blocking`). It repeats nothing, except a script that the server did not
//! know. Dropping the future of a command does not cancel it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use fred::clients::Client;
use fred::error::ErrorKind;
use fred::interfaces::{ClientInterface, ClientLike};
use fred::types::config::{Options as CallOptions, Server};
use fred::types::{ClusterHash, CustomCommand, Value};
use fred::util::redis_keyslot;
use tokio::sync::watch;

use super::class::unexpected;
use super::link::Guard;
pub(crate) use super::link::Options;
use super::reply::Reply;
use super::script::Script;
use crate::error::{BackendError, BackendKind, ConnectError};

/// A shared connection. Clones share it; it is closed when the last one is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Conn {
    guard: Arc<Guard>,
}

/// Which process answers for a key, and in which role: it changes at a failover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    pub(crate) run_id: String,
    pub(crate) role: String,
}

/// A number as an argument.
pub(crate) fn number(value: u64) -> Bytes {
    Bytes::from(value.to_string())
}

/// The number of keys: without an allocation where there are as few as usual.
fn count(keys: usize) -> Bytes {
    const DIGITS: &[u8; 10] = b"0123456789";
    match DIGITS.get(keys..=keys) {
        Some(digit) => Bytes::from_static(digit),
        None => number(keys as u64),
    }
}

impl Conn {
    /// Connects once, within 3 seconds for a single host. From then on it never gives up.
    pub(crate) async fn connect(options: &Options) -> Result<Self, ConnectError> {
        let guard = Guard::connect(options, Some(options.command_timeout)).await?;
        Ok(Self {
            guard: Arc::new(guard),
        })
    }

    /// Runs a script by its hash; sends its text if the server does not know it.
    pub(crate) async fn run(
        &self,
        script: &'static Script,
        keys: Vec<Bytes>,
        args: Vec<Bytes>,
    ) -> Result<Reply, BackendError> {
        self.run_hot(script, false, || (keys.clone(), args.clone()))
            .await
    }

    /// The same for what is called for every task: keys and arguments are made again where they are
    /// needed again, once per server and script, instead of being copied in each call.
    ///
    /// `lone`: the call is for a single task. Often its script woke somebody who waits on another
    /// connection: a delivery comes with the reply of its enqueue, a notice with the reply of its
    /// settle. The runtime polls last what it woke first, so the reply would go ahead of what
    /// somebody waits for. With many tasks nobody waits for just one, and the next call should leave.
    pub(crate) async fn run_hot(
        &self,
        script: &'static Script,
        lone: bool,
        words: impl Fn() -> (Vec<Bytes>, Vec<Bytes>),
    ) -> Result<Reply, BackendError> {
        let (slot, values) = self.call(script.sha(), words());
        let reply = self.send("EVALSHA", slot, None, values).await;
        if lone {
            tokio::task::yield_now().await;
        }
        match reply {
            Err(error) if error.kind() == BackendKind::Script => {
                tracing::debug!(script = script.name, "redis did not know a script");
                let (slot, values) = self.call(script.body(), words());
                self.send("EVAL", slot, None, values).await
            }
            result => result,
        }
    }

    /// The slot and the words of one call of a script, which is named by its hash or by its text.
    fn call(
        &self,
        script: Bytes,
        (keys, args): (Vec<Bytes>, Vec<Bytes>),
    ) -> (Option<u16>, Vec<Value>) {
        let slot = self.slot(keys.first().map(|key| &key[..]));
        let mut values = Vec::with_capacity(2 + keys.len() + args.len());
        values.push(Value::Bytes(script));
        values.push(Value::Bytes(count(keys.len())));
        values.extend(keys.into_iter().chain(args).map(Value::Bytes));
        (slot, values)
    }

    /// Sends one command. `key` says where in a cluster; without one, any node answers.
    pub(crate) async fn command(
        &self,
        name: &'static str,
        key: Option<&[u8]>,
        args: Vec<Bytes>,
    ) -> Result<Reply, BackendError> {
        let values = args.into_iter().map(Value::Bytes).collect();
        self.send(name, self.slot(key), None, values).await
    }

    /// All members of a set. SMEMBERS would hang if the first is named `message` (see `reply`).
    pub(crate) async fn members(&self, key: &Bytes) -> Result<Vec<Bytes>, BackendError> {
        let mut found = BTreeSet::new();
        let mut cursor = Bytes::from_static(b"0");
        loop {
            let args = vec![
                key.clone(),
                cursor,
                Bytes::from_static(b"COUNT"),
                number(1_000),
            ];
            let [next, members] = self.command("SSCAN", Some(key), args).await?.into_parts()?;
            for member in members.into_array()? {
                found.insert(member.into_bytes()?);
            }
            cursor = next.into_bytes()?;
            if cursor == "0" {
                return Ok(found.into_iter().collect());
            }
        }
    }

    /// Publishes a message and says how many connections of the node that was asked got it.
    #[cfg(test)]
    pub(crate) async fn publish(
        &self,
        channel: &Bytes,
        message: Bytes,
    ) -> Result<u64, BackendError> {
        self.command("PUBLISH", Some(channel), vec![channel.clone(), message])
            .await?
            .u64()
    }

    /// Sections of INFO, such as `"server memory"`, of the node of `key`.
    pub(crate) async fn info_text(
        &self,
        sections: &str,
        key: Option<&[u8]>,
    ) -> Result<String, BackendError> {
        let sections = sections
            .split_whitespace()
            .map(|section| Bytes::copy_from_slice(section.as_bytes()))
            .collect();
        Ok(self
            .command("INFO", key, sections)
            .await?
            .text()?
            .to_owned())
    }

    /// The process that answers for `key`.
    pub(crate) async fn node(&self, key: &[u8]) -> Result<Node, BackendError> {
        let info = self.info_text("server replication", Some(key)).await?;
        match (info_field(&info, "run_id"), info_field(&info, "role")) {
            (Some(run_id), Some(role)) => Ok(Node {
                run_id: run_id.to_owned(),
                role: role.to_owned(),
            }),
            _ => Err(unexpected("run_id and role in INFO", "neither or one")),
        }
    }

    /// Counts the times the connection was made again.
    pub(crate) fn reconnects(&self) -> watch::Receiver<u64> {
        self.guard.reconnects()
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.guard.is_cluster()
    }

    /// Lets what is in flight end, for at most a second, and disconnects all clones.
    pub(crate) async fn close(&self) {
        self.guard.close(true).await;
    }

    /// Whether this connection has one to the node at `server`.
    pub(super) fn reaches(&self, server: &Server) -> bool {
        self.guard
            .client()
            .is_ok_and(|(client, _)| client.connection_ids().contains_key(server))
    }

    /// Sends a command to one node; in a cluster the caller checked that it is connected.
    pub(super) async fn command_at(
        &self,
        server: &Server,
        name: &'static str,
        args: Vec<Bytes>,
    ) -> Result<Reply, BackendError> {
        let node = self.is_cluster().then(|| server.clone());
        let values = args.into_iter().map(Value::Bytes).collect();
        self.send(name, None, node, values).await
    }

    fn slot(&self, key: Option<&[u8]>) -> Option<u16> {
        key.filter(|_| self.is_cluster()).map(redis_keyslot)
    }

    async fn send(
        &self,
        name: &'static str,
        slot: Option<u16>,
        node: Option<Server>,
        values: Vec<Value>,
    ) -> Result<Reply, BackendError> {
        let (client, generation) = self.guard.client()?;
        let since = Instant::now();
        let hash = slot.map_or(ClusterHash::Random, ClusterHash::Custom);
        let command = CustomCommand::new_static(name, hash, false);
        // Boxed: the future of one command is 5 KB, and the future of every run would hold it.
        let sent = Box::pin(call(&client, command, node, values)).await;
        let suspect = slot.unwrap_or(0);
        match sent {
            Ok(frame) => {
                self.guard.succeeded(suspect);
                let reply = Reply::from_frame(frame);
                if let Err(error) = &reply {
                    self.after_refusal(error, generation);
                }
                reply
            }
            Err(error) => {
                if *error.kind() == ErrorKind::Timeout {
                    self.guard.timed_out(suspect, since, &client, generation);
                }
                Err(self.guard.error(&error))
            }
        }
    }

    /// A primary that became a replica keeps its connections; only a new one finds the primary.
    fn after_refusal(&self, error: &BackendError, generation: u64) {
        if error.kind() == BackendKind::NotExecuted && error.to_string().starts_with("READONLY") {
            self.guard.reconnect(generation);
        }
    }
}

async fn call(
    client: &Client,
    command: CustomCommand,
    node: Option<Server>,
    values: Vec<Value>,
) -> Result<fred::interfaces::Resp3Frame, fred::error::Error> {
    match node {
        None => client.custom_raw(command, values).await,
        Some(_) => {
            let options = CallOptions {
                cluster_node: node,
                ..CallOptions::default()
            };
            client
                .with_options(&options)
                .custom_raw(command, values)
                .await
        }
    }
}

/// The value of one line of INFO.
pub(crate) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

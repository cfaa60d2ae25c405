//! The names of all keys and channels.
//!
//! Layer 2, used by the calls of scripts and commands. A key is `<prefix>:{<queue>}:<kind>`; the
//! braces are literal, so everything of one queue is in one slot of a cluster. Names are checked
//! before they come here, so nothing needs to be escaped.

use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;

use crate::id::{ClientId, Prefix, QueueName};

/// The consumer group of every task stream.
pub(crate) const GROUP: &str = "servers";
/// The field of a plain task in its stream.
pub(crate) const FIELD_PLAIN: &str = "t";
/// The field of a task that has a record.
pub(crate) const FIELD_RECORD: &str = "r";
/// The field of a receiver's entry.
pub(crate) const FIELD_NOTICE: &str = "o";

/// The most queues whose keys are remembered. Beyond it they are made for each call.
const REMEMBERED: usize = 1_000;

/// Names the keys below one prefix.
#[derive(Debug)]
pub(crate) struct Keys {
    prefix: Prefix,
    /// The keys of the queues seen so far: sixteen names are too much to make for every call.
    seen: DashMap<QueueName, Arc<QueueKeys>>,
}

impl Keys {
    pub(crate) fn new(prefix: Prefix) -> Self {
        Self {
            prefix,
            seen: DashMap::new(),
        }
    }

    pub(crate) const fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// The keys of one queue.
    pub(crate) fn queue(&self, queue: &QueueName) -> Arc<QueueKeys> {
        if let Some(keys) = self.seen.get(queue) {
            return Arc::clone(&keys);
        }
        let keys = Arc::new(QueueKeys::new(&format!("{}:{{{queue}}}:", self.prefix)));
        if self.seen.len() < REMEMBERED {
            self.seen.insert(queue.clone(), Arc::clone(&keys));
        }
        keys
    }

    /// Set: the names of all queues.
    pub(crate) fn queues(&self) -> Bytes {
        self.global("queues")
    }

    fn global(&self, kind: &str) -> Bytes {
        Bytes::from(format!("{}:{kind}", self.prefix))
    }
}

macro_rules! queue_keys {
    ($($(#[$docs:meta])* $name:ident = $kind:literal;)*) => {
        /// The keys of one queue, made once; each call clones a reference.
        #[derive(Debug)]
        pub(crate) struct QueueKeys {
            /// `<prefix>:{<queue>}:`
            base: Bytes,
            $($name: Bytes,)*
        }

        impl QueueKeys {
            fn new(base: &str) -> Self {
                Self {
                    $($name: Bytes::from(format!(concat!("{}", $kind), base)),)*
                    base: Bytes::from(base.to_owned()),
                }
            }

            $($(#[$docs])* pub(crate) fn $name(&self) -> Bytes {
                self.$name.clone()
            })*
        }
    };
}

queue_keys! {
    /// Stream with group `servers`: pending and active tasks.
    stream = "s";
    /// Hash: task id to record.
    tasks = "tasks";
    /// Zset by due time.
    scheduled = "scheduled";
    /// Zset by due time.
    retry = "retry";
    /// Zset by the time of archiving.
    archived = "archived";
    /// Zset by the end of retention.
    completed = "completed";
    /// Set of task names that a server did not know.
    unknown = "unknown";
    /// Zset: client id to last sign of life.
    clients = "clients";
    /// Hash: client id to its last batch.
    producers = "producers";
    /// Zset: consumer to last renew.
    servers = "servers";
    /// Hash: entry id to cancel request.
    cancel = "cancel";
    /// Hash: entry id to crashes.
    crashes = "crashes";
    /// Hash: epoch, grace, pause, limits.
    cfg = "cfg";
    /// Hash: counters since ever.
    counters = "n";
    /// Channel of wake-ups (not a key).
    wake = "wake";
}

impl QueueKeys {
    /// Zset: parked tasks of a name, by the time they were first seen.
    pub(crate) fn unknown_name(&self, name: &str) -> Bytes {
        self.of("unknown:", name)
    }

    /// Stream: the receiver of a client.
    pub(crate) fn receiver(&self, client: &ClientId) -> Bytes {
        self.of("r:", client.as_str())
    }

    fn of(&self, kind: &str, name: &str) -> Bytes {
        Bytes::from([&self.base, kind.as_bytes(), name.as_bytes()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_a_queue_is_in_one_slot() {
        let keys = Keys::new(Prefix::new("p").unwrap());
        let queue = keys.queue(&QueueName::new("mail").unwrap());
        let client = ClientId::new("c1").unwrap();
        let names = [
            queue.stream(),
            queue.tasks(),
            queue.scheduled(),
            queue.retry(),
            queue.archived(),
            queue.completed(),
            queue.unknown(),
            queue.unknown_name("a"),
            queue.clients(),
            queue.producers(),
            queue.servers(),
            queue.cancel(),
            queue.crashes(),
            queue.cfg(),
            queue.counters(),
            queue.wake(),
            queue.receiver(&client),
        ];
        let slots: std::collections::BTreeSet<u16> = names
            .iter()
            .map(|name| fred::util::redis_keyslot(name))
            .collect();
        assert_eq!(slots.len(), 1);
        let unlike: std::collections::BTreeSet<&Bytes> = names.iter().collect();
        assert_eq!(unlike.len(), names.len());
        assert_eq!(queue.stream(), "p:{mail}:s");
        assert_eq!(queue.receiver(&client), "p:{mail}:r:c1");
        assert_eq!(keys.queues(), "p:queues");
    }
}

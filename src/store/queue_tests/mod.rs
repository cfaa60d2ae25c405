//! The queue side of the store against a real server: a rig, and one file per subject.

mod end;
mod enqueue;
mod look;
mod pause;
mod promote;
mod sweep;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::blocking::BlockingConn;
use super::reply::Reply;
use super::subscriber::Subscriber;
use super::tests_server::TestRedis;
use super::{Batch, Enqueued, NewTask, Start, Store};
use crate::envelope::{Ending, Envelope, Notice, Parts};
use crate::id::{ClientId, EntryId, Millis, Prefix, QueueName, TaskId};
use crate::options::Codec;

/// An own server, and a queue that `ensure` has made.
pub(super) struct Rig {
    pub(super) redis: TestRedis,
    pub(super) store: Store,
    pub(super) q: QueueName,
    pub(super) epoch: String,
    pub(super) client: ClientId,
}

impl Rig {
    pub(super) async fn start() -> Self {
        let redis = TestRedis::start(&[]).await;
        let store = Store::new(redis.conn("store").await, Prefix::new("p").unwrap());
        let q = QueueName::new("q").unwrap();
        let epoch = store.ensure(&q).await.unwrap().epoch;
        let client = ClientId::new("c1").unwrap();
        Self {
            redis,
            store,
            q,
            epoch,
            client,
        }
    }

    /// Any command.
    pub(super) async fn raw<const N: usize>(&self, command: [&str; N]) -> Reply {
        let args = command[1..]
            .iter()
            .map(|arg| Bytes::copy_from_slice(arg.as_bytes()));
        let name: &'static str = Box::leak(command[0].to_owned().into_boxed_str());
        self.store
            .conn()
            .command(name, None, args.collect())
            .await
            .unwrap()
    }

    pub(super) async fn number<const N: usize>(&self, command: [&str; N]) -> u64 {
        self.raw(command).await.u64().unwrap()
    }

    pub(super) async fn is_nil<const N: usize>(&self, command: [&str; N]) -> bool {
        self.raw(command).await == Reply::Nil
    }

    pub(super) fn key(&self, kind: &str) -> String {
        format!("p:{{q}}:{kind}")
    }

    pub(super) async fn now(&self) -> Millis {
        let parts = self.raw(["TIME"]).await.into_array().unwrap();
        Millis(parts[0].u64().unwrap() * 1000 + parts[1].u64().unwrap() / 1000)
    }

    /// Every key with its whole content.
    pub(super) async fn snapshot(&self) -> BTreeMap<String, Reply> {
        let mut all = BTreeMap::new();
        for key in self.raw(["KEYS", "*"]).await.array().unwrap() {
            let key = key.text().unwrap();
            all.insert(key.to_owned(), self.raw(["DUMP", key]).await);
        }
        all
    }

    pub(super) async fn entries(&self) -> u64 {
        self.number(["XLEN", &self.key("s")]).await
    }

    /// The envelopes in the stream, in order, with their fields.
    pub(super) async fn stream(&self) -> Vec<(EntryId, Bytes, Bytes)> {
        let reply = self.raw(["XRANGE", &self.key("s"), "-", "+"]).await;
        reply
            .into_entries()
            .into_iter()
            .map(|entry| {
                let (field, value) = entry.first_field().unwrap().clone();
                (entry.id, field, value)
            })
            .collect()
    }

    /// Lets a consumer read what is there, without waiting.
    pub(super) async fn deliver(&self, consumer: &str, count: usize) -> Vec<EntryId> {
        let count = count.to_string();
        let key = self.key("s");
        let reply = self
            .raw([
                "XREADGROUP",
                "GROUP",
                "servers",
                consumer,
                "COUNT",
                &count,
                "STREAMS",
                &key,
                ">",
            ])
            .await;
        let key = Bytes::from(key);
        super::entries::streams(reply.into_frame(), |found| (*found == key).then_some(0))
            .unwrap()
            .into_iter()
            .flat_map(|(_, entries)| entries)
            .map(|entry| entry.id)
            .collect()
    }

    /// Hands an entry to an owner that has been idle for so long.
    pub(super) async fn give(&self, entry: EntryId, owner: &str, idle_ms: u64) {
        let (key, entry, idle) = (self.key("s"), entry.to_string(), idle_ms.to_string());
        self.raw([
            "XCLAIM", &key, "servers", owner, "0", &entry, "IDLE", &idle, "JUSTID",
        ])
        .await;
    }

    pub(super) fn batch<'a>(&'a self, number: u64, tasks: &'a [NewTask]) -> Batch<'a> {
        Batch {
            client: &self.client,
            number,
            repeat: false,
            epoch: &self.epoch,
            tracked: true,
            tasks,
        }
    }

    /// Enqueues as batch `number` and gives the entries back.
    pub(super) async fn enqueue(&self, number: u64, tasks: &[NewTask]) -> Vec<Option<EntryId>> {
        match self
            .store
            .enqueue(&self.q, &self.batch(number, tasks))
            .await
            .unwrap()
        {
            Enqueued::Stored {
                first_entry,
                scheduled,
                ..
            } => Enqueued::entries(first_entry, &scheduled, tasks.len()),
            other => panic!("{other:?}"),
        }
    }

    /// What was written to the client's receiver, in order.
    pub(super) async fn notices(&self) -> Vec<(TaskId, Ending)> {
        let reply = self.raw(["XRANGE", &self.key("r:c1"), "-", "+"]).await;
        reply
            .into_entries()
            .into_iter()
            .map(|entry| {
                let (field, value) = entry.first_field().unwrap();
                assert_eq!(field, "o");
                let notice = Notice::decode(value).unwrap();
                (notice.task, notice.ending)
            })
            .collect()
    }

    pub(super) async fn counter(&self, word: &str) -> u64 {
        match self.raw(["HGET", &self.key("n"), word]).await {
            Reply::Nil => 0,
            count => count.u64().unwrap(),
        }
    }

    pub(super) async fn wake_ups(
        &self,
    ) -> (Subscriber, tokio::sync::mpsc::Receiver<(Bytes, Bytes)>) {
        let channel = Bytes::from(self.key("wake"));
        Subscriber::connect(&self.redis.options("wake"), vec![channel])
            .await
            .unwrap()
    }

    pub(super) async fn reader(&self) -> BlockingConn {
        BlockingConn::connect(&self.redis.options("reader"))
            .await
            .unwrap()
    }

    /// Puts a task made by `text` into a state in which it has a record, written as the format says.
    pub(super) async fn recorded(&self, task: &NewTask, state: &str) {
        let id = task.id.to_string();
        self.raw([
            "EVAL",
            "local r = {v = 1, s = ARGV[3], e = ARGV[2], n = ARGV[4], l = ARGV[5], d = 1, c = 2, x = 'oh', k = 'failed'}
             if ARGV[3] == 'pending' then r.i = redis.call('XADD', KEYS[1] .. 's', '*', 'r', ARGV[2]) end
             if ARGV[3] == 'parked' then
               r.p = 1
               redis.call('SADD', KEYS[1] .. 'unknown', ARGV[4])
               redis.call('ZADD', KEYS[1] .. 'unknown:' .. ARGV[4], 1, ARGV[1])
             elseif ARGV[3] ~= 'pending' then
               redis.call('ZADD', KEYS[1] .. ARGV[3], 1, ARGV[1])
             end
             redis.call('HSET', KEYS[1] .. 'tasks', ARGV[1], cmsgpack.pack(r))
             redis.call('ZADD', KEYS[1] .. 'clients', 9e15, ARGV[5])",
            "1",
            &self.key(""),
            &id,
            std::str::from_utf8(&task.envelope).unwrap(),
            state,
            &task.name,
            "c1",
        ])
        .await;
    }
}

/// A task with a real envelope.
pub(super) fn task() -> NewTask {
    task_with(Parts::default())
}

pub(super) fn task_with(parts: Parts) -> NewTask {
    let id = TaskId::from_uuid(Uuid::now_v7());
    let envelope = Envelope {
        id: id.clone(),
        name: "mail.send".into(),
        client: Some(ClientId::new("c1").unwrap()),
        enqueued_at: Millis(1),
        payload: Bytes::from_static(b"\xa3abc"),
        codec: Codec::MessagePack,
        attempt: 0,
        parts,
    };
    NewTask {
        id,
        name: "mail.send".into(),
        envelope: envelope.encode(),
        client: Some(ClientId::new("c1").unwrap()),
        start: Start::Now,
    }
}

/// A task whose "envelope" is text, which scripts do not mind.
pub(super) fn text(envelope: &str) -> NewTask {
    NewTask {
        envelope: Bytes::copy_from_slice(envelope.as_bytes()),
        ..task()
    }
}

pub(super) fn at(start: Start, envelope: &str) -> NewTask {
    NewTask {
        start,
        ..text(envelope)
    }
}

pub(super) fn notice(task: &TaskId, ending: Ending) -> Bytes {
    Notice {
        task: task.clone(),
        ending,
    }
    .encode()
}

pub(super) const HOUR: Duration = Duration::from_secs(3_600);

//! The delivery side against a real server: the ownership matrix of docs/design, row by row, and
//! what strangers, full memory, wrong types and jumping clocks do to it.

mod clock;
mod ensure;
mod fail;
mod hostile;
mod park;
mod reclaim;
mod release;
mod renew;
mod settle;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::Store;
use super::fail::{Fail, Failed, Verdict};
use super::lease::Lease;
use super::park::Parking;
use super::reclaim::{ReclaimCursor, ReclaimTimes, Reclaimed};
use super::record::Record;
use super::renew::{RenewTimes, Renewed};
use super::reply::Reply;
use super::settle::{Settled, Success};
use super::subscriber::{ChannelMessage, Subscriber};
use super::tests_server::TestRedis;
use crate::error::BackendError;
use crate::id::{ClientId, ConsumerId, EntryId, Prefix, QueueName, TaskId};

/// Ten times the defaults, so that a slow machine is no silent one.
const LEASE: Duration = Duration::from_secs(150);
const QUIET: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_secs(40);
/// Longer than a lease.
const DEAD_MS: u64 = 200_000;

/// Who holds an entry that `me` got with delivery count 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Me,
    /// Me, but the count went on.
    Moved,
    /// Another, after a reclaim.
    Another,
    /// Another, with the count that I know: only the owner differs.
    AnotherSameCount,
    Released,
    Gone,
}

const NOT_ME: [Owner; 5] = [
    Owner::Moved,
    Owner::Another,
    Owner::AnotherSameCount,
    Owner::Released,
    Owner::Gone,
];

/// One pending entry: id, owner, idle milliseconds, delivery count.
type Row = (EntryId, String, u64, u64);

/// One queue on a server of its own, with a client `waiter` that lives.
struct Scene {
    store: Store,
    q: QueueName,
    redis: TestRedis,
    archive_most: usize,
    archive_keep: Duration,
}

impl Scene {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(args: &[(&str, &str)]) -> Self {
        let redis = TestRedis::start(args).await;
        let store = Store::new(redis.conn("delivery").await, Prefix::new("p").unwrap());
        let scene = Self {
            store,
            q: QueueName::new("q").unwrap(),
            redis,
            archive_most: 10_000,
            archive_keep: Duration::from_secs(90 * 24 * 3600),
        };
        scene.store.ensure(&scene.q).await.unwrap();
        scene.send("ZADD p:{q}:clients 1 waiter").await;
        scene.servers_were_seen().await;
        scene
    }

    /// A command whose arguments have no spaces.
    async fn send(&self, line: &str) -> Reply {
        self.try_send(line).await.unwrap()
    }

    async fn try_send(&self, line: &str) -> Result<Reply, BackendError> {
        let mut words = line
            .split(' ')
            .map(|word| Bytes::copy_from_slice(word.as_bytes()));
        let name = String::from_utf8(words.next().unwrap().to_vec()).unwrap();
        self.store
            .conn()
            .command(String::leak(name), None, words.collect())
            .await
    }

    async fn now(&self) -> u64 {
        let time = self.send("TIME").await;
        let parts = time.array().unwrap();
        parts[0].u64().unwrap() * 1000 + parts[1].u64().unwrap() / 1000
    }

    /// A fleet that is well: a sign just now, no grace.
    async fn servers_were_seen(&self) {
        let now = self.now().await;
        self.send(&format!("HSET p:{{q}}:cfg last_sign {now} grace_end 0"))
            .await;
    }

    async fn cfg(&self, field: &str) -> Option<u64> {
        self.send(&format!("HGET p:{{q}}:cfg {field}"))
            .await
            .optional(|value| value.u64())
            .unwrap()
    }

    async fn put(&self) -> EntryId {
        self.put_as("t", "body").await
    }

    async fn put_as(&self, field: &str, envelope: &str) -> EntryId {
        self.send(&format!("XADD p:{{q}}:s * {field} {envelope}"))
            .await
            .entry_id()
            .unwrap()
    }

    /// Hands everything new to a consumer.
    async fn read_by(&self, consumer: &str) {
        self.send(&format!(
            "XREADGROUP GROUP servers {consumer} COUNT 1000 STREAMS p:{{q}}:s >"
        ))
        .await;
    }

    /// One entry that `me` read, and what has become of it since.
    async fn delivered(&self, owner: Owner) -> Lease {
        let entry = self.put().await;
        self.read_by("me").await;
        let lease = self.lease(entry);
        self.hand(entry, owner).await;
        lease
    }

    fn lease(&self, entry: EntryId) -> Lease {
        Lease {
            queue: self.q.clone(),
            entry,
            count: 1,
        }
    }

    async fn hand(&self, entry: EntryId, owner: Owner) {
        match owner {
            Owner::Me => {}
            Owner::Moved => drop(
                self.send(&format!("XCLAIM p:{{q}}:s servers me 0 {entry}"))
                    .await,
            ),
            Owner::Another => drop(
                self.send(&format!("XCLAIM p:{{q}}:s servers other 0 {entry}"))
                    .await,
            ),
            Owner::AnotherSameCount => {
                drop(
                    self.send(&format!("XCLAIM p:{{q}}:s servers other 0 {entry} JUSTID"))
                        .await,
                );
            }
            Owner::Released => {
                let released = self
                    .store
                    .release(&self.q, &me(), &[(entry, 1, false)])
                    .await;
                assert_eq!(released.unwrap(), 1);
            }
            Owner::Gone => {
                self.send(&format!("XACK p:{{q}}:s servers {entry}")).await;
                self.send(&format!("XDEL p:{{q}}:s {entry}")).await;
            }
        }
    }

    /// Makes a pending entry look idle; owner and count stay.
    async fn idle(&self, entry: EntryId, ms: u64) {
        let row = self.row(entry).await.unwrap();
        self.send(&format!(
            "XCLAIM p:{{q}}:s servers {} 0 {entry} IDLE {ms} JUSTID",
            row.1
        ))
        .await;
    }

    async fn rows(&self) -> Vec<Row> {
        let reply = self.send("XPENDING p:{q}:s servers - + 10000").await;
        let row = |row: &Reply| {
            let row = row.array().unwrap();
            (
                row[0].entry_id().unwrap(),
                row[1].text().unwrap().to_owned(),
                row[2].u64().unwrap(),
                row[3].u64().unwrap(),
            )
        };
        reply.array().unwrap().iter().map(row).collect()
    }

    async fn row(&self, entry: EntryId) -> Option<Row> {
        self.rows().await.into_iter().find(|row| row.0 == entry)
    }

    /// Owner and delivery count of a pending entry.
    async fn owner(&self, entry: EntryId) -> Option<(String, u64)> {
        self.row(entry).await.map(|row| (row.1, row.3))
    }

    async fn in_stream(&self) -> usize {
        usize::try_from(self.send("XLEN p:{q}:s").await.u64().unwrap()).unwrap()
    }

    /// What `waiter` was told, oldest first.
    async fn told(&self) -> Vec<String> {
        let reply = self.send("XRANGE p:{q}:r:waiter - +").await;
        reply
            .into_entries()
            .iter()
            .map(|entry| {
                let (field, value) = entry.first_field().unwrap();
                assert_eq!(field, "o");
                String::from_utf8(value.to_vec()).unwrap()
            })
            .collect()
    }

    async fn counted(&self, word: &str) -> u64 {
        let reply = self.send(&format!("HGET p:{{q}}:n {word}")).await;
        reply.optional(|count| count.u64()).unwrap().unwrap_or(0)
    }

    async fn record(&self, task: &TaskId) -> Option<Record> {
        let reply = self.send(&format!("HGET p:{{q}}:tasks {task}")).await;
        reply
            .optional(|bytes| Record::decode(bytes.bytes()?))
            .unwrap()
    }

    /// A record as the scripts write it.
    async fn write_record(&self, task: &TaskId, state: &str, entry: Option<EntryId>) {
        let body = Bytes::from_static(
            b"local r = {v = 1, s = ARGV[2], e = 'stored', n = 'job', x = 'old error', k = 'failed', f = 5} \
              if ARGV[3] ~= '' then r.i = ARGV[3] end \
              return redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(r))",
        );
        let args = vec![
            body,
            Bytes::from_static(b"1"),
            Bytes::from_static(b"p:{q}:tasks"),
            Bytes::from(task.to_string()),
            Bytes::copy_from_slice(state.as_bytes()),
            Bytes::from(entry.map_or(String::new(), |entry| entry.to_string())),
        ];
        self.store.conn().command("EVAL", None, args).await.unwrap();
    }

    /// Everything in the database, for "nothing was written".
    async fn everything(&self) -> BTreeMap<String, Reply> {
        let mut all = BTreeMap::new();
        for key in self.send("KEYS *").await.array().unwrap() {
            let key = key.text().unwrap();
            all.insert(key.to_owned(), self.send(&format!("DUMP {key}")).await);
        }
        all
    }

    async fn settle_one(&self, entry: EntryId) -> Settled {
        self.store
            .settle(&self.q, &me(), &[success(entry)], false)
            .await
            .unwrap()[0]
    }

    async fn fail(&self, lease: &Lease, verdict: Verdict<'_>) -> Result<Failed, BackendError> {
        let fail = Fail {
            lease,
            task: &task(),
            name: "job",
            client: Some(&waiter()),
            envelope: &Bytes::from_static(b"next"),
            verdict: &verdict,
            cancelled_notice: &Bytes::from_static(b"was-cancelled"),
            archive_most: self.archive_most,
            archive_keep: self.archive_keep,
        };
        self.store.fail(&fail, &me()).await
    }

    async fn park(&self, lease: &Lease) -> Result<bool, BackendError> {
        let park = Parking {
            lease,
            task: &task(),
            name: "job",
            version: None,
            client: Some(&waiter()),
            envelope: &Bytes::from_static(b"body"),
            cancelled_notice: &Bytes::from_static(b"was-cancelled"),
        };
        self.store.park(&park, &me()).await
    }

    async fn renew(&self, held: &[(EntryId, u64)]) -> Renewed {
        let times = RenewTimes {
            interval: INTERVAL,
            quiet: QUIET,
            lease: LEASE,
        };
        self.store
            .renew(&self.q, &me(), held, &times)
            .await
            .unwrap()
    }

    async fn reclaim(&self, room: usize, suspects: bool) -> Reclaimed {
        self.reclaim_from(room, suspects, &mut ReclaimCursor::default())
            .await
    }

    async fn reclaim_from(
        &self,
        room: usize,
        suspects: bool,
        cursor: &mut ReclaimCursor,
    ) -> Reclaimed {
        let times = ReclaimTimes {
            lease: LEASE,
            quiet: QUIET,
        };
        self.store
            .reclaim(&self.q, &me(), room, suspects, &times, cursor)
            .await
            .unwrap()
    }
}

/// Hears the wake-up channel.
struct Wakes {
    _subscriber: Subscriber,
    messages: mpsc::Receiver<ChannelMessage>,
}

impl Wakes {
    async fn of(scene: &Scene) -> Self {
        let channel = Bytes::from_static(b"p:{q}:wake");
        let options = scene.redis.options("wakes");
        let (subscriber, messages) = Subscriber::connect(&options, vec![channel]).await.unwrap();
        Self {
            _subscriber: subscriber,
            messages,
        }
    }

    /// What was published since the last look: everything before a mark of our own.
    async fn so_far(&mut self, scene: &Scene) -> Vec<String> {
        assert_eq!(scene.send("PUBLISH p:{q}:wake mark").await, Reply::Int(1));
        let mut heard = Vec::new();
        loop {
            let message = tokio::time::timeout(Duration::from_secs(10), self.messages.recv()).await;
            let (_, text) = message.unwrap().unwrap();
            if text == "mark" {
                return heard;
            }
            heard.push(String::from_utf8(text.to_vec()).unwrap());
        }
    }
}

fn me() -> ConsumerId {
    ConsumerId::new("me").unwrap()
}

fn waiter() -> ClientId {
    ClientId::new("waiter").unwrap()
}

fn task() -> TaskId {
    TaskId::new("task-1").unwrap()
}

fn success(entry: EntryId) -> Success {
    Success {
        entry,
        record: None,
        client: Some(waiter()),
        notice: Bytes::from(format!("done-{entry}")),
    }
}

fn retry() -> Verdict<'static> {
    Verdict::Retry {
        delay: Duration::from_secs(60),
        error: "no luck",
        reason: "failed",
    }
}

fn archive() -> Verdict<'static> {
    Verdict::Archive {
        reason: "failed",
        error: "no luck",
        notice: Bytes::from_static(b"archived"),
    }
}

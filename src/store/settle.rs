//! Ends deliveries that succeeded.
//!
//! Layer 2. Called by the settler of a server, with everything that finished while its last call
//! was under way. The first completion of an entry wins, whoever sends it.

use bytes::Bytes;

use super::Store;
use super::arg::Args;
use super::keys::QueueKeys;
use super::reply::Reply;
use super::script::script;
use crate::error::BackendError;
use crate::id::{ClientId, ConsumerId, EntryId, QueueName, TaskId};
use crate::store::class::unexpected;

/// The most successes of one script.
pub(crate) const SETTLE_MOST: usize = 100;
/// The most bytes of one script, unless a single success is larger.
const BYTES: usize = 256 * 1024;
/// About as long as the text of an entry id is.
const ENTRY_ID: usize = 20;

script!(
    SETTLE,
    "settle",
    allow_oom,
    [
        "look", "fence", "clock", "count", "notify", "record", "forget"
    ]
);

/// One delivery that succeeded.
#[derive(Clone, Debug)]
pub(crate) struct Success {
    pub(crate) entry: EntryId,
    /// The task's id, if its entry says that it has a record.
    pub(crate) record: Option<TaskId>,
    /// Whom to tell.
    pub(crate) client: Option<ClientId>,
    /// What to tell; may be empty without a client.
    pub(crate) notice: Bytes,
}

/// What became of one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    /// This completion counts.
    Won,
    /// The entry had ended before, or is not ours in strict mode. Neither an error nor a lost lease.
    Gone,
}

impl Store {
    /// Settles successes of one queue, at most 100 and 256 KiB a call to Redis.
    ///
    /// `strict` refuses what is not pending with `me` and deletes nothing then: for one lease after
    /// a failover, which may have given out an entry id twice.
    ///
    /// An error may come after some were settled; repeated, those answer `Gone`.
    pub(crate) async fn settle<'a>(
        &self,
        q: &QueueName,
        me: &ConsumerId,
        successes: impl IntoIterator<Item = &'a Success>,
        strict: bool,
    ) -> Result<Vec<Settled>, BackendError> {
        let successes: Vec<&Success> = successes.into_iter().collect();
        let mut settled = Vec::with_capacity(successes.len());
        let mut rest = &successes[..];
        while !rest.is_empty() {
            let (page, others) = rest.split_at(page_len(rest.iter().copied()));
            self.settle_page(q, me, page, strict, &mut settled).await?;
            rest = others;
        }
        Ok(settled)
    }

    async fn settle_page(
        &self,
        q: &QueueName,
        me: &ConsumerId,
        page: &[&Success],
        strict: bool,
        settled: &mut Vec<Settled>,
    ) -> Result<(), BackendError> {
        let queue = self.keys().queue(q);
        let owner = strict.then_some(me);
        let words = || words(&queue, owner, page);
        let lone = page.len() == 1;
        match self.conn().run_hot(&SETTLE, lone, words).await? {
            Reply::Int(_) => settled.extend(page.iter().map(|_| Settled::Won)),
            Reply::Bytes(each) if each.len() == page.len() => {
                settled.extend(each.iter().map(|byte| match byte {
                    b'1' => Settled::Won,
                    _ => Settled::Gone,
                }));
            }
            _ => return Err(unexpected("one byte per settled entry", "another reply")),
        }
        Ok(())
    }
}

/// The keys and arguments. `owner` where it matters who owns an entry.
fn words(
    queue: &QueueKeys,
    owner: Option<&ConsumerId>,
    page: &[&Success],
) -> (Vec<Bytes>, Vec<Bytes>) {
    let mut keys = Vec::with_capacity(7);
    keys.extend([
        queue.stream(),
        queue.clients(),
        queue.cancel(),
        queue.crashes(),
        queue.counters(),
    ]);
    let mut clients: Vec<&ClientId> = Vec::new();
    let told: Vec<u8> = page
        .iter()
        .map(|success| {
            let client = success.client.as_ref();
            client.map_or(0, |client| number_of(&mut clients, client))
        })
        .collect();
    keys.extend(clients.iter().map(|client| queue.receiver(client)));
    if page.iter().any(|success| success.record.is_some()) {
        keys.push(queue.tasks());
    }

    let notices: usize = page.iter().map(|success| success.notice.len()).sum();
    let mut args = Args::with_capacity(2 + 2 * page.len(), page.len() * ENTRY_ID + notices);
    args.push(Bytes::from(told));
    page.iter().for_each(|success| args.show(success.entry));
    page.iter().for_each(|success| args.copy(&success.notice));
    for (item, success) in page.iter().enumerate() {
        if let Some(task) = &success.record {
            args.show(item + 1);
            args.show(task);
        }
    }
    if let Some(me) = owner {
        args.copy(me.as_str().as_bytes());
    }
    (keys, args.into_vec())
}

/// How many of the first items fit into one script; at least one.
pub(crate) fn page_len<'a>(items: impl IntoIterator<Item = &'a Success>) -> usize {
    let mut bytes = 0_usize;
    let fitting = items
        .into_iter()
        .take(SETTLE_MOST)
        .take_while(|item| {
            bytes = bytes.saturating_add(item.notice.len());
            bytes <= BYTES
        })
        .count();
    fitting.max(1)
}

/// The place of a client in the list, counted from 1. A page has few clients.
fn number_of<'a>(clients: &mut Vec<&'a ClientId>, client: &'a ClientId) -> u8 {
    let at = clients
        .iter()
        .position(|known| *known == client)
        .unwrap_or_else(|| {
            clients.push(client);
            clients.len() - 1
        });
    // At most 100 items, so at most 100 clients.
    u8::try_from(at + 1).unwrap_or(0)
}

//! What Redis thinks a server holds.
//!
//! Layer 2. Called after a reconnect, to be compared with what the server knows: a reply that was
//! lost on the wire left its entries with us. `XREADGROUP … 0` would raise their counts.

use super::Store;
use super::arg;
use super::conn::number;
use super::keys::GROUP;
use super::lease::Delivery;
use super::reply::Reply;
use super::script::script;
use crate::error::BackendError;
use crate::id::{ConsumerId, EntryId, QueueName};

script!(
    OWN_PENDING,
    "own_pending",
    allow_oom,
    ["look", "fence", "forget", "delivery"]
);

impl Store {
    /// The next `n` deliveries of `me` behind an id; fewer only at the end.
    pub(crate) async fn own_pending(
        &self,
        q: &QueueName,
        me: &ConsumerId,
        after: EntryId,
        n: usize,
    ) -> Result<Vec<Delivery>, BackendError> {
        let queue = self.keys().queue(q);
        let mut own = Vec::new();
        let mut from = after;
        // One script answers at most 100 and 256 KiB.
        while own.len() < n {
            let keys = vec![queue.stream(), queue.crashes(), queue.cancel()];
            let args = vec![
                arg::text(me.as_str()),
                arg::behind(Some(from)),
                number((n - own.len()) as u64),
            ];
            let [last, found] = self
                .conn()
                .run(&OWN_PENDING, keys, args)
                .await?
                .into_parts()?;
            own.extend(Delivery::list(q, found)?);
            if last.bytes()?.is_empty() {
                break;
            }
            from = last.entry_id()?;
        }
        Ok(own)
    }

    /// The delivery count of one entry, if it is pending with `me`.
    pub(crate) async fn own_pending_count(
        &self,
        q: &QueueName,
        me: &ConsumerId,
        id: EntryId,
    ) -> Result<Option<u64>, BackendError> {
        let stream = self.keys().queue(q).stream();
        let args = vec![
            stream.clone(),
            arg::text(GROUP),
            arg::shown(id),
            arg::shown(id),
            number(1),
            arg::text(me.as_str()),
        ];
        let reply = self.conn().command("XPENDING", Some(&stream), args).await?;
        match reply.array()?.first() {
            Some(row) => row.array()?.get(3).map(Reply::u64).transpose(),
            None => Ok(None),
        }
    }
}

//! Pages of tasks in one state, for people to look at.
//!
//! Layer 2, called by `inspect`. A page is of one moment; the pages of a list are not, so a task that
//! moves meanwhile may be missed or shown twice. Scripts: `scripts/page_set.lua`,
//! `scripts/page_stream.lua`.

use std::time::Duration;

use bytes::Bytes;

use super::Store;
use super::arg;
use super::enqueue::MAX_BATCH_BYTES;
use super::keys::FIELD_RECORD;
use super::look_up::{given, lossy};
use super::record::Record;
use super::reply::Reply;
use super::script::script;
use crate::error::BackendError;
use crate::id::{ConsumerId, EntryId, Millis, QueueName};

script!(PAGE_SET, "page_set", allow_oom, []);
script!(PAGE_STREAM, "page_stream", allow_oom, ["fence", "position"]);

/// The most tasks of one page.
pub(crate) const MAX_PAGE: usize = 100;

/// Which list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PageOf {
    Pending,
    Active,
    /// By due time.
    Scheduled,
    /// By due time.
    Retry,
    /// By the time of its end.
    Archived,
    /// Of this task name, by the time it was parked; see [`Store::parked_names`].
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the full inspector will list parked tasks")
    )]
    Parked(String),
}

/// Where the next page begins. The default is the first page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PageCursor {
    entry: EntryId,
    /// Score and id of the last one seen in a sorted set.
    member: Option<(u64, Bytes)>,
}

/// One page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    pub(crate) tasks: Vec<Listed>,
    /// `None` after the last page.
    pub(crate) next: Option<PageCursor>,
}

/// One task of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Listed {
    /// In the stream.
    Entry(ListedEntry),
    /// In a sorted set, with the record's raw bytes, which [`Record::decode`] reads; empty if it is missing.
    Recorded {
        id: String,
        score: Millis,
        record: Bytes,
    },
}

/// A task in the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ListedEntry {
    pub(crate) entry: EntryId,
    pub(crate) has_record: bool,
    pub(crate) envelope: Bytes,
    /// Who holds it; `~released` counts as nobody.
    pub(crate) consumer: Option<ConsumerId>,
    /// How long since its owner renewed it, or since it was released.
    pub(crate) idle: Duration,
    /// How often it was delivered.
    pub(crate) count: u64,
}

impl Listed {
    /// The record of a task in a sorted set.
    pub(crate) fn record(&self) -> Option<Result<Record, BackendError>> {
        match self {
            Self::Recorded { record, .. } if !record.is_empty() => Some(Record::decode(record)),
            _ => None,
        }
    }
}

impl Store {
    /// One page of at most `n` tasks.
    pub(crate) async fn page(
        &self,
        q: &QueueName,
        of: &PageOf,
        after: &PageCursor,
        n: usize,
    ) -> Result<Page, BackendError> {
        let n = n.clamp(1, MAX_PAGE);
        let keys = self.keys().queue(q);
        let set = match of {
            PageOf::Pending => return self.page_stream(q, "pending", after, n, b"").await,
            PageOf::Active => return self.page_stream(q, "active", after, n, b"").await,
            PageOf::Scheduled => keys.scheduled(),
            PageOf::Retry => keys.retry(),
            PageOf::Archived => keys.archived(),
            PageOf::Parked(name) => keys.unknown_name(name),
        };
        let (score, member) = match &after.member {
            None => (Bytes::new(), Bytes::new()),
            Some((score, member)) => (arg::shown(score), member.clone()),
        };
        let args = vec![score, member, arg::shown(n), arg::shown(MAX_BATCH_BYTES)];
        let reply = self
            .conn()
            .run(&PAGE_SET, vec![set, keys.tasks()], args)
            .await?;
        let (mut tasks, mut next) = (Vec::new(), None);
        for row in reply.into_array()? {
            let [id, score, record] = row.into_parts()?;
            let score_ms = Millis(score_ms(&score)?);
            next = Some((score_ms.0, id.bytes()?.clone()));
            tasks.push(Listed::Recorded {
                id: lossy(&id)?,
                score: score_ms,
                record: record.into_bytes()?,
            });
        }
        let next = next.map(|member| PageCursor {
            member: Some(member),
            ..PageCursor::default()
        });
        Ok(Page { tasks, next })
    }

    /// A page of the stream; `needle` leaves out envelopes without these bytes.
    pub(super) async fn page_stream(
        &self,
        q: &QueueName,
        kind: &'static str,
        after: &PageCursor,
        n: usize,
        needle: &'static [u8],
    ) -> Result<Page, BackendError> {
        let keys = self.keys().queue(q);
        let args = vec![
            arg::text(kind),
            arg::shown(after.entry),
            arg::shown(n),
            arg::shown(MAX_BATCH_BYTES),
            Bytes::from_static(needle),
        ];
        let reply = self
            .conn()
            .run(&PAGE_STREAM, vec![keys.stream(), keys.cfg()], args)
            .await?;
        let [seen, rows] = reply.into_parts()?;
        Ok(Page {
            tasks: rows
                .into_array()?
                .into_iter()
                .map(|row| read_entry(row).map(Listed::Entry))
                .collect::<Result<_, _>>()?,
            next: given(&seen, Reply::entry_id)?.map(|entry| PageCursor {
                entry,
                ..PageCursor::default()
            }),
        })
    }
}

/// Scores of ours are whole milliseconds; others are cut.
fn score_ms(score: &Reply) -> Result<u64, BackendError> {
    let score: f64 = score.text()?.parse().map_err(|_| score.wrong("a score"))?;
    Ok(score as u64)
}

fn read_entry(row: Reply) -> Result<ListedEntry, BackendError> {
    let [entry, field, envelope, consumer, idle, count] = row.into_parts()?;
    Ok(ListedEntry {
        entry: entry.entry_id()?,
        has_record: field.bytes()? == FIELD_RECORD,
        envelope: envelope.into_bytes()?,
        // The name `~released` is none of ours, so it reads as nobody.
        consumer: given(&consumer, |name| Ok(ConsumerId::new(name.text()?).ok()))?.flatten(),
        idle: Duration::from_millis(idle.u64()?),
        count: count.u64()?,
    })
}

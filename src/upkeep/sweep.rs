//! Removes what has no owner any more, and ends what nobody runs into: receivers and producers of
//! dead clients, consumers of dead servers, fields of entries that are gone, old archived tasks,
//! expired tasks that still wait, and parked tasks whose grace is over.
//!
//! Layer 3. Called by `watch` now and then; every step is bounded, the cursor goes on next time.

use std::time::Duration;

use crate::envelope::{Ending, Envelope, Head, Limits, Notice};
use crate::error::BackendError;
use crate::id::Millis;
use crate::store::{EndReply, Ended, ListedEntry, Parked, SweepCursor, SweepLimits};
use crate::upkeep::{Archived, Host, Post};

/// How long the last batch of a client is remembered after its last sign of life.
const PRODUCER_KEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// A consumer that was silent for so long is removed, if it holds nothing.
const CONSUMER_DEAD_AFTER: Duration = Duration::from_secs(60 * 60);
/// The most rounds of one pass: what is left has time until the next.
const ROUNDS: usize = 10;

/// The sweep of one queue.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    cursor: SweepCursor,
}

impl Sweep {
    /// One pass. `now` is the time of Redis.
    pub(crate) async fn sweep(
        &mut self,
        post: &Post,
        host: &dyn Host,
        now: Millis,
    ) -> Result<(), BackendError> {
        let limits = limits(post);
        for _ in 0..ROUNDS {
            let swept = post
                .store
                .sweep(&post.queue, &limits, &mut self.cursor)
                .await?;
            if swept.receivers + swept.consumers > 0 {
                tracing::info!(
                    queue = %post.queue,
                    receivers = swept.receivers,
                    consumers = swept.consumers,
                    "removed what dead clients and servers left"
                );
            }
            for candidate in &swept.expired_candidates {
                expire(post, candidate, now).await?;
            }
            for parked in &swept.parked_overdue {
                archive_parked(post, host, parked).await?;
            }
            if !swept.more || post.stop.is_cancelled() {
                break;
            }
        }
        Ok(())
    }
}

fn limits(post: &Post) -> SweepLimits {
    SweepLimits {
        client_dead_after: post.times.client_dead_after,
        producer_keep: PRODUCER_KEEP,
        consumer_dead_after: CONSUMER_DEAD_AFTER,
        unknown_grace: post.times.unknown_grace,
        archive_keep: post.times.archive_keep,
        archive_max: post.times.archive_max as u64,
        lease: post.times.lease,
    }
}

/// Ends a waiting task whose deadline is over. One that cannot be read is left to whoever runs it.
async fn expire(post: &Post, waiting: &ListedEntry, now: Millis) -> Result<(), BackendError> {
    let limits = Limits {
        max_bytes: usize::MAX,
    };
    let Ok(envelope) = Envelope::decode(&waiting.envelope, &limits) else {
        return Ok(());
    };
    if envelope
        .parts
        .deadline
        .is_none_or(|deadline| deadline > now)
    {
        return Ok(());
    }
    let notice = Notice {
        task: envelope.id.clone(),
        ending: Ending::Expired,
    }
    .encode();
    let idle = Some(post.times.lease);
    post.store
        .end_pending(
            &post.queue,
            waiting.entry,
            idle,
            Ended::Expired,
            &envelope.id,
            envelope.client.as_ref(),
            &notice,
        )
        .await?;
    Ok(())
}

/// Archives a task for which no server came that knows it.
async fn archive_parked(post: &Post, host: &dyn Host, parked: &Parked) -> Result<(), BackendError> {
    let error = match Head::decode(&parked.envelope) {
        Ok(head) => format!("{} (envelope version {})", parked.name, head.version),
        Err(_) => parked.name.clone(),
    };
    let ending = Ending::NoHandler(error.clone());
    let reason = ending.word();
    let notice = Notice {
        task: parked.id.clone(),
        ending,
    }
    .encode();
    let how = Ended::Archived {
        reason,
        error: &error,
        name: &parked.name,
        envelope: &parked.envelope,
    };
    let reply = post
        .store
        .end_recorded(&post.queue, &parked.id, how, &notice)
        .await?;
    if reply == EndReply::Ended {
        host.archived(Archived {
            id: parked.id.clone(),
            name: parked.name.as_str().into(),
            reason,
            error,
        });
    }
    Ok(())
}

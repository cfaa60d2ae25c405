//! Looks after a queue while this server holds its upkeep lock: due tasks, pauses that are over,
//! and now and then a sweep.
//!
//! Layer 3. All servers of a queue run this loop; the lock, taken for a few seconds at a time, says
//! whose turn it is. A holder that dies is followed by another as soon as the lock runs out.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::BackendError;
use crate::id::Millis;
use crate::upkeep::promote::promote;
use crate::upkeep::sweep::Sweep;
use crate::upkeep::{Host, Post};

/// A holder looks at least this often for due tasks, in case a hint was lost.
const POLL: Duration = Duration::from_secs(1);
/// How many of its passes a holder makes for each sweep.
const PASSES_PER_SWEEP: u32 = 5;

/// Watches one queue until the server stops.
pub(crate) async fn watch(post: Post, host: Arc<dyn Host>) {
    let mut watch = Watch {
        sweep: Sweep::default(),
        swept: None,
        held_until: None,
        next_due: None,
        seen: None,
        post,
        host,
    };
    loop {
        let wait = match watch.look().await {
            Ok(()) => watch.wait(),
            Err(error) => {
                tracing::debug!(queue = %watch.post.queue, %error, "upkeep failed");
                watch
                    .post
                    .pace
                    .wait(watch.post.times.every, fastrand::f64())
            }
        };
        let stop = watch.post.stop.clone();
        let wakes = Arc::clone(&watch.post.wakes);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = wakes.heard() => watch.hear(),
            () = tokio::time::sleep(wait) => {}
        }
    }
}

struct Watch {
    post: Post,
    host: Arc<dyn Host>,
    sweep: Sweep,
    swept: Option<Instant>,
    /// Until when the lock is surely ours.
    held_until: Option<Instant>,
    /// The earliest due time known.
    next_due: Option<Millis>,
    /// What time it was for Redis, and when we were told.
    seen: Option<(Millis, Instant)>,
}

impl Watch {
    fn holds(&self) -> bool {
        self.held_until.is_some_and(|until| Instant::now() < until)
    }

    /// One look: the lock, and if it is ours, what is due.
    async fn look(&mut self) -> Result<(), BackendError> {
        let asked = Instant::now();
        let times = &self.post.times;
        let upkeep = self
            .post
            .store
            .upkeep_lock(
                &self.post.queue,
                &self.post.me,
                times.lock,
                times.quiet,
                times.lease,
            )
            .await?;
        self.seen = Some((upkeep.now, Instant::now()));
        self.post.pace.see(upkeep.servers_seen);
        self.held_until = upkeep.mine.then(|| asked + times.lock);
        self.next_due = upkeep.next_due;
        if !upkeep.mine {
            return Ok(());
        }
        if upkeep.pause_is_over {
            self.post.store.resume_due(&self.post.queue).await?;
            tracing::info!(queue = %self.post.queue, "the pause is over");
        }
        if self.next_due.is_some_and(|due| due <= upkeep.now) {
            let promoted = promote(&self.post).await?;
            self.next_due = promoted.next_due;
            self.seen = Some((promoted.now, Instant::now()));
        }
        if self
            .swept
            .is_none_or(|swept| swept.elapsed() >= self.post.times.every * PASSES_PER_SWEEP)
        {
            self.sweep
                .sweep(&self.post, &*self.host, upkeep.now)
                .await?;
            self.swept = Some(Instant::now());
        }
        Ok(())
    }

    /// A hint brought an earlier due time.
    fn hear(&mut self) {
        if let Some(due) = self.post.wakes.take_due() {
            self.next_due = Some(self.next_due.map_or(due, |next| next.min(due)));
        }
    }

    /// How long until the next look.
    fn wait(&self) -> Duration {
        if !self.holds() {
            return self.post.pace.wait(self.post.times.every, fastrand::f64());
        }
        let poll = self.post.times.every.min(POLL);
        match (self.next_due, self.seen) {
            (Some(due), Some((now, at))) => due.since(now.after(at.elapsed())).min(poll),
            _ => poll,
        }
    }
}

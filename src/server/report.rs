//! What a server did, told when it stops.
//!
//! Layer 4.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a server did between its start and its stop.
///
/// ```no_run
/// # async fn example(server: streamfleet::Server) -> Result<(), streamfleet::ServerError> {
/// let report = server.run_until(streamfleet::shutdown_signal()).await?;
/// println!("{} succeeded, {} handed back", report.succeeded, report.released);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StopReport {
    /// Runs whose success Redis took.
    pub succeeded: u64,
    /// Runs that failed, with another attempt to come.
    pub retried: u64,
    /// Runs that asked to be run again later, which is no failure.
    pub snoozed: u64,
    /// Tasks archived here.
    pub archived: u64,
    /// Tasks cancelled, expired or discarded here.
    pub ended: u64,
    /// Runs that lost their lease.
    pub leases_lost: u64,
    /// Deliveries taken over from servers that were silent for a lease.
    pub reclaimed: u64,
    /// Deliveries found again after a lost reply.
    pub found_again: u64,
    /// Deliveries handed back without having been started: at the stop, or because they waited here
    /// for a slot in vain.
    pub released: u64,
    /// Running tasks handed back at the stop because they did not end in time.
    pub interrupted: u64,
    /// Handlers that did not even stop when told; their leases end with the process.
    pub abandoned: u64,
    /// How long the stop took.
    pub stop_took: Duration,
}

macro_rules! counters {
    ($($name:ident),+ $(,)?) => {
        /// The counters behind a [`StopReport`], written by every part of the server.
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $(pub(crate) $name: AtomicU64,)+
        }

        impl Counts {
            /// The report so far.
            pub(crate) fn report(&self, stop_took: Duration) -> StopReport {
                StopReport {
                    $($name: self.$name.load(Ordering::Relaxed),)+
                    stop_took,
                }
            }
        }
    };
}

counters!(
    succeeded,
    retried,
    snoozed,
    archived,
    ended,
    leases_lost,
    reclaimed,
    found_again,
    released,
    interrupted,
    abandoned,
);

/// Counts some more.
pub(crate) fn add(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

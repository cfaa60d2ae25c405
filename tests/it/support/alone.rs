//! One lock for the whole binary, so that a test that measures time has the machine to itself.

use std::fmt::Display;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::const_new(());

/// For tests that keep the machine busy and measure nothing.
pub(crate) async fn together() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().await
}

/// For tests that measure time.
pub(crate) async fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().await
}

/// Tries a measurement up to three times. It answers what was too slow; all else panics.
pub(crate) async fn best_of_three<E: Display>(mut measure: impl AsyncFnMut() -> Result<(), E>) {
    let mut late = Vec::new();
    for _ in 0..3 {
        match measure().await {
            Ok(()) => return,
            Err(how) => late.push(how.to_string()),
        }
    }
    panic!("too slow three times: {late:?}");
}

//! The signals that stop a server.
//!
//! Layer 4.

/// Waits for the first SIGTERM or SIGINT. From then on a second one ends the process at once, with
/// the exit code 130: whoever asks twice does not want to wait.
///
/// On other systems than Unix it waits for Ctrl-C.
///
/// ```no_run
/// # async fn example(server: streamfleet::Server) -> Result<(), streamfleet::ServerError> {
/// server.run_until(streamfleet::shutdown_signal()).await?;
/// # Ok(()) }
/// ```
pub async fn shutdown_signal() {
    next_signal().await;
    tracing::info!("asked to stop; a second signal ends the process at once");
    tokio::spawn(async {
        next_signal().await;
        std::process::exit(130);
    });
}

#[cfg(unix)]
async fn next_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let listeners = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    );
    let (Ok(mut terminate), Ok(mut interrupt)) = listeners else {
        tracing::error!("failed to listen for signals; only Ctrl-C stops this server");
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(not(unix))]
async fn next_signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

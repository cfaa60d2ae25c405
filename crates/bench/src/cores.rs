//! Which core runs what: Redis has the first for itself, whoever drives it has the second.
//!
//! The limit and the library share the machine in the same way, so that neither gains by where the
//! scheduler happens to put a thread. Without two cores or without `taskset` nothing is pinned.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const SERVER_CORE: &str = "0";
const OWN_CORE: &str = "1";

/// Set for a process that was started again on its own core.
const MARK: &str = "STREAMFLEET_BENCH_ON_OWN_CORE";

/// Starts this program again on its own core, before the runtime counts the cores. Returns where
/// that was done already or cannot be done.
pub(crate) fn move_to_own() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let Ok(program) = std::env::current_exe() else {
        return;
    };
    if is_on_own() || cores < 2 || !has_taskset() {
        return;
    }
    // Comes back only if it failed; then nothing is pinned.
    let _ = Command::new("taskset")
        .args(["-c", OWN_CORE])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(MARK, "1")
        .exec();
}

/// Moves a server, which started where we are, to the other core.
pub(crate) fn give_server_its_own(pid: u32) {
    if is_on_own() {
        let mut taskset = Command::new("taskset");
        let _ = taskset
            .args(["-a", "-p", "-c", SERVER_CORE, &pid.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

fn is_on_own() -> bool {
    std::env::var_os(MARK).is_some()
}

fn has_taskset() -> bool {
    Command::new("taskset").arg("--version").output().is_ok()
}

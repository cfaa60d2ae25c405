//! Worker processes of a test: this very binary once more, or an example.
//!
//! libtest owns `main`, so the binary is started again with the exact name of one test. That test
//! begins with [`role`] and returns at once when it runs as an ordinary test:
//!
//! ```ignore
//! #[tokio::test]
//! async fn child_main() {
//!     let Some(role) = support::process::role() else { return };
//!     // … run a server until SIGTERM, `say` what happens
//! }
//! let worker = ChildSpawn::of_test("worker::child_main", "slow").env("URL", url).spawn();
//! worker.line("ready", Duration::from_secs(10)).await;
//! worker.kill();
//! ```

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Holds the role of a child; unset in the test process itself.
pub(crate) const CHILD_ENV: &str = "STREAMFLEET_TEST_CHILD";
const POLL: Duration = Duration::from_millis(5);

/// The role of this process, if a test started it as a child. Such a child exits when its parent
/// is gone.
pub(crate) fn role() -> Option<String> {
    let role = std::env::var(CHILD_ENV).ok()?;
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(125);
    });
    Some(role)
}

/// Prints one line that the parent sees whole, past libtest's capture and its buffer.
pub(crate) fn say(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("{line}\n").as_bytes());
    let _ = out.flush();
}

/// A child about to be started.
pub(crate) struct ChildSpawn(Command);

impl ChildSpawn {
    /// This binary again, running only the test with this path (as libtest lists it) in a role.
    pub(crate) fn of_test(test: &str, role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // With one thread libtest would put the test's name at the start of the first line.
        command.args([test, "--exact", "--nocapture", "--test-threads=2"]);
        command.env(CHILD_ENV, role);
        Self(command)
    }

    /// An example of the package; cargo builds them all before it runs tests.
    pub(crate) fn of_example(name: &str) -> Self {
        let path = example_path(name);
        assert!(path.is_file(), "no example at {}", path.display());
        Self(Command::new(path))
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.0.arg(arg);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    pub(crate) fn spawn(mut self) -> ChildProcess {
        let mut child = self
            .0
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let errors = Arc::new(Mutex::new(Vec::new()));
        collect(child.stdout.take().unwrap(), &lines);
        collect(child.stderr.take().unwrap(), &errors);
        ChildProcess {
            pid: child.id(),
            child: Mutex::new(child),
            lines,
            errors,
        }
    }
}

/// A running child. Dropping it kills it; if the test panics, what it wrote is shown.
pub(crate) struct ChildProcess {
    pid: u32,
    child: Mutex<Child>,
    lines: Arc<Mutex<Vec<String>>>,
    errors: Arc<Mutex<Vec<String>>>,
}

impl ChildProcess {
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// SIGTERM.
    pub(crate) fn term(&self) {
        self.signal("TERM");
    }

    /// SIGSTOP.
    pub(crate) fn stop(&self) {
        self.signal("STOP");
    }

    /// SIGCONT.
    pub(crate) fn cont(&self) {
        self.signal("CONT");
    }

    /// Any signal by name. Does nothing once the process was waited for.
    pub(crate) fn signal(&self, name: &str) {
        if self.exited().is_none() {
            let script = r#"kill -"$1" "$2""#;
            let pid = self.pid.to_string();
            let status = Command::new("sh")
                .args(["-c", script, "sh", name, &pid])
                .status();
            assert!(status.unwrap().success(), "kill -{name} {pid}");
        }
    }

    /// How it ended, if it did.
    pub(crate) fn exited(&self) -> Option<ExitStatus> {
        self.child.lock().unwrap().try_wait().unwrap()
    }

    /// Waits until it ends.
    pub(crate) async fn exit(&self, deadline: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.exited() {
                return status;
            }
            assert!(
                start.elapsed() < deadline,
                "child {} still runs after {deadline:?}",
                self.pid
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// The lines it printed so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// The lines it wrote to its error output so far.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.errors.lock().unwrap().clone()
    }

    /// The first line that contains a text, as soon as it is printed.
    pub(crate) async fn line(&self, text: &str, deadline: Duration) -> String {
        let start = Instant::now();
        loop {
            // Asked before the lines are, so that the last line of a dead child is not missed.
            let ended = self.exited().is_some() && start.elapsed() > Duration::from_secs(1);
            let found = self.lines().into_iter().find(|line| line.contains(text));
            if let Some(line) = found {
                return line;
            }
            assert!(!ended, "child {} ended without {text:?}", self.pid);
            assert!(
                start.elapsed() < deadline,
                "no {text:?} within {deadline:?}"
            );
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            for (name, lines) in [("out", &self.lines), ("err", &self.errors)] {
                for line in lines.lock().map(|lines| lines.clone()).unwrap_or_default() {
                    eprintln!("[child {} {name}] {line}", self.pid);
                }
            }
        }
    }
}

fn collect(from: impl Read + Send + 'static, into: &Arc<Mutex<Vec<String>>>) {
    let into = Arc::clone(into);
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n') {
            let Ok(line) = line else { return };
            let line = String::from_utf8_lossy(&line).into_owned();
            into.lock().unwrap().push(line);
        }
    });
}

/// Test binaries are in `deps`, beside `examples`.
fn example_path(name: &str) -> PathBuf {
    let binary = std::env::current_exe().unwrap();
    let profile = binary.parent().and_then(Path::parent).unwrap();
    profile.join("examples").join(name)
}

//! One server as a child process: found, started, stopped, paused, and never left behind.
//!
//! Owns the child, its directory, its port, and the undertaker: a shell that waits for the pipe
//! from us to close, and then kills the server and removes the directory. So the server ends also
//! when the test process is killed by SIGKILL, without any unsafe call. The limit: if the shell is
//! killed too, the server stays. Knows no keys. Part of `testing`; called by `options`,
//! `server` and `sentinel`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::TestError;
use super::ports::{self, Port};
use super::wire::{Address, Wire};

/// Kills the server named last on its input, once the input ends.
const UNDERTAKER: &str = r#"pid=
while IFS= read -r line; do pid=$line; done
[ -n "$pid" ] && kill -KILL "$pid"
rm -rf -- "$1""#;

/// The file of settings, in the server's directory.
const CONFIG: &str = "server.conf";
/// How often another port is tried when somebody took the one that was free.
const START_TRIES: usize = 10;
/// How long a server may take to answer the first PING.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// How long it may load its data after a restart.
const LOAD_DEADLINE: Duration = Duration::from_secs(60);
/// How long a polite stop may take before it is a kill.
const STOP_DEADLINE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// A server process that may be up or down, on one port and one directory for its whole life.
#[derive(Debug)]
pub(crate) struct Process {
    binary: PathBuf,
    args: Vec<String>,
    address: Address,
    directory: TempDir,
    /// `None` while it is down. Written by every method here, held only for short calls.
    child: Mutex<Option<Child>>,
    undertaker: Mutex<Option<Undertaker>>,
    _port: Port,
}

#[derive(Debug)]
struct Undertaker {
    shell: Child,
    input: ChildStdin,
}

impl Process {
    /// Starts a server on a free port and waits until it answers.
    pub(crate) async fn start(args: &[String], password: Option<&str>) -> Result<Self, TestError> {
        let mut tries = START_TRIES;
        loop {
            tries -= 1;
            let process = Self::start_on(ports::reserve()?, args, password)?;
            match process.ready(START_DEADLINE).await {
                Ok(()) => return Ok(process),
                Err(_) if tries > 0 && process.lost_its_port() => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn start_on(port: Port, args: &[String], password: Option<&str>) -> Result<Self, TestError> {
        let io = |what| move |source| TestError::Io { what, source };
        let binary = find_binary()?;
        let directory = tempfile::Builder::new()
            .prefix("streamfleet-test-")
            .tempdir()
            .map_err(io("make a temporary directory"))?;
        // All settings are arguments; but a sentinel writes down in its file what it learns.
        File::create(directory.path().join(CONFIG)).map_err(io("make the server's settings"))?;
        let mut shell = Command::new("sh")
            .args(["-c", UNDERTAKER, "sh"])
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(io("start sh"))?;
        let undertaker = shell.stdin.take().map(|input| Undertaker { shell, input });
        let process = Self {
            binary,
            args: args.to_vec(),
            address: Address {
                port: port.number,
                password: password.map(str::to_owned),
            },
            directory,
            child: Mutex::new(None),
            undertaker: Mutex::new(undertaker),
            _port: port,
        };
        process.spawn()?;
        Ok(process)
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// The process id, unless the server is down.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// Starts it again in the same directory and on the same port, after a kill if it still runs.
    pub(crate) fn respawn(&self) -> Result<(), TestError> {
        self.kill();
        self.spawn()
    }

    fn spawn(&self) -> Result<(), TestError> {
        let io = |what| move |source| TestError::Io { what, source };
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .map_err(io("open the server's log"))?;
        let errors = log.try_clone().map_err(io("open the server's log"))?;
        let child = Command::new(&self.binary)
            .arg(CONFIG)
            .args(&self.args)
            .arg("--port")
            .arg(self.address.port.to_string())
            .arg("--dir")
            .arg(self.directory.path())
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            // Ctrl-C is for the test, which then stops the server in its own way.
            .process_group(0)
            .spawn()
            .map_err(|error| self.start_error(error.to_string()))?;
        self.tell_undertaker(Some(child.id()));
        *self.child() = Some(child);
        Ok(())
    }

    /// Waits until this very process answers PING and has loaded its data.
    async fn ready(&self, deadline: Duration) -> Result<(), TestError> {
        let start = Instant::now();
        loop {
            let last = match self.probe().await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if self.has_ended() {
                return Err(self.start_error(format!("it ended at once ({last})")));
            }
            if start.elapsed() > deadline {
                return Err(self.start_error(format!("no PONG within {deadline:?} ({last})")));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits as [`start`](Self::start) does, for as long as loading may take.
    pub(crate) async fn ready_after_restart(&self) -> Result<(), TestError> {
        self.ready(LOAD_DEADLINE).await
    }

    async fn probe(&self) -> Result<(), TestError> {
        let address = self.address.clone();
        let pid = self.pid();
        super::on_blocking_thread(move || {
            let mut wire = Wire::connect(&address, Duration::from_secs(2))?;
            wire.call(&["PING"])?;
            // Another process may have taken the port: then this answer is not ours.
            let info = wire.call(&["INFO", "server"])?.text().unwrap_or_default();
            let answered = super::info_field(&info, "process_id").and_then(|id| id.parse().ok());
            if answered == pid {
                return Ok(());
            }
            Err(TestError::Protocol(format!("process {answered:?} answers")))
        })
        .await
    }

    /// Ends it by SIGKILL and waits until it is gone. Does nothing if it is down.
    pub(crate) fn kill(&self) {
        let ended = self.child().take();
        if let Some(mut child) = ended {
            let _ = child.kill();
            let _ = child.wait();
            self.tell_undertaker(None);
        }
    }

    /// Asks it to end by SIGTERM; after the deadline it is killed.
    pub(crate) async fn stop(&self) -> Result<(), TestError> {
        self.signal("TERM")?;
        let start = Instant::now();
        while !self.has_ended() && start.elapsed() < STOP_DEADLINE {
            tokio::time::sleep(POLL).await;
        }
        self.kill();
        Ok(())
    }

    /// Sends a signal by name. Does nothing if the server is down.
    pub(crate) fn signal(&self, name: &str) -> Result<(), TestError> {
        let Some(pid) = self.pid() else { return Ok(()) };
        // The shell's own `kill`: a container without procps has no other.
        let status = Command::new("sh")
            .args(["-c", r#"kill -"$1" "$2""#, "sh", name, &pid.to_string()])
            .stderr(Stdio::null())
            .status();
        match status {
            Ok(_) => Ok(()),
            Err(source) => Err(TestError::Io {
                what: "run sh",
                source,
            }),
        }
    }

    /// SIGSTOP, and waits until the system has really stopped it, where that can be seen.
    pub(crate) fn pause(&self) -> Result<(), TestError> {
        self.signal("STOP")?;
        let Some(pid) = self.pid() else { return Ok(()) };
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
                break;
            };
            // The state follows the command name, which ends with the last parenthesis.
            if stat
                .rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(" T"))
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether it ended by itself or is down.
    pub(crate) fn has_ended(&self) -> bool {
        match self.child().as_mut() {
            None => true,
            Some(child) => !matches!(child.try_wait(), Ok(None)),
        }
    }

    /// Whether the log says that somebody else has the port.
    fn lost_its_port(&self) -> bool {
        self.log_tail().contains("Address already in use")
    }

    fn start_error(&self, problem: String) -> TestError {
        TestError::Start {
            binary: self.binary.display().to_string(),
            problem,
            log: self.log_tail(),
        }
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    fn tell_undertaker(&self, pid: Option<u32>) {
        let line = pid.map_or_else(|| "\n".to_owned(), |pid| format!("{pid}\n"));
        if let Some(undertaker) = lock(&self.undertaker).as_mut() {
            let _ = undertaker.input.write_all(line.as_bytes());
        }
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        lock(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if let Some(Undertaker { mut shell, input }) = lock(&self.undertaker).take() {
            drop(input);
            let _ = shell.wait();
        }
    }
}

/// A test that panicked while it held the lock still has to be cleaned up after.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `$STREAMFLEET_SERVER_BIN`, then `valkey-server`, then `redis-server` on PATH.
fn find_binary() -> Result<PathBuf, TestError> {
    if let Some(named) = std::env::var_os("STREAMFLEET_SERVER_BIN").filter(|name| !name.is_empty())
    {
        return Ok(PathBuf::from(named));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    ["valkey-server", "redis-server"]
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |directory| directory.join(name)))
        .find(|binary| binary.is_file())
        .ok_or(TestError::NoServer)
}

//! A TCP proxy in front of a server, whose mode is switched while it runs.
//!
//! It knows no protocol but one thing: bytes from the client are requests, bytes from the server
//! replies. A mode applies to all connections, old and new, at once.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const BUFFER: usize = 64 * 1024;
/// How long a server may be silent before a cut connection to it is closed too.
const DRAIN: Duration = Duration::from_millis(100);

/// What the proxy does with what it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Forwards everything.
    Pass,
    /// Forwards this many more reply bytes (of all connections together), then closes both sides
    /// of the connection on which they ran out and passes again.
    CutReplyAfter(u64),
    /// Forwards the next request; when its reply comes, closes both sides instead of forwarding
    /// it, and passes again: the command was executed and its reply is lost.
    LoseNextReply,
    /// The same for the next request that contains these bytes, such as a mark in a payload:
    /// other connections are left alone.
    LoseReplyTo(&'static str),
    /// Drops the next piece of a reply, the connection stays open, and passes again.
    SwallowNextReply,
    /// Reads and drops every reply, connections stay open: executed, never answered.
    SwallowReplies,
    /// Forwards nothing in either direction and closes nothing, as after a pulled cable. New
    /// connections are taken and hang too.
    BlackHole,
    /// Forwards every piece this much later.
    Delay(Duration),
    /// The port is closed: new connections are refused; old ones pass.
    Refuse,
}

/// The proxy; its tasks end when it is dropped.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    server: SocketAddr,
    mode: watch::Sender<Mode>,
    /// Rises to close all connections of lower number.
    cut: watch::Sender<u64>,
    connections: AtomicU64,
    open: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
}

impl Proxy {
    /// Listens on a free loopback port, in mode [`Mode::Pass`].
    pub(crate) async fn start(server_port: u16) -> Self {
        let listener = listen_somewhere().await;
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            server: SocketAddr::from((Ipv4Addr::LOCALHOST, server_port)),
            mode: watch::channel(Mode::Pass).0,
            cut: watch::channel(0).0,
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            to_server: AtomicU64::new(0),
            to_client: AtomicU64::new(0),
        });
        let accepting = tokio::spawn(Arc::clone(&shared).accept(listener));
        Self {
            port,
            shared,
            accepting,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Switches the mode for all connections.
    pub(crate) fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
    }

    /// The mode now; one-shot modes go back to [`Mode::Pass`] by themselves.
    pub(crate) fn mode(&self) -> Mode {
        self.shared.mode()
    }

    /// Closes every open connection on both sides now.
    pub(crate) fn cut_all(&self) {
        self.shared.cut.send_replace(self.connections());
    }

    /// Connections taken so far, those that were refused not counted.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Connections open now.
    pub(crate) fn open(&self) -> u64 {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Request bytes forwarded so far.
    pub(crate) fn bytes_to_server(&self) -> u64 {
        self.shared.to_server.load(Ordering::SeqCst)
    }

    /// Reply bytes forwarded so far.
    pub(crate) fn bytes_to_client(&self) -> u64 {
        self.shared.to_client.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.cut.send_replace(u64::MAX);
    }
}

/// Why a connection ends.
enum End {
    /// One side closed it.
    Closed,
    /// The mode closes it.
    Cut,
}

impl Shared {
    /// Takes connections; while they are refused, the port is really closed.
    async fn accept(self: Arc<Self>, mut listener: TcpListener) {
        let port = listener.local_addr().unwrap().port();
        let mut mode = self.mode.subscribe();
        loop {
            tokio::select! {
                () = until(&mut mode, |mode| *mode == Mode::Refuse) => {
                    drop(listener);
                    until(&mut mode, |mode| *mode != Mode::Refuse).await;
                    listener = loop {
                        match listen(port) {
                            Ok(listener) => break listener,
                            Err(_) => sleep(Duration::from_millis(5)).await,
                        }
                    };
                }
                Ok((client, _)) = listener.accept() => {
                    // A test may have switched just now.
                    if *self.mode.borrow() != Mode::Refuse {
                        let number = self.connections.fetch_add(1, Ordering::SeqCst) + 1;
                        tokio::spawn(Arc::clone(&self).serve(client, number));
                    }
                }
            }
        }
    }

    async fn serve(self: Arc<Self>, client: TcpStream, number: u64) {
        self.open.fetch_add(1, Ordering::SeqCst);
        let mut cut = self.cut.subscribe();
        tokio::select! {
            () = self.pump(client) => {}
            () = until(&mut cut, |cut| *cut >= number) => {}
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    /// Copies both ways until one side ends; dropping the halves then closes both.
    async fn pump(&self, client: TcpStream) {
        let Ok(server) = TcpStream::connect(self.server).await else {
            return;
        };
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        // Set when a request of this connection is to be executed without an answer.
        let doomed = AtomicBool::new(false);
        let end = tokio::select! {
            end = self.requests(&mut from_client, &mut to_server, &doomed) => end,
            end = self.replies(&mut from_server, &mut to_client, &doomed) => end,
        };
        drop((from_client, to_client));
        if let End::Cut = end {
            // A close with unread replies would be a reset, and a reset makes the server drop
            // requests that it has not read yet. They are to be executed.
            let mut rest = vec![0; BUFFER];
            while let Ok(Ok(1..)) = timeout(DRAIN, from_server.read(&mut rest)).await {}
        }
    }

    async fn requests(
        &self,
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        doomed: &AtomicBool,
    ) -> End {
        let mut buffer = vec![0; BUFFER];
        let mut tail = Vec::new();
        loop {
            let Ok(length @ 1..) = from.read(&mut buffer).await else {
                self.outlast_black_hole().await;
                return End::Closed;
            };
            self.outlast_black_hole().await;
            match self.mode() {
                Mode::Delay(delay) => sleep(delay).await,
                mode @ Mode::LoseReplyTo(needle) => {
                    tail.extend_from_slice(&buffer[..length]);
                    let found = tail
                        .windows(needle.len())
                        .any(|part| part == needle.as_bytes());
                    if found && self.replace(mode, Mode::Pass) {
                        doomed.store(true, Ordering::SeqCst);
                    }
                    let kept = tail.len().min(needle.len().saturating_sub(1));
                    tail.drain(..tail.len() - kept);
                }
                _ => tail.clear(),
            }
            if to.write_all(&buffer[..length]).await.is_err() {
                return End::Closed;
            }
            self.to_server.fetch_add(length as u64, Ordering::SeqCst);
        }
    }

    async fn replies(
        &self,
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        doomed: &AtomicBool,
    ) -> End {
        let mut buffer = vec![0; BUFFER];
        loop {
            let Ok(length @ 1..) = from.read(&mut buffer).await else {
                self.outlast_black_hole().await;
                return End::Closed;
            };
            self.outlast_black_hole().await;
            if doomed.load(Ordering::SeqCst) {
                return End::Cut;
            }
            if let Mode::Delay(delay) = self.mode() {
                sleep(delay).await;
            }
            let (forward, cut) = self.verdict(length);
            if to.write_all(&buffer[..forward]).await.is_err() {
                return End::Closed;
            }
            self.to_client.fetch_add(forward as u64, Ordering::SeqCst);
            if cut {
                return End::Cut;
            }
        }
    }

    /// How much of a piece of a reply goes on, and whether the connection is cut after it.
    fn verdict(&self, length: usize) -> (usize, bool) {
        let mut verdict = (length, false);
        // Under the lock of the mode, so that two connections never take one shot both.
        self.mode.send_if_modified(|mode| {
            let before = *mode;
            match before {
                Mode::Pass | Mode::Refuse | Mode::BlackHole | Mode::Delay(_) => {}
                Mode::LoseReplyTo(_) => {}
                Mode::SwallowReplies => verdict = (0, false),
                Mode::SwallowNextReply => (verdict, *mode) = ((0, false), Mode::Pass),
                Mode::LoseNextReply => (verdict, *mode) = ((0, true), Mode::Pass),
                Mode::CutReplyAfter(left) => match left.checked_sub(length as u64) {
                    Some(left @ 1..) => *mode = Mode::CutReplyAfter(left),
                    _ => (verdict, *mode) = ((usize::try_from(left).unwrap(), true), Mode::Pass),
                },
            }
            *mode != before
        });
        verdict
    }

    fn mode(&self) -> Mode {
        *self.mode.borrow()
    }

    /// Only if nobody has switched meanwhile.
    fn replace(&self, from: Mode, to: Mode) -> bool {
        self.mode.send_if_modified(|mode| {
            let same = *mode == from;
            if same {
                *mode = to;
            }
            same
        })
    }

    /// Waits while nothing is let through; what was read is kept and forwarded afterwards.
    async fn outlast_black_hole(&self) {
        until(&mut self.mode.subscribe(), |mode| *mode != Mode::BlackHole).await;
    }
}

/// Waits for a value. What `wait_for` answers holds a lock, and is dropped here.
async fn until<T>(value: &mut watch::Receiver<T>, reached: impl FnMut(&T) -> bool) {
    let _ = value.wait_for(reached).await;
}

/// A port that is not among those of outgoing connections, so that it is still free after a pause.
async fn listen_somewhere() -> TcpListener {
    loop {
        if let Ok(listener) = listen(fastrand::u16(22_000..32_000)) {
            return listener;
        }
    }
}

fn listen(port: u16) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    socket.listen(1024)
}

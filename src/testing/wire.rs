//! A tiny RESP2 client of its own, for tests.
//!
//! Independent of the client that the library uses, on purpose: what checks must not share code
//! with what is checked. It blocks; the async callers run it on tokio's blocking threads, so that
//! the check in a `Drop` can use the same code. It knows no key and no cluster.
//!
//! Called by everything in `testing`.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use super::TestError;

/// How deep arrays may nest; real replies stay below ten.
const MAX_DEPTH: usize = 32;

/// What a server answered.
///
/// ```
/// use streamfleet::testing::Reply;
/// assert_eq!(Reply::Int(3).int(), Some(3));
/// assert_eq!(Reply::Bytes(b"3-0".to_vec()).text().as_deref(), Some("3-0"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Nothing: a missing key, or a blocking read that ran out of time.
    Nil,
    /// A number.
    Int(i64),
    /// A simple string, such as `OK`.
    Status(String),
    /// Any bytes.
    Bytes(Vec<u8>),
    /// Several replies.
    Array(Vec<Reply>),
    /// An error inside an array or a pipeline; alone it is [`TestError::Refused`].
    Error(String),
}

impl Reply {
    /// The number, if it is one, also when it came as text.
    ///
    /// ```
    /// use streamfleet::testing::Reply;
    /// assert_eq!(Reply::Bytes(b"12".to_vec()).int(), Some(12));
    /// assert_eq!(Reply::Nil.int(), None);
    /// ```
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => self.text()?.parse().ok(),
        }
    }

    /// The bytes of a string.
    ///
    /// ```
    /// use streamfleet::testing::Reply;
    /// assert_eq!(Reply::Bytes(vec![0xff]).bytes(), Some(&[0xff][..]));
    /// ```
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Status(text) => Some(text.as_bytes()),
            _ => None,
        }
    }

    /// A string as text; bytes that are no UTF-8 are replaced.
    ///
    /// ```
    /// use streamfleet::testing::Reply;
    /// assert_eq!(Reply::Status("OK".into()).text().as_deref(), Some("OK"));
    /// ```
    #[must_use]
    pub fn text(&self) -> Option<String> {
        self.bytes()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The items of an array; empty for anything else.
    ///
    /// ```
    /// use streamfleet::testing::Reply;
    /// assert_eq!(Reply::Array(vec![Reply::Nil]).items().len(), 1);
    /// assert!(Reply::Nil.items().is_empty());
    /// ```
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }

    /// The strings of an array.
    ///
    /// ```
    /// use streamfleet::testing::Reply;
    /// let keys = Reply::Array(vec![Reply::Bytes(b"a".to_vec())]);
    /// assert_eq!(keys.texts(), ["a"]);
    /// ```
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        self.items().iter().filter_map(Self::text).collect()
    }
}

/// Where a server listens and how to get in.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) port: u16,
    pub(crate) password: Option<String>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Wire {
    reader: BufReader<TcpStream>,
    timeout: Duration,
}

impl Wire {
    /// Connects and authenticates. `timeout` is for the connect and for each read and write.
    pub(crate) fn connect(address: &Address, timeout: Duration) -> Result<Self, TestError> {
        let socket = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port));
        let stream = TcpStream::connect_timeout(&socket, timeout)
            .and_then(|stream| {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(stream)
            })
            .map_err(|error| TestError::io("connect to the server", error, timeout))?;
        let mut wire = Self {
            reader: BufReader::new(stream),
            timeout,
        };
        if let Some(password) = &address.password {
            wire.call(&["AUTH", password])?;
        }
        Ok(wire)
    }

    /// Sends one command and reads its reply.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Reply, TestError> {
        let mut request = Vec::new();
        encode(args, &mut request);
        self.send(&request)?;
        match self.receive()? {
            Reply::Error(text) => Err(TestError::Refused(text)),
            reply => Ok(reply),
        }
    }

    /// Sends commands together and reads all replies; an error is a reply.
    pub(crate) fn pipeline<A: AsRef<[u8]>>(
        &mut self,
        commands: &[Vec<A>],
    ) -> Result<Vec<Reply>, TestError> {
        // Bounded parts, so that neither side ever waits for the other with full socket buffers.
        let mut replies = Vec::with_capacity(commands.len());
        for part in commands.chunks(200) {
            let mut request = Vec::new();
            for command in part {
                encode(command, &mut request);
            }
            self.send(&request)?;
            for _ in part {
                replies.push(self.receive()?);
            }
        }
        Ok(replies)
    }

    fn send(&mut self, request: &[u8]) -> Result<(), TestError> {
        let timeout = self.timeout;
        self.reader
            .get_mut()
            .write_all(request)
            .map_err(|error| TestError::io("send a command", error, timeout))
    }

    fn receive(&mut self) -> Result<Reply, TestError> {
        decode(&mut self.reader, self.timeout, 0)
    }
}

/// Appends a command as an array of bulk strings.
fn encode<A: AsRef<[u8]>>(args: &[A], request: &mut Vec<u8>) {
    request.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        let arg = arg.as_ref();
        request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        request.extend_from_slice(arg);
        request.extend_from_slice(b"\r\n");
    }
}

fn decode(reader: &mut impl BufRead, timeout: Duration, depth: usize) -> Result<Reply, TestError> {
    if depth > MAX_DEPTH {
        return Err(TestError::Protocol("arrays nest too deeply".into()));
    }
    let line = read_line(reader, timeout)?;
    let Some((kind, rest)) = line.split_first() else {
        return Err(TestError::Protocol("an empty line".into()));
    };
    let text = || String::from_utf8_lossy(rest).into_owned();
    let number = || {
        text()
            .parse::<i64>()
            .map_err(|_| TestError::Protocol(format!("{:?} is no number", text())))
    };
    match kind {
        b'+' => Ok(Reply::Status(text())),
        b'-' => Ok(Reply::Error(text())),
        b':' => Ok(Reply::Int(number()?)),
        b'$' => match usize::try_from(number()?) {
            Err(_) => Ok(Reply::Nil),
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                reader
                    .read_exact(&mut bytes)
                    .map_err(|error| TestError::io("read a reply", error, timeout))?;
                bytes.truncate(length);
                Ok(Reply::Bytes(bytes))
            }
        },
        b'*' => match usize::try_from(number()?) {
            Err(_) => Ok(Reply::Nil),
            Ok(length) => (0..length)
                .map(|_| decode(reader, timeout, depth + 1))
                .collect::<Result<_, _>>()
                .map(Reply::Array),
        },
        other => Err(TestError::Protocol(format!(
            "{:?} starts no reply",
            char::from(*other)
        ))),
    }
}

fn read_line(reader: &mut impl BufRead, timeout: Duration) -> Result<Vec<u8>, TestError> {
    let mut line = Vec::new();
    reader
        .read_until(b'\n', &mut line)
        .map_err(|error| TestError::io("read a reply", error, timeout))?;
    if !line.ends_with(b"\r\n") {
        return Err(TestError::Closed);
    }
    line.truncate(line.len() - 2);
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> Result<Reply, TestError> {
        decode(&mut bytes, Duration::from_secs(1), 0)
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        let reply =
            read(b"*6\r\n+OK\r\n:-5\r\n$-1\r\n$3\r\n\r\n\xff\r\n*-1\r\n-ERR no\r\n").unwrap();
        assert_eq!(
            reply.items(),
            [
                Reply::Status("OK".into()),
                Reply::Int(-5),
                Reply::Nil,
                Reply::Bytes(b"\r\n\xff".to_vec()),
                Reply::Nil,
                Reply::Error("ERR no".into()),
            ]
        );
    }

    #[test]
    fn a_reply_cut_anywhere_is_an_error_and_never_half_a_reply() {
        let whole = b"*2\r\n$3\r\nabc\r\n:12\r\n";
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "cut at {length}");
        }
        assert!(read(whole).is_ok());
    }

    #[test]
    fn a_bomb_of_arrays_is_refused() {
        assert!(matches!(
            read(&b"*1\r\n".repeat(10_000)),
            Err(TestError::Protocol(_))
        ));
    }

    #[test]
    fn arguments_may_be_any_bytes() {
        let mut request = Vec::new();
        encode(&[&b"SET"[..], b"a\r\nb", b"\x00\xff"], &mut request);
        assert_eq!(
            request,
            b"*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$2\r\n\x00\xff\r\n"
        );
    }
}

//! RESP over one blocking socket, with pipelining by hand: what raw Redis costs a client at least.
//!
//! Commands are appended to one buffer and leave in one write; replies are read by pulling tokens,
//! without building a tree. Used by `raw`; shares no code with the library, which it is compared with.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Range;

use crate::Result;

/// How much is asked from the socket at once.
const READ_BYTES: usize = 256 * 1024;

/// One connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    /// Commands that were not sent yet.
    pub(crate) out: Vec<u8>,
    /// Replies; `at..end` was received and not yet read.
    buffer: Vec<u8>,
    at: usize,
    end: usize,
}

/// One step of a reply. A range is a place in the buffer, good until the next `send`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    Nil,
    Int(i64),
    Bytes(Range<usize>),
    Array(usize),
}

impl Wire {
    pub(crate) fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            out: Vec::with_capacity(READ_BYTES),
            buffer: vec![0; READ_BYTES],
            at: 0,
            end: 0,
        })
    }

    /// Sends all commands in one write. All replies of the commands before must have been read.
    pub(crate) fn send(&mut self) -> Result<()> {
        if self.at == self.end {
            (self.at, self.end) = (0, 0);
        }
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// The next token of the replies; an error reply is an error here.
    pub(crate) fn token(&mut self) -> Result<Token> {
        let line = self.line()?;
        let Some((&kind, text)) = self.buffer[line.clone()].split_first() else {
            return Err("an empty line in a reply".into());
        };
        Ok(match kind {
            b'+' => Token::Bytes(line.start + 1..line.end),
            b'-' => return Err(String::from_utf8_lossy(text).into()),
            b':' => Token::Int(number(text)?),
            b'*' => usize::try_from(number(text)?).map_or(Token::Nil, Token::Array),
            b'$' => match usize::try_from(number(text)?) {
                Ok(length) => {
                    while self.end - self.at < length + 2 {
                        self.receive()?;
                    }
                    let bytes = self.at..self.at + length;
                    self.at += length + 2;
                    Token::Bytes(bytes)
                }
                Err(_) => Token::Nil,
            },
            _ => return Err("an unknown kind of reply".into()),
        })
    }

    pub(crate) fn bytes(&self, place: &Range<usize>) -> &[u8] {
        &self.buffer[place.clone()]
    }

    /// Reads past one whole reply.
    pub(crate) fn skip(&mut self) -> Result<()> {
        let mut left = 1_usize;
        while left > 0 {
            left -= 1;
            if let Token::Array(items) = self.token()? {
                left += items;
            }
        }
        Ok(())
    }

    pub(crate) fn array(&mut self) -> Result<Option<usize>> {
        match self.token()? {
            Token::Array(items) => Ok(Some(items)),
            Token::Nil => Ok(None),
            other => Err(format!("{other:?} instead of an array").into()),
        }
    }

    pub(crate) fn string(&mut self) -> Result<Range<usize>> {
        match self.token()? {
            Token::Bytes(place) => Ok(place),
            other => Err(format!("{other:?} instead of bytes").into()),
        }
    }

    /// The entries of one stream as XREAD and XREADGROUP answer: (id, value of the one field).
    pub(crate) fn entries(&mut self, found: &mut Vec<(Range<usize>, Range<usize>)>) -> Result<()> {
        if self.array()?.is_none() {
            return Ok(());
        }
        self.array()?;
        self.string()?;
        for _ in 0..self.array()?.unwrap_or_default() {
            self.array()?;
            let id = self.string()?;
            self.array()?;
            self.string()?;
            found.push((id, self.string()?));
        }
        Ok(())
    }

    /// Sends one command and reads past its reply.
    pub(crate) fn run(&mut self, args: &[&[u8]]) -> Result<()> {
        command(&mut self.out, args);
        self.send()?;
        self.skip()
    }

    fn line(&mut self) -> Result<Range<usize>> {
        let mut searched = self.at;
        loop {
            let seen = self.buffer[searched..self.end]
                .iter()
                .position(|byte| *byte == b'\r');
            match seen {
                Some(place) if searched + place + 1 < self.end => {
                    let line = self.at..searched + place;
                    self.at = line.end + 2;
                    return Ok(line);
                }
                Some(place) => searched += place,
                None => searched = self.end,
            }
            self.receive()?;
        }
    }

    fn receive(&mut self) -> Result<()> {
        if self.buffer.len() - self.end < READ_BYTES / 4 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        match self.stream.read(&mut self.buffer[self.end..])? {
            0 => Err("the server closed the connection".into()),
            read => {
                self.end += read;
                Ok(())
            }
        }
    }
}

fn number(text: &[u8]) -> Result<i64> {
    let (negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, text),
    };
    let mut value = 0_i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err("a number with other characters in a reply".into());
        }
        value = value * 10 + i64::from(digit - b'0');
    }
    Ok(if negative { -value } else { value })
}

/// Appends the start of a command with this many words.
pub(crate) fn words(out: &mut Vec<u8>, count: usize) {
    out.push(b'*');
    decimal(out, count);
    out.extend_from_slice(b"\r\n");
}

/// Appends one word of a command, and answers where its bytes begin.
pub(crate) fn word(out: &mut Vec<u8>, bytes: &[u8]) -> usize {
    out.push(b'$');
    decimal(out, bytes.len());
    out.extend_from_slice(b"\r\n");
    let start = out.len();
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
    start
}

/// Appends a whole command.
pub(crate) fn command(out: &mut Vec<u8>, args: &[&[u8]]) {
    words(out, args.len());
    for arg in args {
        word(out, arg);
    }
}

fn decimal(out: &mut Vec<u8>, value: usize) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut left = value;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut out = Vec::new();
        command(&mut out, &[b"XLEN", b"a\r\nb"]);
        assert_eq!(out, b"*2\r\n$4\r\nXLEN\r\n$4\r\na\r\nb\r\n");
    }

    #[test]
    fn numbers_of_replies_have_signs() {
        assert_eq!(number(b"-1").ok(), Some(-1));
        assert_eq!(number(b"1200").ok(), Some(1200));
        assert!(number(b"1x").is_err());
    }
}

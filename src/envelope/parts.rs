//! The optional parts of an envelope: a map with short keys, one byte long when there are none.
//!
//! Layer 1. Parts that this version does not know are carried along unread, so that a retry on an
//! older server does not take them from the task.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::error::EnvelopeError;
use super::options::{
    MAX_RETRIES, MAX_TIME, MAX_TIMEOUT, check_backoff, check_header, check_header_bytes,
    check_timeout,
};
use super::wire::{Reader, Writer};
use crate::error::shown;
use crate::id::{Millis, duration_ms};
use crate::options::{Backoff, MAX_BACKOFF};

/// The longest key of a part, in bytes.
const MAX_KEY_BYTES: usize = 32;
/// The most parts one envelope may have.
const MAX_PARTS: u32 = 64;

/// What a task asks for beyond the defaults of its servers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) max_retries: Option<u32>,
    /// In whole milliseconds.
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Millis>,
    /// In whole milliseconds.
    pub(crate) backoff: Option<Backoff>,
    pub(crate) headers: BTreeMap<String, String>,
    /// What a newer library added; empty for whatever is made here.
    pub(crate) foreign: Foreign,
}

/// Encoded values that this version does not know.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Foreign {
    /// How many pairs `parts` holds.
    pub(super) part_count: u32,
    /// Keys and values of the map.
    pub(super) parts: Bytes,
    /// How many values `elements` holds.
    pub(super) element_count: u32,
    /// Elements of the envelope's array behind the map.
    pub(super) elements: Bytes,
}

impl Parts {
    /// At least as many bytes as [`write`](Self::write) needs.
    pub(super) fn size(&self) -> usize {
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len() + 6)
            .sum();
        let known = if self.known_count() == 0 {
            1
        } else {
            64 + headers
        };
        known + self.foreign.parts.len() + self.foreign.elements.len()
    }

    /// The number of elements behind the map, which are written by [`write`](Self::write) too.
    pub(super) const fn elements(&self) -> u32 {
        self.foreign.element_count
    }

    fn known_count(&self) -> u32 {
        u32::from(self.max_retries.is_some())
            + u32::from(self.timeout.is_some())
            + u32::from(self.deadline.is_some())
            + u32::from(self.backoff.is_some())
            + u32::from(!self.headers.is_empty())
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.map(self.known_count() + self.foreign.part_count);
        if let Some(retries) = self.max_retries {
            writer.text("r");
            writer.uint(u64::from(retries));
        }
        if let Some(timeout) = self.timeout {
            writer.text("t");
            writer.uint(duration_ms(timeout));
        }
        if let Some(deadline) = self.deadline {
            writer.text("d");
            writer.uint(deadline.0);
        }
        if let Some(backoff) = self.backoff {
            writer.text("b");
            write_backoff(writer, backoff);
        }
        if !self.headers.is_empty() {
            writer.text("h");
            writer.map(u32::try_from(self.headers.len()).unwrap_or(u32::MAX));
            for (name, value) in &self.headers {
                writer.text(name);
                writer.text(value);
            }
        }
        writer.raw(&self.foreign.parts);
        writer.raw(&self.foreign.elements);
    }

    /// Reads the map and the `more` elements behind it. `bytes` is what `reader` reads.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        bytes: &Bytes,
        more: u32,
    ) -> Result<Self, EnvelopeError> {
        let mut parts = Self::default();
        let mut headers = None;
        let mut foreign = BytesMut::new();
        let count = reader.map("parts")?;
        if count > MAX_PARTS {
            return Err(EnvelopeError::malformed(format!(
                "envelope has {count} parts, but must have at most {MAX_PARTS}"
            )));
        }
        for _ in 0..count {
            let start = reader.position();
            let key = reader.text("key of a part")?;
            if !parts.read_known(&mut headers, reader, key)? {
                check_key(key)?;
                reader.skip("unknown part")?;
                foreign.extend_from_slice(&bytes[start..reader.position()]);
                parts.foreign.part_count += 1;
            }
        }
        parts.headers = headers.unwrap_or_default();
        parts.foreign.parts = foreign.freeze();
        let start = reader.position();
        for _ in 0..more {
            reader.skip("unknown element")?;
        }
        parts.foreign.element_count = more;
        // A copy: a slice would keep the whole entry alive, and there is rarely anything.
        parts.foreign.elements = Bytes::copy_from_slice(&bytes[start..reader.position()]);
        Ok(parts)
    }

    /// Reads the value of a part that this version knows; false if it does not know the key.
    fn read_known(
        &mut self,
        headers: &mut Option<BTreeMap<String, String>>,
        reader: &mut Reader<'_>,
        key: &str,
    ) -> Result<bool, EnvelopeError> {
        match key {
            "r" => {
                let retries = reader.uint("max_retries", u64::from(MAX_RETRIES))?;
                set(&mut self.max_retries, key, retries as u32)?;
            }
            "t" => {
                let timeout = reader.uint("timeout", duration_ms(MAX_TIMEOUT))?;
                let timeout = check_timeout(Duration::from_millis(timeout))?;
                set(&mut self.timeout, key, timeout)?;
            }
            "d" => {
                let deadline = Millis(reader.uint("deadline", MAX_TIME.0)?);
                set(&mut self.deadline, key, deadline)?;
            }
            "b" => set(&mut self.backoff, key, read_backoff(reader)?)?,
            "h" => {
                set(headers, key, read_headers(reader)?)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn write_backoff(writer: &mut Writer, backoff: Backoff) {
    match backoff {
        Backoff::Curve => {
            writer.array(1);
            writer.uint(0);
        }
        Backoff::Fixed(wait) => {
            writer.array(2);
            writer.uint(1);
            writer.uint(duration_ms(wait));
        }
        Backoff::Exponential { initial, max } => {
            writer.array(3);
            writer.uint(2);
            writer.uint(duration_ms(initial));
            writer.uint(duration_ms(max));
        }
    }
}

fn read_backoff(reader: &mut Reader<'_>) -> Result<Backoff, EnvelopeError> {
    let len = reader.array("backoff")?;
    let longest = duration_ms(MAX_BACKOFF);
    let wait = |reader: &mut Reader<'_>| reader.uint("backoff", longest).map(Duration::from_millis);
    let backoff = match (reader.uint("kind of backoff", 2)?, len) {
        (0, 1) => Backoff::Curve,
        (1, 2) => Backoff::Fixed(wait(reader)?),
        (2, 3) => Backoff::Exponential {
            initial: wait(reader)?,
            max: wait(reader)?,
        },
        (kind, _) => {
            return Err(EnvelopeError::malformed(format!(
                "backoff of kind {kind} has {len} elements, but must have {}",
                kind + 1
            )));
        }
    };
    Ok(check_backoff(backoff)?)
}

fn read_headers(reader: &mut Reader<'_>) -> Result<BTreeMap<String, String>, EnvelopeError> {
    let mut headers = BTreeMap::new();
    let mut bytes = 0;
    for _ in 0..reader.map("headers")? {
        let name = reader.text("name of a header")?;
        let value = reader.text("value of a header")?;
        bytes += name.len() + value.len();
        check_header_bytes(bytes)?;
        check_header(name, value)?;
        if headers.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(EnvelopeError::malformed(format!(
                "header \"{}\" is there twice",
                shown(name)
            )));
        }
    }
    Ok(headers)
}

fn set<T>(part: &mut Option<T>, key: &str, value: T) -> Result<(), EnvelopeError> {
    match part.replace(value) {
        None => Ok(()),
        Some(_) => Err(twice(key)),
    }
}

fn check_key(key: &str) -> Result<(), EnvelopeError> {
    if (1..=MAX_KEY_BYTES).contains(&key.len()) {
        return Ok(());
    }
    Err(EnvelopeError::malformed(format!(
        "key \"{}\" of a part has {} bytes, but must have 1 to {MAX_KEY_BYTES}",
        shown(key),
        key.len()
    )))
}

fn twice(key: &str) -> EnvelopeError {
    EnvelopeError::malformed(format!("part \"{}\" is there twice", shown(key)))
}

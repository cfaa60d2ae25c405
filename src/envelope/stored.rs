//! The whole envelope: what a stream entry or a record holds of a task.
//!
//! Layer 1. Encoded once, into one buffer; decoded without copying the payload.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::error::EnvelopeError;
use super::head::{Head, made_at, read_version, write_task_id};
use super::parts::Parts;
use super::wire::{Reader, Writer};
use crate::id::{ClientId, MAX_NAME_BYTES, Millis, TaskId};
use crate::options::{Codec, DEFAULT_MAX_PAYLOAD_BYTES};

/// The version that this library writes.
pub(crate) const VERSION: u8 = 1;

/// How many elements version 1 has. More are carried along unread.
const ELEMENTS: u32 = 9;
/// What an envelope may have beyond its payload, in bytes.
const MAX_FRAME_BYTES: usize = 64 * 1024;
/// The most bytes of version, id, times and lengths, besides names and UUIDs.
const FIXED_BYTES: usize = 48;

/// What may arrive from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// The most bytes of a payload.
    pub(crate) max_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: DEFAULT_MAX_PAYLOAD_BYTES,
        }
    }
}

/// A stored task.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) id: TaskId,
    pub(crate) name: Arc<str>,
    /// Whom to notify; none for tasks nobody waits for.
    pub(crate) client: Option<ClientId>,
    pub(crate) enqueued_at: Millis,
    pub(crate) payload: Bytes,
    pub(crate) codec: Codec,
    /// How many attempts failed so far: 0 on the first run.
    pub(crate) attempt: u32,
    pub(crate) parts: Parts,
}

impl Envelope {
    /// The bytes that are stored. Sizes and options were checked before: see `resolve`.
    pub(crate) fn encode(&self) -> Bytes {
        self.with_attempt(self.attempt)
    }

    /// The bytes of the same task with another count of failed attempts.
    pub(crate) fn with_attempt(&self, attempt: u32) -> Bytes {
        let mut bytes = Vec::with_capacity(self.size());
        Writer::append(&mut bytes, |writer| self.write(writer, attempt));
        Bytes::from(bytes)
    }

    /// Puts the bytes that are stored behind what is in `bytes`.
    pub(crate) fn append_to(&self, bytes: &mut Vec<u8>) {
        Writer::append(bytes, |writer| self.write(writer, self.attempt));
    }

    fn write(&self, writer: &mut Writer, attempt: u32) {
        writer.array(ELEMENTS + self.parts.elements());
        writer.uint(u64::from(VERSION));
        write_task_id(writer, &self.id);
        writer.text(&self.name);
        match &self.client {
            Some(client) => writer.text(client.as_str()),
            None => writer.nil(),
        }
        // A UUIDv7 tells the same time: eight bytes of every queued task.
        if made_at(&self.id) == self.enqueued_at {
            writer.nil();
        } else {
            writer.uint(self.enqueued_at.0);
        }
        writer.bytes(&self.payload);
        write_codec(writer, self.codec);
        writer.uint(u64::from(attempt));
        self.parts.write(writer);
    }

    /// Reads an envelope of this version. The payload is a slice of `bytes`.
    ///
    /// # Errors
    /// Whatever is not exactly the documented format, within the limits.
    pub(crate) fn decode(bytes: &Bytes, limits: &Limits) -> Result<Self, EnvelopeError> {
        let limit = limits.max_bytes.saturating_add(MAX_FRAME_BYTES);
        if bytes.len() > limit {
            return Err(EnvelopeError::TooLarge {
                bytes: bytes.len(),
                limit,
            });
        }
        let mut reader = Reader::new(bytes);
        let (version, elements) = read_version(&mut reader)?;
        if version != VERSION {
            return Err(EnvelopeError::UnsupportedVersion(version));
        }
        let more = elements.checked_sub(ELEMENTS).ok_or_else(|| {
            EnvelopeError::malformed(format!(
                "envelope has {elements} elements, but must have {ELEMENTS} or more"
            ))
        })?;
        let head = Head::read_rest(&mut reader, version)?;
        let payload = reader.bytes("payload")?;
        if payload.len() > limits.max_bytes {
            return Err(EnvelopeError::TooLarge {
                bytes: payload.len(),
                limit: limits.max_bytes,
            });
        }
        let codec = read_codec(&mut reader)?;
        let attempt = reader.uint("attempt", u64::from(u32::MAX))? as u32;
        let parts = Parts::read(&mut reader, bytes, more)?;
        reader.finish()?;
        Ok(Self {
            id: head.id,
            name: head.name,
            client: head.client,
            enqueued_at: head.enqueued_at,
            payload: bytes.slice(payload),
            codec,
            attempt,
            parts,
        })
    }

    /// At least as many bytes as the envelope needs.
    pub(super) fn size(&self) -> usize {
        let id = if self.id.as_uuid().is_some() {
            18
        } else {
            MAX_NAME_BYTES
        };
        let client = self
            .client
            .as_ref()
            .map_or(0, |client| client.as_str().len());
        FIXED_BYTES + id + self.name.len() + client + self.payload.len() + self.parts.size()
    }
}

impl fmt::Debug for Envelope {
    /// Without the payload and the headers, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("client", &self.client)
            .field("enqueued_at", &self.enqueued_at)
            .field("payload_bytes", &self.payload.len())
            .field("codec", &self.codec)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

pub(super) fn write_codec(writer: &mut Writer, codec: Codec) {
    writer.uint(match codec {
        Codec::MessagePack => 0,
        Codec::Json => 1,
    });
}

pub(super) fn read_codec(reader: &mut Reader<'_>) -> Result<Codec, EnvelopeError> {
    match reader.uint("codec", 1)? {
        0 => Ok(Codec::MessagePack),
        _ => Ok(Codec::Json),
    }
}

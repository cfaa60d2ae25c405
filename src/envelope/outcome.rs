//! The notice in a client's receiver: which task ended, and how.
//!
//! Layer 1. Written by servers through `store`, and by scripts for tasks outside the stream; read
//! by the client's receiver loop.

use std::time::Duration;

use bytes::Bytes;

use super::error::EnvelopeError;
use super::head::{read_task_id, write_task_id};
use super::stored::{read_codec, write_codec};
use super::wire::{Reader, Writer};
use crate::error::shown;
use crate::id::{TaskId, duration_ms};
use crate::options::Codec;

/// The longest text in a notice or a record, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 8 * 1024;

/// The version of the notice. Version and task id are frozen for all versions.
const VERSION: u8 = 1;

/// What one entry of a receiver says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Notice {
    pub(crate) task: TaskId,
    pub(crate) ending: Ending,
}

/// How a task ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Succeeded {
        codec: Codec,
        output: Bytes,
    },
    /// The last error: encoded for a reader that knows its type, and as text.
    Failed {
        codec: Codec,
        error: Bytes,
        text: String,
    },
    Panicked(String),
    TimedOut(Duration),
    Poison {
        crashes: u32,
    },
    NoHandler(String),
    Undecodable(String),
    OutputTooLarge {
        bytes: usize,
        limit: usize,
    },
    /// By a person.
    Archived,
    Cancelled,
    Expired,
    Discarded(String),
    Deleted,
}

impl Ending {
    /// The word on the wire; also the reason word of a record.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Panicked(_) => "panicked",
            Self::TimedOut(_) => "timed_out",
            Self::Poison { .. } => "poison",
            Self::NoHandler(_) => "no_handler",
            Self::Undecodable(_) => "undecodable",
            Self::OutputTooLarge { .. } => "output_too_large",
            Self::Archived => "archived",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Discarded(_) => "discarded",
            Self::Deleted => "deleted",
        }
    }
}

impl Ending {
    /// What happened, for people: at most 8 KiB.
    pub(crate) fn text(&self) -> String {
        let text = match self {
            Self::Failed { text, .. }
            | Self::Panicked(text)
            | Self::NoHandler(text)
            | Self::Undecodable(text)
            | Self::Discarded(text) => text.clone(),
            Self::TimedOut(timeout) => format!("ran longer than its timeout of {timeout:?}"),
            Self::Poison { crashes } => format!("{crashes} processes died while they ran it"),
            Self::OutputTooLarge { bytes, limit } => {
                format!("output has {bytes} bytes, the limit is {limit}")
            }
            _ => self.word().to_owned(),
        };
        cut_text(&text, MAX_TEXT_BYTES).to_owned()
    }
}

impl Notice {
    /// The bytes of the field `o`.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.size());
        Writer::append(&mut bytes, |writer| self.write(writer));
        Bytes::from(bytes)
    }

    fn write(&self, writer: &mut Writer) {
        writer.array(3 + self.fields());
        writer.uint(u64::from(VERSION));
        write_task_id(writer, &self.task);
        writer.text(self.ending.word());
        match &self.ending {
            Ending::Succeeded { codec, output } => {
                write_codec(writer, *codec);
                writer.bytes(output);
            }
            Ending::Failed { codec, error, text } => {
                write_codec(writer, *codec);
                writer.bytes(error);
                writer.text(cut_text(text, MAX_TEXT_BYTES));
            }
            Ending::Panicked(text)
            | Ending::NoHandler(text)
            | Ending::Undecodable(text)
            | Ending::Discarded(text) => writer.text(cut_text(text, MAX_TEXT_BYTES)),
            Ending::TimedOut(timeout) => writer.uint(duration_ms(*timeout)),
            Ending::Poison { crashes } => writer.uint(u64::from(*crashes)),
            Ending::OutputTooLarge { bytes, limit } => {
                writer.uint(*bytes as u64);
                writer.uint(*limit as u64);
            }
            Ending::Archived | Ending::Cancelled | Ending::Expired | Ending::Deleted => {}
        }
    }

    /// Reads a notice. Output and error are slices of `bytes`.
    ///
    /// # Errors
    /// When it is not a notice of this version; then [`task_of`](Self::task_of) may still say whose
    /// it is, so that the waiter is told.
    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, EnvelopeError> {
        let mut reader = Reader::new(bytes);
        let elements = reader.array("notice")?;
        let version = read_version(&mut reader)?;
        if version != VERSION {
            return Err(EnvelopeError::UnsupportedVersion(version));
        }
        let task = read_task_id(&mut reader)?;
        let ending = read_ending(&mut reader, bytes)?;
        let notice = Self { task, ending };
        let more = elements.checked_sub(3 + notice.fields()).ok_or_else(|| {
            EnvelopeError::malformed(format!(
                "notice \"{}\" has {elements} elements, but must have {} or more",
                notice.ending.word(),
                3 + notice.fields()
            ))
        })?;
        for _ in 0..more {
            reader.skip("unknown element")?;
        }
        reader.finish()?;
        Ok(notice)
    }

    /// Whose notice it is, in any version.
    pub(crate) fn task_of(bytes: &[u8]) -> Result<TaskId, EnvelopeError> {
        let mut reader = Reader::new(bytes);
        reader.array("notice")?;
        read_version(&mut reader)?;
        read_task_id(&mut reader)
    }

    /// How many elements follow the word.
    const fn fields(&self) -> u32 {
        match &self.ending {
            Ending::Archived | Ending::Cancelled | Ending::Expired | Ending::Deleted => 0,
            Ending::Panicked(_)
            | Ending::TimedOut(_)
            | Ending::Poison { .. }
            | Ending::NoHandler(_)
            | Ending::Undecodable(_)
            | Ending::Discarded(_) => 1,
            Ending::Succeeded { .. } | Ending::OutputTooLarge { .. } => 2,
            Ending::Failed { .. } => 3,
        }
    }

    /// About as many bytes as it has. Exact for a success of a task with a UUID: those are written
    /// often, and bytes that fill what they were given cost one allocation less.
    fn size(&self) -> usize {
        const UUID_AND_FRAME: usize = 1 + 1 + 18;
        const MORE: usize = 64;
        UUID_AND_FRAME
            + match (&self.ending, self.task.as_uuid()) {
                (Ending::Succeeded { output, .. }, Some(_)) => {
                    "succeeded".len() + 2 + bin_header(output.len()) + output.len()
                }
                (ending, _) => MORE + text_bytes(ending),
            }
    }
}

/// How many bytes MessagePack puts in front of binary data.
const fn bin_header(bytes: usize) -> usize {
    match bytes {
        0..=0xff => 2,
        0x100..=0xffff => 3,
        _ => 5,
    }
}

/// The bytes of what an ending says in detail.
fn text_bytes(ending: &Ending) -> usize {
    match ending {
        Ending::Succeeded { output, .. } => output.len(),
        Ending::Failed { error, text, .. } => error.len() + text.len().min(MAX_TEXT_BYTES),
        Ending::Panicked(text)
        | Ending::NoHandler(text)
        | Ending::Undecodable(text)
        | Ending::Discarded(text) => text.len().min(MAX_TEXT_BYTES),
        _ => 0,
    }
}

/// The longest start of a text that has at most `limit` bytes and ends at a character.
pub(crate) fn cut_text(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn read_version(reader: &mut Reader<'_>) -> Result<u8, EnvelopeError> {
    match u8::try_from(reader.uint("version", u64::from(u8::MAX))?) {
        Ok(version @ 1..) => Ok(version),
        _ => Err(EnvelopeError::malformed(
            "version is 0, but must be 1 to 255",
        )),
    }
}

fn read_ending(reader: &mut Reader<'_>, bytes: &Bytes) -> Result<Ending, EnvelopeError> {
    Ok(match reader.text("ending")? {
        "succeeded" => Ending::Succeeded {
            codec: read_codec(reader)?,
            output: bytes.slice(reader.bytes("output")?),
        },
        "failed" => Ending::Failed {
            codec: read_codec(reader)?,
            error: bytes.slice(reader.bytes("error")?),
            text: read_text(reader)?,
        },
        "panicked" => Ending::Panicked(read_text(reader)?),
        "timed_out" => Ending::TimedOut(Duration::from_millis(reader.uint("timeout", u64::MAX)?)),
        "poison" => Ending::Poison {
            crashes: reader.uint("count of crashes", u64::from(u32::MAX))? as u32,
        },
        "no_handler" => Ending::NoHandler(read_text(reader)?),
        "undecodable" => Ending::Undecodable(read_text(reader)?),
        "output_too_large" => Ending::OutputTooLarge {
            bytes: read_size(reader, "size of the output")?,
            limit: read_size(reader, "limit of the output")?,
        },
        "archived" => Ending::Archived,
        "cancelled" => Ending::Cancelled,
        "expired" => Ending::Expired,
        "discarded" => Ending::Discarded(read_text(reader)?),
        "deleted" => Ending::Deleted,
        other => {
            return Err(EnvelopeError::malformed(format!(
                "ending \"{}\" is not known",
                shown(other)
            )));
        }
    })
}

/// Text for people: bytes that are no UTF-8 must not cost the waiter its outcome.
fn read_text(reader: &mut Reader<'_>) -> Result<String, EnvelopeError> {
    let text = String::from_utf8_lossy(reader.slice("text")?);
    Ok(cut_text(&text, MAX_TEXT_BYTES).to_owned())
}

fn read_size(reader: &mut Reader<'_>, what: &'static str) -> Result<usize, EnvelopeError> {
    Ok(usize::try_from(reader.uint(what, u64::MAX)?).unwrap_or(usize::MAX))
}

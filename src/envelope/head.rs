//! The five elements that are the same in every version of the envelope.
//!
//! Layer 1. With them a server can park, archive and notify a task that it cannot run.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::LocalKey;

use uuid::Uuid;

use super::error::EnvelopeError;
use super::options::MAX_TIME;
use super::wire::{Reader, Writer};
use crate::id::{ClientId, Millis, TaskId, check_name};

/// How many elements are frozen.
const HEAD_ELEMENTS: u32 = 5;

/// Version, id, name, client and time of the enqueue, readable from any version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) version: u8,
    pub(crate) id: TaskId,
    pub(crate) name: Arc<str>,
    /// Whom to notify; none for tasks nobody waits for.
    pub(crate) client: Option<ClientId>,
    pub(crate) enqueued_at: Millis,
}

impl Head {
    /// Reads the frozen elements. What follows them is not looked at.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        let mut reader = Reader::new(bytes);
        let (version, _) = read_version(&mut reader)?;
        Self::read_rest(&mut reader, version)
    }

    /// Reads what follows the version.
    pub(super) fn read_rest(reader: &mut Reader<'_>, version: u8) -> Result<Self, EnvelopeError> {
        let id = read_task_id(reader)?;
        let name = reader.text("task name")?;
        let name = like_the_last(
            &LAST_NAME,
            name,
            |name| &**name,
            |name| {
                check_name("task", name)?;
                Ok(Arc::from(name))
            },
        )?;
        let client = if reader.nil() {
            None
        } else {
            let client = reader.text("client id")?;
            Some(like_the_last(
                &LAST_CLIENT,
                client,
                ClientId::as_str,
                |client| Ok(ClientId::new(client)?),
            )?)
        };
        Ok(Self {
            version,
            name,
            client,
            enqueued_at: if reader.nil() {
                made_at(&id)
            } else {
                Millis(reader.uint("enqueued_at", MAX_TIME.0)?)
            },
            id,
        })
    }
}

thread_local! {
    /// Tasks in a row are mostly of one name and one client: those are not made, nor checked, again.
    static LAST_NAME: Cell<Option<Arc<str>>> = const { Cell::new(None) };
    static LAST_CLIENT: Cell<Option<ClientId>> = const { Cell::new(None) };
}

/// What `make` makes of a text, shared with the last one if that was the same.
fn like_the_last<T: Clone>(
    last: &'static LocalKey<Cell<Option<T>>>,
    text: &str,
    text_of: impl Fn(&T) -> &str,
    make: impl FnOnce(&str) -> Result<T, EnvelopeError>,
) -> Result<T, EnvelopeError> {
    let made = match last.take() {
        Some(same) if text_of(&same) == text => same,
        _ => make(text)?,
    };
    last.set(Some(made.clone()));
    Ok(made)
}

/// When a UUIDv7 was made; the beginning of time for any other id.
pub(super) fn made_at(id: &TaskId) -> Millis {
    let of_v7 = |uuid: &Uuid| {
        let bytes = uuid.as_bytes();
        let millis = bytes[..6]
            .iter()
            .fold(0, |millis, byte| (millis << 8) | u64::from(*byte));
        (uuid.get_version_num() == 7).then_some(Millis(millis))
    };
    id.as_uuid().and_then(of_v7).unwrap_or_default()
}

/// Opens the array: its version and how many elements it has in all.
pub(super) fn read_version(reader: &mut Reader<'_>) -> Result<(u8, u32), EnvelopeError> {
    let elements = reader.array("envelope")?;
    if elements < HEAD_ELEMENTS {
        return Err(EnvelopeError::malformed(format!(
            "envelope has {elements} elements, but must have {HEAD_ELEMENTS} or more"
        )));
    }
    match u8::try_from(reader.uint("version", u64::from(u8::MAX))?) {
        Ok(version @ 1..) => Ok((version, elements)),
        _ => Err(EnvelopeError::malformed(
            "version is 0, but must be 1 to 255",
        )),
    }
}

/// 16 bytes of a UUID, or text.
pub(super) fn read_task_id(reader: &mut Reader<'_>) -> Result<TaskId, EnvelopeError> {
    if !reader.is_binary() {
        return Ok(TaskId::new(reader.text("task id")?)?);
    }
    let raw = reader.slice("task id")?;
    let uuid = Uuid::from_slice(raw).map_err(|_| {
        EnvelopeError::malformed(format!("task id has {} bytes, but must have 16", raw.len()))
    })?;
    Ok(TaskId::from_uuid(uuid))
}

pub(super) fn write_task_id(writer: &mut Writer, id: &TaskId) {
    match id.as_uuid() {
        Some(uuid) => writer.bytes(uuid.as_bytes()),
        None => writer.text(&id.to_string()),
    }
}

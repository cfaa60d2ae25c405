//! The stored state of a task that is not (only) in the stream: one MessagePack map per task id in
//! the hash `tasks`.
//!
//! Layer 2. Scripts write records (`scripts/parts/record.lua`); this file only reads them. It does
//! not decode the envelope inside: that is `envelope`.
//!
//! cmsgpack of Redis writes byte strings as MessagePack strings, so a string may hold any bytes.

use bytes::Bytes;
use rmp::Marker;

use crate::error::{BackendError, BackendKind};
use crate::id::{ClientId, EntryId, Millis};
use crate::state::TaskState;

/// The only version of the record that there is.
const VERSION: u64 = 1;

/// One record, as the scripts wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// `s`: never `Active`, which only the pending list knows.
    pub(crate) state: TaskState,
    /// `e`: a slice of the reply, not a copy.
    pub(crate) envelope: Bytes,
    /// `n`: the task's name.
    pub(crate) name: String,
    /// `i`: the entry, while the task is in the stream.
    pub(crate) entry: Option<EntryId>,
    /// `d`: when it is due, while it is scheduled or waits for its next attempt.
    pub(crate) due: Option<Millis>,
    /// `c`: crashes it was suspected of, kept while it is parked.
    pub(crate) crashes: u32,
    /// `x`: the last error's text.
    pub(crate) error: Option<String>,
    /// `k`: the word of the last failure or of the ending: `failed`, `panicked`, `poison` …
    pub(crate) reason: Option<String>,
    /// `f`: when it failed last or ended.
    pub(crate) ended_at: Option<Millis>,
    /// `l`: whom to tell how it ended.
    pub(crate) client: Option<ClientId>,
    /// `p`: when a server first did not know its name or version.
    pub(crate) parked_since: Option<Millis>,
}

impl Record {
    /// Reads the value of one field of `tasks`. Keys it does not know are skipped.
    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, BackendError> {
        let mut reader = Reader { bytes, at: 0 };
        let mut record = Self {
            state: TaskState::Pending,
            envelope: Bytes::new(),
            name: String::new(),
            entry: None,
            due: None,
            crashes: 0,
            error: None,
            reason: None,
            ended_at: None,
            client: None,
            parked_since: None,
        };
        let (mut version, mut state) = (None, None);
        for _ in 0..reader.map_len()? {
            let key = reader.value()?;
            let value = reader.value()?;
            match key.bytes()?.as_ref() {
                b"v" => version = Some(value.number()?),
                b"s" => state = TaskState::from_word(&value.text()?),
                b"e" => record.envelope = value.bytes()?,
                b"n" => record.name = value.text()?,
                b"i" => record.entry = EntryId::parse_bytes(&value.bytes()?),
                b"d" => record.due = Some(Millis(value.number()?)),
                b"c" => record.crashes = u32::try_from(value.number()?).unwrap_or(u32::MAX),
                b"x" => record.error = Some(value.text()?),
                b"k" => record.reason = Some(value.text()?),
                b"f" => record.ended_at = Some(Millis(value.number()?)),
                b"l" => record.client = ClientId::new(value.text()?).ok(),
                b"p" => record.parked_since = Some(Millis(value.number()?)),
                _ => {}
            }
        }
        if version != Some(VERSION) {
            return Err(malformed("its version is not 1"));
        }
        record.state = state.ok_or_else(|| malformed("it has no known state"))?;
        Ok(record)
    }
}

/// What a value of the map may be.
enum Value {
    Bytes(Bytes),
    Number(u64),
    Other,
}

impl Value {
    fn bytes(self) -> Result<Bytes, BackendError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(malformed("a string was expected")),
        }
    }

    fn text(self) -> Result<String, BackendError> {
        Ok(String::from_utf8_lossy(&self.bytes()?).into_owned())
    }

    fn number(self) -> Result<u64, BackendError> {
        match self {
            Self::Number(number) => Ok(number),
            _ => Err(malformed("a number was expected")),
        }
    }
}

/// Walks over one flat map. Every read is checked against the end.
struct Reader<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl Reader<'_> {
    fn map_len(&mut self) -> Result<usize, BackendError> {
        match self.marker()? {
            Marker::FixMap(len) => Ok(usize::from(len)),
            Marker::Map16 => self.length(2),
            Marker::Map32 => self.length(4),
            _ => Err(malformed("it is no map")),
        }
    }

    fn value(&mut self) -> Result<Value, BackendError> {
        Ok(match self.marker()? {
            Marker::FixStr(len) => self.take(usize::from(len)).map(Value::Bytes)?,
            Marker::Str8 | Marker::Bin8 => self.sized(1)?,
            Marker::Str16 | Marker::Bin16 => self.sized(2)?,
            Marker::Str32 | Marker::Bin32 => self.sized(4)?,
            Marker::FixPos(number) => Value::Number(u64::from(number)),
            Marker::U8 => self.number(1)?,
            Marker::U16 => self.number(2)?,
            Marker::U32 => self.number(4)?,
            Marker::U64 => self.number(8)?,
            // A negative number stands nowhere in a record; it reads as 0 and never as a huge one.
            Marker::FixNeg(_) => Value::Number(0),
            Marker::I8 => self.signed(1)?,
            Marker::I16 => self.signed(2)?,
            Marker::I32 => self.signed(4)?,
            Marker::I64 => self.signed(8)?,
            Marker::Null | Marker::True | Marker::False => Value::Other,
            Marker::F32 => self.take(4).map(|_| Value::Other)?,
            Marker::F64 => self.take(8).map(|_| Value::Other)?,
            _ => return Err(malformed("a value is neither text nor number")),
        })
    }

    fn sized(&mut self, width: usize) -> Result<Value, BackendError> {
        let len = self.length(width)?;
        self.take(len).map(Value::Bytes)
    }

    fn signed(&mut self, width: usize) -> Result<Value, BackendError> {
        let negative = self.bytes.get(self.at).is_some_and(|byte| byte & 0x80 != 0);
        let value = self.number(width)?;
        Ok(if negative { Value::Number(0) } else { value })
    }

    fn number(&mut self, width: usize) -> Result<Value, BackendError> {
        self.unsigned(width).map(Value::Number)
    }

    fn length(&mut self, width: usize) -> Result<usize, BackendError> {
        usize::try_from(self.unsigned(width)?).map_err(|_| malformed("a length is too large"))
    }

    fn unsigned(&mut self, width: usize) -> Result<u64, BackendError> {
        let digits = self.take(width)?;
        Ok(digits
            .iter()
            .fold(0, |value, byte| (value << 8) | u64::from(*byte)))
    }

    fn marker(&mut self) -> Result<Marker, BackendError> {
        Ok(Marker::from_u8(self.take(1)?[0]))
    }

    fn take(&mut self, len: usize) -> Result<Bytes, BackendError> {
        let end = self
            .at
            .checked_add(len)
            .filter(|end| *end <= self.bytes.len())
            .ok_or_else(|| malformed("it ends too early"))?;
        let taken = self.bytes.slice(self.at..end);
        self.at = end;
        Ok(taken)
    }
}

fn malformed(why: &str) -> BackendError {
    BackendError::new(
        BackendKind::Fatal,
        format!("a task's record cannot be read: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cmsgpack.pack{v=1,s='retry',e='\255\0',n='mail.send',d=1700000000000,c=2,x='no',k='failed',f=300,l='c1'}`
    /// as Redis 7.0.15 wrote it.
    const WRITTEN_BY_REDIS: &[u8] =
        b"\x8a\xa1s\xa5retry\xa1e\xa2\xff\x00\xa1d\xcf\x00\x00\x01\x8b\xcf\xe5h\x00\xa1v\x01\xa1x\xa2no\xa1k\xa6failed\xa1f\xcd\x01,\xa1l\xa2c1\xa1c\x02\xa1n\xa9mail.send";

    #[test]
    fn a_record_of_redis_is_read() {
        let record = Record::decode(&Bytes::from_static(WRITTEN_BY_REDIS)).unwrap();
        assert_eq!(record.state, TaskState::Retry);
        assert_eq!(record.envelope.as_ref(), b"\xff\x00");
        assert_eq!(record.name, "mail.send");
        assert_eq!(record.due, Some(Millis(1_700_000_000_000)));
        assert_eq!(record.crashes, 2);
        assert_eq!(record.error.as_deref(), Some("no"));
        assert_eq!(record.reason.as_deref(), Some("failed"));
        assert_eq!(record.ended_at, Some(Millis(300)));
        assert_eq!(record.client, Some(ClientId::new("c1").unwrap()));
        assert_eq!((record.entry, record.parked_since), (None, None));
    }

    #[test]
    fn unknown_keys_are_skipped() {
        let bytes = Bytes::from_static(
            b"\x84\xa1v\x01\xa1s\xa6parked\xa3new\xc3\xa2d2\xcb\0\0\0\0\0\0\0\0",
        );
        assert_eq!(Record::decode(&bytes).unwrap().state, TaskState::Parked);
    }

    #[test]
    fn every_cut_of_a_record_is_refused_and_none_panics() {
        for end in 0..WRITTEN_BY_REDIS.len() {
            assert!(Record::decode(&Bytes::from_static(&WRITTEN_BY_REDIS[..end])).is_err());
        }
    }

    #[test]
    fn another_version_or_state_is_refused() {
        for bytes in [
            &b"\x82\xa1v\x02\xa1s\xa5retry"[..],
            b"\x82\xa1v\x01\xa1s\xa3odd",
            b"\x90",
            b"",
        ] {
            assert!(Record::decode(&Bytes::from_static(bytes)).is_err());
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        let bytes = Bytes::from_static(b"\x81\xa1e\xdb\xff\xff\xff\xff");
        assert!(Record::decode(&bytes).is_err());
    }
}

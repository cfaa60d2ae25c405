//! MessagePack values on the lowest level: a reader that borrows and a writer into one buffer.
//!
//! Layer 1, used by the files beside it only. The reader trusts no length: what a value declares
//! is compared with the bytes that are there before anything is taken, and nothing is allocated.
//! serde is not involved, because the envelope is read and written once per task and hop.

use std::ops::Range;

use rmp::Marker;
use rmp::encode::{self, ByteBuf};

use super::error::EnvelopeError;

/// The deepest nesting of arrays and maps in anything that is decoded.
///
/// A debug build needs about 3 KiB of stack per level: 64 levels fit a 2 MiB thread many times.
pub(super) const MAX_DEPTH: usize = 64;

type Result<T> = std::result::Result<T, EnvelopeError>;

/// Reads values from the front of a slice.
pub(super) struct Reader<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(all: &'a [u8]) -> Self {
        Self { all, at: 0 }
    }

    /// How many bytes were read.
    pub(super) const fn position(&self) -> usize {
        self.at
    }

    /// Refuses bytes after the last value.
    pub(super) const fn finish(&self) -> Result<()> {
        match self.all.len() - self.at {
            0 => Ok(()),
            rest => Err(EnvelopeError::TrailingBytes(rest)),
        }
    }

    /// The number of elements of an array.
    pub(super) fn array(&mut self, what: &'static str) -> Result<u32> {
        match self.marker(what)? {
            Marker::FixArray(len) => Ok(u32::from(len)),
            Marker::Array16 => Ok(u32::from(self.u16(what)?)),
            Marker::Array32 => self.u32(what),
            other => Err(mismatch(what, "an array", other)),
        }
    }

    /// The number of pairs of a map.
    pub(super) fn map(&mut self, what: &'static str) -> Result<u32> {
        match self.marker(what)? {
            Marker::FixMap(len) => Ok(u32::from(len)),
            Marker::Map16 => Ok(u32::from(self.u16(what)?)),
            Marker::Map32 => self.u32(what),
            other => Err(mismatch(what, "a map", other)),
        }
    }

    /// A whole number from 0 to `max`, in any of MessagePack's spellings.
    pub(super) fn uint(&mut self, what: &'static str, max: u64) -> Result<u64> {
        let value = match self.marker(what)? {
            Marker::FixPos(value) => u64::from(value),
            Marker::U8 => u64::from(self.u8(what)?),
            Marker::U16 => u64::from(self.u16(what)?),
            Marker::U32 => u64::from(self.u32(what)?),
            Marker::U64 => u64::from_be_bytes(self.chunk(what)?),
            Marker::FixNeg(value) => return Err(out_of_range(what, value, max)),
            Marker::I8 => self.signed(what, max, |[byte]| i64::from(i8::from_be_bytes([byte])))?,
            Marker::I16 => self.signed(what, max, |raw| i64::from(i16::from_be_bytes(raw)))?,
            Marker::I32 => self.signed(what, max, |raw| i64::from(i32::from_be_bytes(raw)))?,
            Marker::I64 => self.signed(what, max, i64::from_be_bytes)?,
            other => return Err(mismatch(what, "a whole number", other)),
        };
        if value > max {
            return Err(out_of_range(what, value, max));
        }
        Ok(value)
    }

    /// UTF-8 text.
    pub(super) fn text(&mut self, what: &'static str) -> Result<&'a str> {
        match self.marker(what)? {
            marker @ (Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32) => {
                let range = self.blob(what, marker)?;
                std::str::from_utf8(&self.all[range])
                    .map_err(|_| EnvelopeError::malformed(format!("{what} is not UTF-8")))
            }
            other => Err(mismatch(what, "text", other)),
        }
    }

    /// Where the bytes of a binary value, or of a string of any bytes, are: the library in Redis
    /// that packs MessagePack writes every string as text.
    pub(super) fn bytes(&mut self, what: &'static str) -> Result<Range<usize>> {
        let marker = self.marker(what)?;
        self.blob(what, marker)
    }

    /// The bytes themselves of a binary value or a string.
    pub(super) fn slice(&mut self, what: &'static str) -> Result<&'a [u8]> {
        let range = self.bytes(what)?;
        Ok(&self.all[range])
    }

    /// The next value is nil, and was read.
    pub(super) fn nil(&mut self) -> bool {
        let nil = self.all.get(self.at) == Some(&Marker::Null.to_u8());
        self.at += usize::from(nil);
        nil
    }

    /// The next value is binary, not text.
    pub(super) fn is_binary(&self) -> bool {
        self.all.get(self.at).is_some_and(|byte| {
            matches!(
                Marker::from_u8(*byte),
                Marker::Bin8 | Marker::Bin16 | Marker::Bin32
            )
        })
    }

    /// Passes over one value of any type; not recursive, so that depth costs no stack.
    pub(super) fn skip(&mut self, what: &'static str) -> Result<()> {
        // How many values each open container still lacks.
        let mut lacking = [0_u64; MAX_DEPTH];
        let mut depth = 0;
        loop {
            if let Some(children) = self.skip_one(what)? {
                let Some(slot) = lacking.get_mut(depth) else {
                    return Err(EnvelopeError::malformed(format!(
                        "{what} is nested deeper than {MAX_DEPTH} levels"
                    )));
                };
                // Every value takes a byte, so a container that declares more is cut off.
                if children > (self.all.len() - self.at) as u64 {
                    return Err(cut_off(what));
                }
                if children > 0 {
                    *slot = children;
                    depth += 1;
                    continue;
                }
            }
            loop {
                let Some(open) = depth.checked_sub(1) else {
                    return Ok(());
                };
                lacking[open] -= 1;
                if lacking[open] > 0 {
                    break;
                }
                depth = open;
            }
        }
    }

    /// Passes over a scalar or the head of a container, and then answers how many
    /// values follow in it.
    fn skip_one(&mut self, what: &'static str) -> Result<Option<u64>> {
        let payload = match self.marker(what)? {
            Marker::FixArray(len) => return Ok(Some(u64::from(len))),
            Marker::Array16 => return Ok(Some(u64::from(self.u16(what)?))),
            Marker::Array32 => return Ok(Some(u64::from(self.u32(what)?))),
            Marker::FixMap(len) => return Ok(Some(2 * u64::from(len))),
            Marker::Map16 => return Ok(Some(2 * u64::from(self.u16(what)?))),
            Marker::Map32 => return Ok(Some(2 * u64::from(self.u32(what)?))),
            Marker::Null | Marker::True | Marker::False | Marker::FixPos(_) | Marker::FixNeg(_) => {
                0
            }
            Marker::U8 | Marker::I8 => 1,
            Marker::U16 | Marker::I16 => 2,
            Marker::U32 | Marker::I32 | Marker::F32 => 4,
            Marker::U64 | Marker::I64 | Marker::F64 => 8,
            Marker::FixExt1 => 2,
            Marker::FixExt2 => 3,
            Marker::FixExt4 => 5,
            Marker::FixExt8 => 9,
            Marker::FixExt16 => 17,
            Marker::Ext8 => usize::from(self.u8(what)?) + 1,
            Marker::Ext16 => usize::from(self.u16(what)?) + 1,
            Marker::Ext32 => (self.u32(what)? as usize).saturating_add(1),
            Marker::Reserved => return Err(mismatch(what, "a value", Marker::Reserved)),
            marker => {
                self.blob(what, marker)?;
                0
            }
        };
        self.take(what, payload)?;
        Ok(None)
    }

    fn blob(&mut self, what: &'static str, marker: Marker) -> Result<Range<usize>> {
        let len = match marker {
            Marker::FixStr(len) => usize::from(len),
            Marker::Str8 | Marker::Bin8 => usize::from(self.u8(what)?),
            Marker::Str16 | Marker::Bin16 => usize::from(self.u16(what)?),
            Marker::Str32 | Marker::Bin32 => self.u32(what)? as usize,
            other => return Err(mismatch(what, "binary or text", other)),
        };
        let start = self.at;
        self.take(what, len)?;
        Ok(start..self.at)
    }

    fn marker(&mut self, what: &'static str) -> Result<Marker> {
        Ok(Marker::from_u8(self.u8(what)?))
    }

    fn signed<const N: usize>(
        &mut self,
        what: &'static str,
        max: u64,
        read: fn([u8; N]) -> i64,
    ) -> Result<u64> {
        let value = read(self.chunk(what)?);
        u64::try_from(value).map_err(|_| out_of_range(what, value, max))
    }

    fn u8(&mut self, what: &'static str) -> Result<u8> {
        Ok(u8::from_be_bytes(self.chunk(what)?))
    }

    fn u16(&mut self, what: &'static str) -> Result<u16> {
        Ok(u16::from_be_bytes(self.chunk(what)?))
    }

    fn u32(&mut self, what: &'static str) -> Result<u32> {
        Ok(u32::from_be_bytes(self.chunk(what)?))
    }

    fn chunk<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let chunk = self.all[self.at..]
            .first_chunk::<N>()
            .ok_or_else(|| cut_off(what))?;
        self.at += N;
        Ok(*chunk)
    }

    fn take(&mut self, what: &'static str, len: usize) -> Result<()> {
        if len > self.all.len() - self.at {
            return Err(cut_off(what));
        }
        self.at += len;
        Ok(())
    }
}

#[cold]
fn cut_off(what: &'static str) -> EnvelopeError {
    EnvelopeError::malformed(format!("the bytes end within {what}"))
}

#[cold]
fn mismatch(what: &'static str, wanted: &'static str, found: Marker) -> EnvelopeError {
    EnvelopeError::malformed(format!(
        "{what} must be {wanted}, but starts with byte {:#04x}",
        found.to_u8()
    ))
}

#[cold]
fn out_of_range(what: &'static str, value: impl std::fmt::Display, max: u64) -> EnvelopeError {
    EnvelopeError::malformed(format!("{what} is {value}, but must be 0 to {max}"))
}

/// Writes values, each in its shortest form, into one buffer that cannot fail.
pub(super) struct Writer(ByteBuf);

impl Writer {
    /// Lets `write` put its values behind what `bytes` has already.
    pub(super) fn append(bytes: &mut Vec<u8>, write: impl FnOnce(&mut Self)) {
        let mut writer = Self(ByteBuf::from_vec(std::mem::take(bytes)));
        write(&mut writer);
        *bytes = writer.0.into_vec();
    }

    pub(super) fn array(&mut self, len: u32) {
        let Ok(_) = encode::write_array_len(&mut self.0, len);
    }

    pub(super) fn map(&mut self, len: u32) {
        let Ok(_) = encode::write_map_len(&mut self.0, len);
    }

    pub(super) fn uint(&mut self, value: u64) {
        let Ok(_) = encode::write_uint(&mut self.0, value);
    }

    pub(super) fn text(&mut self, text: &str) {
        let Ok(()) = encode::write_str(&mut self.0, text);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let Ok(()) = encode::write_bin(&mut self.0, bytes);
    }

    pub(super) fn nil(&mut self) {
        let Ok(()) = encode::write_nil(&mut self.0);
    }

    /// Values that are encoded already.
    pub(super) fn raw(&mut self, values: &[u8]) {
        self.0.as_mut_vec().extend_from_slice(values);
    }
}

//! Many small values in few allocations.
//!
//! Layer 1. What is written one by one is handed out as slices of shared blocks. A block lives as
//! long as the last slice of it, so this is for values that leave together: the tasks of one
//! enqueue, the arguments of one script.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};

/// Writes values and hands them out.
#[derive(Debug)]
pub(crate) struct Arena {
    /// The value that is being written.
    scratch: Vec<u8>,
    /// What is left of the block.
    block: BytesMut,
    block_bytes: usize,
}

impl Arena {
    /// An arena with blocks of so many bytes; a value that is larger gets one of its own.
    pub(crate) fn of_blocks(block_bytes: usize) -> Self {
        Self {
            scratch: Vec::with_capacity(block_bytes.min(256)),
            block: BytesMut::new(),
            block_bytes,
        }
    }

    /// What `write` appends, as a slice of a block.
    pub(crate) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        let Ok(bytes) = self.try_write(|bytes| {
            write(bytes);
            Ok::<(), Infallible>(())
        });
        bytes
    }

    /// The same for what may fail; then nothing of it is kept.
    pub(crate) fn try_write<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Bytes, E> {
        self.scratch.clear();
        write(&mut self.scratch)?;
        self.make_room(self.scratch.len());
        self.block.extend_from_slice(&self.scratch);
        Ok(self.block.split().freeze())
    }

    /// A copy of what is written already.
    pub(crate) fn copy(&mut self, value: &[u8]) -> Bytes {
        self.make_room(value.len());
        self.block.extend_from_slice(value);
        self.block.split().freeze()
    }

    fn make_room(&mut self, bytes: usize) {
        if self.block.capacity() < bytes {
            self.block = BytesMut::with_capacity(bytes.max(self.block_bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_share_a_block_and_stay_what_they_were() {
        let mut arena = Arena::of_blocks(64);
        let texts: Vec<Bytes> = (0..20)
            .map(|n| arena.write(|bytes| bytes.extend_from_slice(format!("value {n}").as_bytes())))
            .collect();
        assert_eq!(texts[0], "value 0");
        assert_eq!(texts[19], "value 19");
        // Side by side: one allocation holds both.
        let gap = texts[1].as_ptr() as usize - texts[0].as_ptr() as usize;
        assert_eq!(gap, texts[0].len());
        let large = arena.write(|bytes| bytes.resize(1_000, 7));
        assert_eq!(large.len(), 1_000);
        assert_eq!(arena.copy(b"as it is"), "as it is");
    }

    #[test]
    fn a_value_that_failed_leaves_nothing() {
        let mut arena = Arena::of_blocks(64);
        let failed = arena.try_write(|bytes| {
            bytes.push(1);
            Err("no")
        });
        assert_eq!(failed, Err("no"));
        assert_eq!(arena.write(|bytes| bytes.push(2)).as_ref(), [2]);
    }
}

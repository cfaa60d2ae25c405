//! One socket's worker: entries that were read become one call of `settle`.

use std::ops::Range;

use crate::layout::{self, ID_AT, ID_BYTES};
use crate::scripts::Names;
use crate::wire::{Wire, word};

/// Entries that were read and wait to be settled, copied out of the buffer they came in.
#[derive(Debug)]
pub(crate) struct Settler {
    sha: Vec<u8>,
    keys: Vec<Vec<u8>>,
    fixed_keys: usize,
    ids: Vec<u8>,
    id_ends: Vec<usize>,
    notices: Vec<u8>,
    told: Vec<u8>,
    clients: Vec<Vec<u8>>,
}

impl Settler {
    pub(crate) fn new(names: &Names) -> Self {
        let keys = layout::settle_keys();
        Self {
            sha: names.settle.clone(),
            fixed_keys: keys.len(),
            keys,
            ids: Vec::new(),
            id_ends: Vec::new(),
            notices: Vec::new(),
            told: Vec::new(),
            clients: Vec::new(),
        }
    }

    /// Runs the tasks that were read: the handler is to add one to the number.
    pub(crate) fn take(&mut self, wire: &Wire, entries: &[(Range<usize>, Range<usize>)]) {
        for (id, value) in entries {
            self.take_one(wire.bytes(id), wire.bytes(value));
        }
    }

    pub(crate) fn take_one(&mut self, id: &[u8], envelope: &[u8]) {
        self.ids.extend_from_slice(id);
        self.id_ends.push(self.ids.len());
        match client_of(envelope) {
            Some(client) => {
                let known = self.clients.iter().position(|known| known == client);
                let place = known.unwrap_or_else(|| {
                    self.clients.push(client.to_vec());
                    let text = String::from_utf8_lossy(client).into_owned();
                    self.keys.push(layout::receiver(&text));
                    self.clients.len() - 1
                });
                self.told.push(place as u8 + 1);
                let number = number_of(envelope);
                let notice = layout::notice(&envelope[ID_AT..ID_AT + ID_BYTES], number + 1);
                self.notices.extend_from_slice(&notice);
            }
            None => self.told.push(0),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.id_ends.is_empty()
    }

    /// Appends the call for all that was taken, and answers how many that are.
    pub(crate) fn settle(&mut self, out: &mut Vec<u8>) -> usize {
        let count = self.id_ends.len();
        if count == 0 {
            return 0;
        }
        layout::evalsha(out, &self.sha, &self.keys, 1 + 2 * count);
        word(out, &self.told);
        let mut start = 0;
        for end in self.id_ends.drain(..) {
            word(out, &self.ids[start..end]);
            start = end;
        }
        let size = self
            .notices
            .len()
            .checked_div(self.told.iter().filter(|told| **told > 0).count());
        let mut notices = self.notices.chunks(size.unwrap_or(1).max(1));
        for told in &self.told {
            word(
                out,
                if *told > 0 {
                    notices.next().unwrap_or_default()
                } else {
                    b""
                },
            );
        }
        self.keys.truncate(self.fixed_keys);
        self.clients.clear();
        self.ids.clear();
        self.notices.clear();
        self.told.clear();
        count
    }
}

/// The client in an envelope of ours.
fn client_of(envelope: &[u8]) -> Option<&[u8]> {
    let at = ID_AT + ID_BYTES + 1 + layout::TASK_NAME.len();
    match *envelope.get(at)? {
        short @ 0xa0..=0xbf => envelope.get(at + 1..at + 1 + usize::from(short & 0x1f)),
        _ => None,
    }
}

/// The number in the payload of an envelope of ours, which ends with the payload and three bytes.
fn number_of(envelope: &[u8]) -> u64 {
    let payload = envelope.len() - 3 - layout::PAYLOAD_BYTES;
    envelope[payload + 4..]
        .first_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_and_number_are_found_in_an_envelope() {
        let id = layout::task_id(0, 1);
        let client = "0".repeat(14);
        let told = layout::envelope(&id, Some(&client), &layout::payload(41));
        assert_eq!(client_of(&told), Some(client.as_bytes()));
        assert_eq!(number_of(&told), 41);
        assert_eq!(
            client_of(&layout::envelope(&id, None, &layout::payload(0))),
            None
        );
    }
}

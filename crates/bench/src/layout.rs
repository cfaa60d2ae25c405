//! What the library stores for a task of this program, byte for byte, and the keys of its queue.
//!
//! Written by hand here, because `raw` must not use the library; a test compares it with what the
//! library really stores. Nothing else names keys.

use crate::wire::{word, words};

/// The queue of every run.
pub(crate) const QUEUE: &str = "bench";
/// The consumer group of the library.
pub(crate) const GROUP: &[u8] = b"servers";
/// The name of the task that is measured.
pub(crate) const TASK_NAME: &str = "bench";
/// The payload of the issue: what the task is encoded to.
pub(crate) const PAYLOAD_BYTES: usize = 100;
/// The longest text so that map, names, number and text are `PAYLOAD_BYTES`.
pub(crate) const FILLER_BYTES: usize = PAYLOAD_BYTES - 1 - 2 - 9 - 2 - 2;

/// A key of the queue.
pub(crate) fn key(kind: &str) -> Vec<u8> {
    format!("streamfleet:{{{QUEUE}}}:{kind}").into_bytes()
}

/// The receiver of a client.
pub(crate) fn receiver(client: &str) -> Vec<u8> {
    key(&format!("r:{client}"))
}

/// The keys of the script `enqueue` for tasks that start at once, in its order.
pub(crate) fn enqueue_keys() -> Vec<Vec<u8>> {
    ["s", "producers", "clients", "cfg", "n"].map(key).to_vec()
}

/// The keys of the script `settle` before the receivers, in its order.
pub(crate) fn settle_keys() -> Vec<Vec<u8>> {
    ["s", "clients", "cancel", "crashes", "n"].map(key).to_vec()
}

/// Where a task's id is in its envelope, and how long it is.
pub(crate) const ID_AT: usize = 4;
pub(crate) const ID_BYTES: usize = 16;

/// The id of a task: random enough for one run, ordered as the library's.
pub(crate) fn task_id(connection: u8, count: u64) -> [u8; ID_BYTES] {
    let mut id = [0; ID_BYTES];
    id[..6].copy_from_slice(&[0x01, 0x90, 0xa8, 0xc4, 0x5f, 0x9e]);
    id[6] = 0x70;
    id[7] = connection;
    id[8..].copy_from_slice(&((1 << 63) | count).to_be_bytes());
    id
}

/// The id as the library writes it in arguments.
pub(crate) fn id_text(id: &[u8; ID_BYTES]) -> String {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

/// The payload: `{"n": number, "s": filler}` in MessagePack, the number in its longest form.
pub(crate) fn payload(number: u64) -> Vec<u8> {
    let mut bytes = vec![0x82, 0xa1, b'n', 0xcf];
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&[0xa1, b's', 0xd9, FILLER_BYTES as u8]);
    bytes.resize(bytes.len() + FILLER_BYTES, b'.');
    bytes
}

/// The whole stored task. Without a client nobody is told of its end.
pub(crate) fn envelope(id: &[u8; ID_BYTES], client: Option<&str>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x99, 0x01, 0xc4, ID_BYTES as u8];
    bytes.extend_from_slice(id);
    bytes.push(0xa0 | TASK_NAME.len() as u8);
    bytes.extend_from_slice(TASK_NAME.as_bytes());
    match client {
        Some(client) => {
            // Up to 31 bytes have a header of one byte.
            bytes.push(0xa0 | client.len() as u8);
            bytes.extend_from_slice(client.as_bytes());
        }
        None => bytes.push(0xc0),
    }
    // The time of the enqueue is the one inside the id.
    bytes.extend_from_slice(&[0xc0, 0xc4, payload.len() as u8]);
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(&[0x00, 0x00, 0x80]);
    bytes
}

/// The notice of a success with the output of our handler, a number in its longest form.
pub(crate) fn notice(id: &[u8], output: u64) -> Vec<u8> {
    let mut bytes = vec![0x95, 0x01, 0xc4, ID_BYTES as u8];
    bytes.extend_from_slice(id);
    bytes.push(0xa9);
    bytes.extend_from_slice(b"succeeded");
    bytes.extend_from_slice(&[0x00, 0xc4, 9, 0xcf]);
    bytes.extend_from_slice(&output.to_be_bytes());
    bytes
}

/// Appends `EVALSHA sha keys… `; `args` words have to follow.
pub(crate) fn evalsha(out: &mut Vec<u8>, sha: &[u8], keys: &[Vec<u8>], args: usize) {
    words(out, 3 + keys.len() + args);
    word(out, b"EVALSHA");
    word(out, sha);
    word(out, keys.len().to_string().as_bytes());
    for key in keys {
        word(out, key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_the_size_of_the_issue() {
        assert_eq!(payload(7).len(), PAYLOAD_BYTES);
    }

    #[test]
    fn an_id_is_where_the_generator_looks_for_it() {
        let id = task_id(3, 9);
        let stored = envelope(&id, Some("c"), &payload(1));
        assert_eq!(stored[ID_AT..ID_AT + ID_BYTES], id);
        assert_eq!(id_text(&id), "0190a8c4-5f9e-7003-8000-000000000009");
    }
}

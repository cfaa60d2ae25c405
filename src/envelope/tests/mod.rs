//! Tests of the whole module: golden bytes, hostile bytes, and properties.

mod golden;
mod hostile;
mod payloads;
mod property;

use std::path::PathBuf;

use bytes::Bytes;

use super::{Envelope, Parts};
use crate::id::{Millis, TaskId};
use crate::options::Codec;

/// The bytes of a golden file.
fn golden(name: &str) -> Bytes {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.hex"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let digits: Vec<u8> = text
        .chars()
        .filter(|character| !character.is_whitespace())
        .map(|digit| u8::try_from(digit.to_digit(16).unwrap()).unwrap())
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn uuid_id() -> TaskId {
    TaskId::new("0190a8c4-5f9e-7c3a-9b1d-2e4f6a8c0b1d").unwrap()
}

/// The payload `{"url": "https://example.org/a.png"}`.
fn url_payload() -> Bytes {
    let mut payload = vec![0x81, 0xa3];
    payload.extend_from_slice(b"url\xb9https://example.org/a.png");
    Bytes::from(payload)
}

/// A task without any optional part.
fn plain() -> Envelope {
    Envelope {
        id: uuid_id(),
        name: "image.resize".into(),
        client: None,
        enqueued_at: Millis(1_700_000_000_000),
        payload: url_payload(),
        codec: Codec::MessagePack,
        attempt: 0,
        parts: Parts::default(),
    }
}

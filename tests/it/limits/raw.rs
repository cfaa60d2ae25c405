//! Envelopes made by hand, so that they can be wrong.

use streamfleet::testing::TestServer;

use super::{ask, key};

/// The elements of an envelope, each as its own bytes of MessagePack.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    pub(super) version: Vec<u8>,
    pub(super) id: Vec<u8>,
    pub(super) name: Vec<u8>,
    pub(super) client: Vec<u8>,
    pub(super) enqueued_at: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) codec: Vec<u8>,
    pub(super) attempt: Vec<u8>,
    pub(super) parts: Vec<u8>,
}

impl Envelope {
    /// One that runs.
    pub(super) fn new(id: &str) -> Self {
        let payload = [
            map(3),
            [text("n"), uint(1)].concat(),
            [text("ms"), uint(0)].concat(),
            [text("filler"), text("")].concat(),
        ];
        Self {
            version: uint(1),
            id: text(id),
            name: text("limits.job"),
            client: vec![0xc0],
            enqueued_at: uint(super::now_ms()),
            payload: binary(&payload.concat()),
            codec: uint(0),
            attempt: uint(0),
            parts: map(0),
        }
    }

    /// With one optional part.
    pub(super) fn part(mut self, name: &str, value: &[u8]) -> Self {
        self.parts = [&map(1)[..], &text(name), value].concat();
        self
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        [
            &array(9)[..],
            &self.version,
            &self.id,
            &self.name,
            &self.client,
            &self.enqueued_at,
            &self.payload,
            &self.codec,
            &self.attempt,
            &self.parts,
        ]
        .concat()
    }
}

pub(super) fn array(len: u8) -> Vec<u8> {
    vec![0x90 | len]
}

pub(super) fn map(len: u8) -> Vec<u8> {
    vec![0x80 | len]
}

pub(super) fn uint(value: u64) -> Vec<u8> {
    match u8::try_from(value) {
        Ok(small) if small < 0x80 => vec![small],
        _ => [&[0xcf][..], &value.to_be_bytes()].concat(),
    }
}

pub(super) fn int(value: i64) -> Vec<u8> {
    [&[0xd3][..], &value.to_be_bytes()].concat()
}

pub(super) fn text(text: &str) -> Vec<u8> {
    let len = u32::try_from(text.len()).unwrap();
    [&[0xdb][..], &len.to_be_bytes(), text.as_bytes()].concat()
}

pub(super) fn binary(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).unwrap();
    [&[0xc6][..], &len.to_be_bytes(), bytes].concat()
}

/// Adds an entry as a stranger would; answers its id.
pub(super) async fn add(redis: &TestServer, fields: &[(&[u8], &[u8])]) -> String {
    let stream = key("s");
    let mut command: Vec<&[u8]> = vec![b"XADD", stream.as_bytes(), b"*"];
    for (name, value) in fields {
        command.extend([*name, *value]);
    }
    redis.command(&command).await.unwrap().text().unwrap()
}

/// What an archived task's record says, by its key of one letter.
pub(super) async fn archived(redis: &TestServer) -> Vec<String> {
    ask(redis, &["ZRANGE", &key("archived"), "0", "-1"])
        .await
        .texts()
}

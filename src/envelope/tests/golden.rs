//! The bytes on the wire, pinned in both directions.

use std::process::Command;
use std::time::Duration;

use bytes::Bytes;

use super::{golden, hex, plain, url_payload, uuid_id};
use crate::envelope::{Ending, Envelope, EnvelopeError, Head, Limits, Notice, Parts};
use crate::id::{ClientId, Millis, TaskId};
use crate::options::{Backoff, Codec};

const ENQUEUED_AT: Millis = Millis(1_700_000_000_000);

fn assert_envelope(file: &str, envelope: &Envelope) {
    let bytes = golden(file);
    assert_eq!(
        hex(&envelope.encode()),
        hex(&bytes),
        "encoded differs from {file}"
    );
    let decoded = Envelope::decode(&bytes, &Limits::default()).unwrap();
    assert_eq!(&decoded, envelope, "decoded differs from {file}");
}

fn client() -> ClientId {
    ClientId::new("3f2a9c0d4e5b61728394a5b6c7d8e9f0").unwrap()
}

#[test]
fn a_plain_envelope_has_its_golden_bytes() {
    assert_envelope("envelope_v1_plain", &plain());
    assert_eq!(
        plain().encode().last(),
        Some(&0x80),
        "no parts are one byte"
    );
}

#[test]
fn a_time_that_the_id_tells_is_not_written_twice() {
    // 0190a8c4-5f9e in milliseconds.
    let envelope = Envelope {
        enqueued_at: Millis(0x0190_a8c4_5f9e),
        ..plain()
    };
    assert_envelope("envelope_v1_time_of_id", &envelope);
    assert_eq!(plain().encode().len() - envelope.encode().len(), 8);
}

#[test]
fn an_envelope_with_a_json_payload_has_its_golden_bytes() {
    let json = Envelope {
        payload: Bytes::from_static(br#"{"url":"https://example.org/a.png"}"#),
        codec: Codec::Json,
        ..plain()
    };
    assert_envelope("envelope_v1_json", &json);
}

#[test]
fn an_envelope_with_all_parts_has_its_golden_bytes() {
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let full = Envelope {
        id: TaskId::new("invoice-2026-11").unwrap(),
        name: "mail.send".into(),
        client: Some(client()),
        enqueued_at: ENQUEUED_AT,
        payload: url_payload(),
        codec: Codec::MessagePack,
        attempt: 300,
        parts: Parts {
            max_retries: Some(1_000),
            timeout: Some(Duration::from_secs(30)),
            deadline: Some(ENQUEUED_AT.after(Duration::from_secs(86_400))),
            backoff: Some(Backoff::Exponential {
                initial: Duration::from_millis(500),
                max: Duration::from_secs(60),
            }),
            headers: [("traceparent", trace), ("übung", "größe")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..Parts::default()
        },
    };
    assert_envelope("envelope_v1_all_parts", &full);
}

#[test]
fn each_kind_of_backoff_has_its_golden_bytes() {
    let with = |backoff| Envelope {
        name: "a".into(),
        payload: Bytes::from_static(&[0xc0]),
        attempt: 1,
        parts: Parts {
            backoff: Some(backoff),
            ..Parts::default()
        },
        ..plain()
    };
    assert_envelope("envelope_v1_backoff_curve", &with(Backoff::Curve));
    assert_envelope(
        "envelope_v1_backoff_fixed",
        &with(Backoff::Fixed(Duration::ZERO)),
    );
}

#[test]
fn a_retry_keeps_what_a_newer_library_added() {
    let bytes = golden("envelope_v1_newer_parts");
    let envelope = Envelope::decode(&bytes, &Limits::default()).unwrap();
    assert_eq!(envelope.parts.max_retries, Some(3));
    assert_eq!(envelope.client, Some(client()));

    let again = Envelope::decode(&envelope.with_attempt(3), &Limits::default()).unwrap();
    assert_eq!(
        again,
        Envelope {
            attempt: 3,
            ..envelope
        }
    );
    let encoded = hex(&again.encode());
    for kept in ["a16bce05265c00", "a167a56461696c79", "81a46d6f7265920102c0"] {
        assert!(encoded.contains(kept), "{kept} is gone from {encoded}");
    }
}

#[test]
fn the_head_is_readable_from_every_version() {
    let bytes = golden("envelope_v99");
    let head = Head::decode(&bytes).unwrap();
    assert_eq!(
        head,
        Head {
            version: 99,
            id: uuid_id(),
            name: "a.b".into(),
            client: Some(client()),
            enqueued_at: ENQUEUED_AT,
        }
    );
    assert_eq!(
        Envelope::decode(&bytes, &Limits::default()),
        Err(EnvelopeError::UnsupportedVersion(99))
    );
    assert_eq!(
        Head::decode(&golden("envelope_v1_all_parts"))
            .unwrap()
            .version,
        1
    );
}

#[test]
fn every_ending_has_its_golden_bytes() {
    let endings = [
        Ending::Succeeded {
            codec: Codec::MessagePack,
            output: Bytes::from_static(b"\xa4done"),
        },
        Ending::Failed {
            codec: Codec::Json,
            error: Bytes::from_static(br#"{"message":"no route"}"#),
            text: "no route".into(),
        },
        Ending::Panicked("index out of bounds".into()),
        Ending::TimedOut(Duration::from_secs(1_800)),
        Ending::Poison { crashes: 3 },
        Ending::NoHandler("image.resize".into()),
        Ending::Undecodable("missing field `url`".into()),
        Ending::OutputTooLarge {
            bytes: 2_097_152,
            limit: 1_048_576,
        },
        Ending::Archived,
        Ending::Cancelled,
        Ending::Expired,
        Ending::Discarded("user is gone".into()),
        Ending::Deleted,
    ];
    for ending in endings {
        let file = format!("notice_v1_{}", ending.word());
        let notice = Notice {
            task: uuid_id(),
            ending,
        };
        assert_eq!(hex(&notice.encode()), hex(&golden(&file)), "{file}");
        assert_eq!(Notice::decode(&golden(&file)).unwrap(), notice, "{file}");
        assert_eq!(Notice::task_of(&golden(&file)).unwrap(), uuid_id());
    }
}

#[test]
fn a_notice_may_name_its_task_by_text() {
    let notice = Notice {
        task: TaskId::new("invoice-2026-11").unwrap(),
        ending: Ending::Deleted,
    };
    assert_eq!(hex(&notice.encode()), hex(&golden("notice_v1_text_id")));
    assert_eq!(
        Notice::decode(&golden("notice_v1_text_id")).unwrap(),
        notice
    );
}

/// The library in Redis that packs MessagePack writes a UUID as text and bytes as text.
#[test]
fn a_notice_written_by_a_script_is_the_same_notice() {
    let mut written = vec![0x95, 0x01, 0xd9, 36];
    written.extend_from_slice(uuid_id().to_string().as_bytes());
    written.extend_from_slice(b"\xa9succeeded\x00\xa2\xff\xfe");
    let notice = Notice::decode(&Bytes::from(written)).unwrap();
    assert_eq!(notice.task, uuid_id());
    assert!(notice.task.as_uuid().is_some());
    let Ending::Succeeded { output, .. } = notice.ending else {
        panic!("{notice:?}");
    };
    assert_eq!(output.as_ref(), b"\xff\xfe");
}

#[test]
fn a_script_of_another_language_builds_the_golden_bytes() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/enqueue.py");
    for (codec, file) in [
        ("msgpack", "envelope_v1_plain"),
        ("json", "envelope_v1_json"),
    ] {
        let output = Command::new("python3")
            .args([script, "--print-hex", "--codec", codec])
            .output()
            .expect("python3 is needed on PATH for this test");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(printed.trim(), hex(&golden(file)), "{codec}");
    }
}

#[test]
fn the_example_in_the_documentation_is_the_golden_file() {
    let page = include_str!("../../../docs/wire-format.md");
    let example = page
        .split("```")
        .find_map(|block| block.strip_prefix("hex\n"));
    let written: String = example
        .unwrap()
        .lines()
        .flat_map(|line| line.split('#').next())
        .flat_map(str::split_whitespace)
        .collect();
    assert_eq!(written, hex(&golden("envelope_v1_plain")));
}

//! Bytes from producers that are broken, old, new, or mean harm.

use bytes::Bytes;

use super::{plain, uuid_id};
use crate::envelope::wire::Writer;
use crate::envelope::{Ending, Envelope, EnvelopeError, Head, Limits, MAX_TEXT_BYTES, Notice};

/// An envelope of nine elements, some of them given as raw bytes.
#[derive(Clone)]
struct Raw {
    version: Vec<u8>,
    id: Vec<u8>,
    name: Vec<u8>,
    client: Vec<u8>,
    enqueued_at: Vec<u8>,
    codec: Vec<u8>,
    attempt: Vec<u8>,
    parts: Vec<u8>,
}

impl Raw {
    fn valid() -> Self {
        Self {
            version: vec![1],
            id: text("task-1"),
            name: text("a"),
            client: vec![0xc0],
            enqueued_at: vec![7],
            codec: vec![0],
            attempt: vec![0],
            parts: vec![0x80],
        }
    }

    fn bytes(&self) -> Bytes {
        let payload: &[u8] = &[0xc4, 0x01, 0xc0];
        let elements = [
            &[0x99],
            &self.version[..],
            &self.id,
            &self.name,
            &self.client,
            &self.enqueued_at,
            payload,
            &self.codec,
            &self.attempt,
            &self.parts,
        ];
        Bytes::from(elements.concat())
    }

    fn decode(&self) -> Result<Envelope, EnvelopeError> {
        Envelope::decode(&self.bytes(), &Limits::default())
    }

    fn error(&self) -> String {
        match self.decode() {
            Err(EnvelopeError::Malformed(text)) => text,
            other => panic!("{other:?}"),
        }
    }
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer::append(&mut bytes, |writer| writer.text(text));
    bytes
}

/// A map of raw parts.
fn parts(pairs: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0x80 | u8::try_from(pairs.len()).unwrap()];
    for (key, value) in pairs {
        bytes.extend(text(key));
        bytes.extend_from_slice(value);
    }
    bytes
}

fn part_error(pairs: &[(&str, &[u8])]) -> String {
    Raw {
        parts: parts(pairs),
        ..Raw::valid()
    }
    .error()
}

const I64_MIN: &[u8] = &[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0];
const U64_MAX: &[u8] = &[0xcf, 255, 255, 255, 255, 255, 255, 255, 255];

#[test]
fn numbers_out_of_range_name_their_value_and_limit() {
    for (key, setting) in [("r", "max_retries"), ("t", "timeout"), ("d", "deadline")] {
        for (raw, shown) in [
            (&[0xff][..], "-1"),
            (&[0xd0, 0x80], "-128"),
            (I64_MIN, "-9223372036854775808"),
            (U64_MAX, "18446744073709551615"),
            (&[0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0], "9223372036854775808"),
        ] {
            let error = part_error(&[(key, raw)]);
            assert!(
                error.starts_with(&format!("{setting} is {shown}, but must be 0 to ")),
                "{error}"
            );
        }
        for other in [
            &b"\xa3abc"[..],
            &[0xcb, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0xc0],
            &[0x90],
            &[0xc1],
        ] {
            let error = part_error(&[(key, other)]);
            assert!(error.contains("must be a whole number"), "{error}");
        }
    }
    assert_eq!(
        part_error(&[("r", &[0xcd, 0x03, 0xe9])]),
        "max_retries is 1001, but must be 0 to 1000"
    );
    assert_eq!(
        part_error(&[("t", &[0])]),
        "timeout is 0ns, but must be 1ms to 30 days"
    );
}

#[test]
fn numbers_of_the_frame_are_bounded_too() {
    for raw in [I64_MIN, U64_MAX, &[0xff], &[0xa0]] {
        for broken in [
            Raw {
                version: raw.to_vec(),
                ..Raw::valid()
            },
            Raw {
                enqueued_at: raw.to_vec(),
                ..Raw::valid()
            },
            Raw {
                codec: raw.to_vec(),
                ..Raw::valid()
            },
            Raw {
                attempt: raw.to_vec(),
                ..Raw::valid()
            },
        ] {
            broken.error();
        }
    }
    assert_eq!(
        Raw {
            version: vec![0],
            ..Raw::valid()
        }
        .error(),
        "version is 0, but must be 1 to 255"
    );
    assert_eq!(
        Raw {
            codec: vec![2],
            ..Raw::valid()
        }
        .error(),
        "codec is 2, but must be 0 to 1"
    );
}

#[test]
fn long_spellings_of_small_numbers_are_read() {
    let long = Raw {
        attempt: vec![0xd3, 0, 0, 0, 0, 0, 0, 0, 5],
        parts: parts(&[("r", &[0xd1, 0, 9])]),
        ..Raw::valid()
    };
    let envelope = long.decode().unwrap();
    assert_eq!((envelope.attempt, envelope.parts.max_retries), (5, Some(9)));
}

#[test]
fn the_same_part_twice_is_refused() {
    for (key, value) in [
        ("r", &[1][..]),
        ("t", &[1]),
        ("d", &[1]),
        ("b", &[0x91, 0]),
        ("h", &[0x80]),
    ] {
        let error = part_error(&[(key, value), (key, value)]);
        assert_eq!(error, format!("part \"{key}\" is there twice"));
    }
    let header = [&[0x82][..], &text("a"), &text("1"), &text("a"), &text("2")].concat();
    assert_eq!(part_error(&[("h", &header)]), "header \"a\" is there twice");
}

#[test]
fn backoffs_that_cannot_work_are_refused() {
    for raw in [
        &[0x90][..],                              // no kind
        &[0x91, 3],                               // unknown kind
        &[0x91, 1],                               // fixed without its wait
        &[0x92, 0, 0],                            // curve with a wait
        &[0x92, 1, 0xce, 0x05, 0x26, 0x5c, 0x01], // 24 hours and 1 ms
        &[0x93, 2, 0, 5],                         // starts at zero
        &[0x93, 2, 5, 4],                         // max below initial
    ] {
        assert!(part_error(&[("b", raw)]).contains("backoff"), "{raw:?}");
    }
}

#[test]
fn headers_are_bounded_and_printable() {
    for (name, value) in [("", "x"), ("a\n", "x"), ("a", "\u{1b}[31m"), ("a", "\0")] {
        let raw = [&[0x81][..], &text(name), &text(value)].concat();
        assert!(
            part_error(&[("h", &raw)]).contains("without control characters"),
            "{name:?}"
        );
    }
    let fits = [&[0x81][..], &text("a"), &text(&"x".repeat(8_191))].concat();
    assert!(
        Raw {
            parts: parts(&[("h", &fits)]),
            ..Raw::valid()
        }
        .decode()
        .is_ok()
    );
    let long = [&[0x81][..], &text("a"), &text(&"x".repeat(8_192))].concat();
    assert_eq!(
        part_error(&[("h", &long)]),
        "size of all headers is 8193 bytes, but must be at most 8192 bytes"
    );
    assert!(part_error(&[("h", &[0x81, 0xa1, 0xff, 0xa0])]).contains("not UTF-8"));
}

#[test]
fn names_are_checked_and_shown_escaped() {
    let long = "x".repeat(10_000);
    for name in ["", "a}:{b", "a\n", "\u{1b}[31m", "é", long.as_str()] {
        for raw in [
            Raw {
                name: text(name),
                ..Raw::valid()
            },
            Raw {
                id: text(name),
                ..Raw::valid()
            },
            Raw {
                client: text(name),
                ..Raw::valid()
            },
        ] {
            let error = raw.error();
            assert!(error.contains("is not 1 to 128 bytes"), "{error}");
            assert!(
                error.len() < 700 && !error.contains(char::is_control),
                "{error}"
            );
            assert!(Head::decode(&raw.bytes()).is_err());
        }
    }
    let short = Raw {
        id: vec![0xc4, 2, 1, 2],
        ..Raw::valid()
    };
    assert_eq!(short.error(), "task id has 2 bytes, but must have 16");
}

#[test]
fn a_declared_length_is_never_believed() {
    let huge: [&[u8]; 6] = [
        &[0xdd, 0xff, 0xff, 0xff, 0xff, 0],
        &[0xdf, 0xff, 0xff, 0xff, 0xff, 0],
        &[0xdb, 0xff, 0xff, 0xff, 0xff, 0],
        &[0xc6, 0xff, 0xff, 0xff, 0xff, 0],
        &[0xc9, 0xff, 0xff, 0xff, 0xff, 0],
        &[0xdc, 0xff, 0xff, 0, 0, 0],
    ];
    for raw in huge {
        let bytes = Bytes::copy_from_slice(raw);
        assert!(matches!(
            Envelope::decode(&bytes, &Limits::default()),
            Err(EnvelopeError::Malformed(_))
        ));
        assert!(Notice::decode(&bytes).is_err() && Head::decode(raw).is_err());
        for key in ["r", "h", "b", "new"] {
            part_error(&[(key, raw)]);
        }
        Raw {
            parts: raw.to_vec(),
            ..Raw::valid()
        }
        .error();
    }
}

#[test]
fn bytes_cut_anywhere_are_refused() {
    let bytes = plain().encode();
    for end in 0..bytes.len() {
        let cut = Envelope::decode(&bytes.slice(..end), &Limits::default());
        assert!(
            matches!(cut, Err(EnvelopeError::Malformed(_))),
            "at {end}: {cut:?}"
        );
    }
}

#[test]
fn trailing_bytes_are_refused() {
    let bytes = [&plain().encode()[..], &[0xc0, 0xc0]].concat();
    assert_eq!(
        Envelope::decode(&Bytes::from(bytes), &Limits::default()),
        Err(EnvelopeError::TrailingBytes(2))
    );
    let notice = Notice {
        task: uuid_id(),
        ending: Ending::Deleted,
    };
    let bytes = [&notice.encode()[..], &[0]].concat();
    assert_eq!(
        Notice::decode(&Bytes::from(bytes)),
        Err(EnvelopeError::TrailingBytes(1))
    );
}

#[test]
fn sizes_over_the_limit_name_both_numbers() {
    let limits = Limits { max_bytes: 10 };
    let at = |len: usize| {
        Envelope {
            payload: vec![0; len].into(),
            ..plain()
        }
        .encode()
    };
    assert!(Envelope::decode(&at(10), &limits).is_ok());
    assert_eq!(
        Envelope::decode(&at(11), &limits),
        Err(EnvelopeError::TooLarge {
            bytes: 11,
            limit: 10
        })
    );
    let huge = Bytes::from(vec![0; 100_000]);
    assert_eq!(
        Envelope::decode(&huge, &limits),
        Err(EnvelopeError::TooLarge {
            bytes: 100_000,
            limit: 65_546
        })
    );
}

#[test]
fn the_payload_is_not_copied() {
    let bytes = plain().encode();
    let envelope = Envelope::decode(&bytes, &Limits::default()).unwrap();
    assert!(bytes.as_ptr_range().contains(&envelope.payload.as_ptr()));
}

#[test]
fn unknown_parts_that_are_bombs_are_refused() {
    let deep = vec![0x91; 100_000];
    let error = part_error(&[("new", &deep[..60_000])]);
    assert!(error.contains("deeper than 64"), "{error}");
    assert!(part_error(&[(&"k".repeat(33), &[0])]).contains("must have 1 to 32"));
    let many = Raw {
        parts: vec![0xdc, 0, 65],
        ..Raw::valid()
    };
    assert!(many.error().contains("parts must be a map"));
    let many = Raw {
        parts: [&[0xde, 0, 65][..], &[0xa1, b'x', 0].repeat(65)].concat(),
        ..Raw::valid()
    };
    assert_eq!(
        many.error(),
        "envelope has 65 parts, but must have at most 64"
    );
}

#[test]
fn debug_output_shows_no_payload_and_no_header() {
    let shown = format!("{:?}", plain());
    assert!(
        !shown.contains("example.org") && shown.contains("payload_bytes"),
        "{shown}"
    );
}

#[test]
fn a_long_error_text_is_cut_at_a_character() {
    for ending in [
        Ending::Panicked("é".repeat(10_000_000)),
        Ending::Discarded(format!("x{}", "é".repeat(10_000))),
    ] {
        let encoded = Notice {
            task: uuid_id(),
            ending,
        }
        .encode();
        assert!(encoded.len() < MAX_TEXT_BYTES + 64);
        match Notice::decode(&encoded).unwrap().ending {
            Ending::Panicked(text) => assert_eq!(text.len(), MAX_TEXT_BYTES),
            Ending::Discarded(text) => assert_eq!(text.len(), MAX_TEXT_BYTES - 1),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_notice_that_cannot_be_read_still_says_whose_it_is() {
    let mut unknown = Vec::new();
    Writer::append(&mut unknown, |unknown| {
        unknown.array(3);
        unknown.uint(1);
        unknown.bytes(uuid_id().as_uuid().unwrap().as_bytes());
        unknown.text("teleported");
    });
    let unknown = Bytes::from(unknown);
    assert_eq!(
        Notice::decode(&unknown),
        Err(EnvelopeError::Malformed(
            "ending \"teleported\" is not known".into()
        ))
    );
    assert_eq!(Notice::task_of(&unknown).unwrap(), uuid_id());

    let newer = Bytes::from_static(b"\x93\x02\xa1t\xc0");
    assert_eq!(
        Notice::decode(&newer),
        Err(EnvelopeError::UnsupportedVersion(2))
    );
    assert_eq!(Notice::task_of(&newer).unwrap().to_string(), "t");
}

//! Payloads of users' types: both codecs, depth bombs, trailing bytes.

use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use crate::envelope::{decode_payload, encode_payload};
use crate::options::Codec;

const CODECS: [Codec; 2] = [Codec::MessagePack, Codec::Json];

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Sample {
    url: String,
    size: Option<(u32, i64)>,
    tags: BTreeMap<String, Vec<f64>>,
    shape: Shape,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Point,
    Circle(f32),
    Box { width: u8, height: u8 },
}

#[derive(Debug, Serialize, Deserialize)]
struct Chain(Vec<Chain>);

/// rmp-serde does not count the levels of an enum.
#[derive(Debug, Deserialize)]
enum Nest {
    #[expect(dead_code, reason = "only decoded")]
    Deeper(Box<Nest>),
}

#[test]
fn values_come_back_in_both_codecs() {
    for shape in [
        Shape::Point,
        Shape::Circle(0.5),
        Shape::Box {
            width: 3,
            height: 4,
        },
    ] {
        let sample = Sample {
            url: "é\n\"\\".into(),
            size: Some((u32::MAX, i64::MIN)),
            tags: [("a".to_owned(), vec![1.5, -0.0])].into(),
            shape,
        };
        for codec in CODECS {
            let bytes = encode_payload(codec, &sample).unwrap();
            assert_eq!(decode_payload::<Sample>(codec, &bytes).unwrap(), sample);
        }
    }
}

#[test]
fn a_field_can_be_added_by_a_newer_producer() {
    #[derive(Serialize)]
    struct New {
        added: u8,
        kept: u8,
    }
    #[derive(Deserialize)]
    struct Old {
        kept: u8,
    }
    for codec in CODECS {
        let bytes = encode_payload(codec, &New { added: 1, kept: 2 }).unwrap();
        assert_eq!(decode_payload::<Old>(codec, &bytes).unwrap().kept, 2);
    }
}

#[test]
fn trailing_bytes_are_refused_in_both_codecs() {
    assert_eq!(decode_payload::<u8>(Codec::MessagePack, &[1]), Ok(1));
    let error = decode_payload::<u8>(Codec::MessagePack, &[1, 1]).unwrap_err();
    assert_eq!(error, "1 bytes follow the value");
    assert_eq!(decode_payload::<u8>(Codec::Json, b" 1 \n"), Ok(1));
    let error = decode_payload::<u8>(Codec::Json, b"1 1").unwrap_err();
    assert!(error.contains("trailing"), "{error}");
    // More elements than the type takes.
    assert!(decode_payload::<(u8,)>(Codec::MessagePack, &[0x92, 1, 1]).is_err());
}

/// Runs on the stack that tokio gives its threads; this test is only worth something in debug builds.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new()
        .stack_size(2 * 1024 * 1024)
        .spawn(test);
    thread.unwrap().join().unwrap();
}

fn refused<T: DeserializeOwned>(codec: Codec, bytes: &[u8]) {
    let error = decode_payload::<T>(codec, bytes).err().unwrap();
    assert!(error.contains("deeper than 64 levels"), "{error}");
}

#[test]
fn depth_bombs_are_errors_on_a_small_stack() {
    on_a_small_stack(|| {
        for levels in [65, 700, 100_000] {
            for byte in [0x91, 0x81] {
                let mut bomb = vec![byte; levels];
                // So that it is the depth that is refused, and not the missing end.
                bomb.extend([0xc0; 200]);
                refused::<Nest>(Codec::MessagePack, &bomb);
                refused::<Chain>(Codec::MessagePack, &bomb);
                refused::<IgnoredAny>(Codec::MessagePack, &bomb);
                refused::<serde_json::Value>(Codec::MessagePack, &bomb);
            }
            // A map of one known variant each, as an attacker would write it.
            let bomb = b"\x81\xa6Deeper".repeat(levels);
            refused::<Nest>(Codec::MessagePack, &bomb);

            refused::<serde_json::Value>(Codec::Json, "[".repeat(levels).as_bytes());
            refused::<Nest>(Codec::Json, r#"{"Deeper":"#.repeat(levels).as_bytes());
            refused::<IgnoredAny>(Codec::Json, r#"{"a":["#.repeat(levels).as_bytes());
        }
    });
}

#[test]
fn sixty_four_levels_are_fine_on_a_small_stack() {
    let chain = |levels: usize| (1..levels).fold(Chain(Vec::new()), |inner, _| Chain(vec![inner]));
    on_a_small_stack(move || {
        for codec in CODECS {
            let bytes = encode_payload(codec, &chain(64)).unwrap();
            assert!(decode_payload::<Chain>(codec, &bytes).is_ok());
            // What could not be read again is refused where it is written.
            let error = encode_payload(codec, &chain(65)).unwrap_err();
            assert!(error.contains("deeper than 64 levels"), "{error}");
        }
    });
}

#[test]
fn brackets_in_json_strings_are_no_levels() {
    let text = r#"[[["#.repeat(100) + "\"\\";
    let bytes = encode_payload(Codec::Json, &[&text, &text]).unwrap();
    assert_eq!(
        decode_payload::<Vec<String>>(Codec::Json, &bytes).unwrap(),
        [text.clone(), text]
    );
}

#[test]
fn declared_lengths_fail_at_once() {
    for marker in [0xdd, 0xdf, 0xdb, 0xc6, 0xc9] {
        let raw = [marker, 0xff, 0xff, 0xff, 0xff, 0];
        assert!(decode_payload::<Vec<u64>>(Codec::MessagePack, &raw).is_err());
        assert!(decode_payload::<String>(Codec::MessagePack, &raw).is_err());
        assert!(decode_payload::<serde_json::Value>(Codec::MessagePack, &raw).is_err());
    }
}

#[test]
fn errors_are_one_short_line() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}
    let foreign = BTreeMap::from([("\u{1b}[31m\n".repeat(10_000), 1)]);
    for codec in CODECS {
        let bytes = encode_payload(codec, &foreign).unwrap();
        let error = decode_payload::<Nothing>(codec, &bytes).unwrap_err();
        assert!(
            error.len() < 4_096 && !error.contains(char::is_control),
            "{error}"
        );
        assert!(error.starts_with("unknown field"), "{error}");
    }
}

//! What holds for every envelope, every notice, and any bytes at all.

use std::time::Duration;

use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use uuid::Uuid;

use crate::envelope::wire::{Reader, Writer};
use crate::envelope::{Ending, Envelope, Head, Limits, Notice, Parts, decode_payload};
use crate::id::{ClientId, Millis, TaskId};
use crate::options::{Backoff, Codec};

const DAY_MS: u64 = 86_400_000;

fn name() -> impl Strategy<Value = String> {
    "[A-Za-z0-9._-]{1,128}"
}

fn task_id() -> impl Strategy<Value = TaskId> {
    prop_oneof![
        any::<u128>().prop_map(|raw| TaskId::from_uuid(Uuid::from_u128(raw))),
        name().prop_map(|name| TaskId::new(name).unwrap()),
    ]
}

fn codec() -> impl Strategy<Value = Codec> {
    prop_oneof![Just(Codec::MessagePack), Just(Codec::Json)]
}

fn backoff() -> impl Strategy<Value = Backoff> {
    prop_oneof![
        Just(Backoff::Curve),
        (0..=DAY_MS).prop_map(|ms| Backoff::Fixed(Duration::from_millis(ms))),
        (1..=DAY_MS, 0..=DAY_MS).prop_map(|(initial, more)| Backoff::Exponential {
            initial: Duration::from_millis(initial),
            max: Duration::from_millis((initial + more).min(DAY_MS)),
        }),
    ]
}

fn parts() -> impl Strategy<Value = Parts> {
    (
        option::of(0..=1_000_u32),
        option::of((1..=30 * DAY_MS).prop_map(Duration::from_millis)),
        option::of((0..=253_402_300_799_999_u64).prop_map(Millis)),
        option::of(backoff()),
        btree_map("[^\\pC]{1,40}", "[^\\pC]{0,200}", 0..8),
    )
        .prop_map(|(max_retries, timeout, deadline, backoff, headers)| Parts {
            max_retries,
            timeout,
            deadline,
            backoff,
            headers,
            ..Parts::default()
        })
}

prop_compose! {
    fn envelope()(
        id in task_id(),
        name in name(),
        client in option::of(name()),
        enqueued_at in 0..=253_402_300_799_999_u64,
        payload in vec(any::<u8>(), 0..700),
        codec in codec(),
        attempt: u32,
        parts in parts(),
    ) -> Envelope {
        Envelope {
            id,
            name: name.into(),
            client: client.map(|client| ClientId::new(client).unwrap()),
            enqueued_at: Millis(enqueued_at),
            payload: payload.into(),
            codec,
            attempt,
            parts,
        }
    }
}

fn ending() -> impl Strategy<Value = Ending> {
    let blob = || vec(any::<u8>(), 0..300).prop_map(Bytes::from);
    prop_oneof![
        (codec(), blob()).prop_map(|(codec, output)| Ending::Succeeded { codec, output }),
        (codec(), blob(), ".{0,99}").prop_map(|(codec, error, text)| Ending::Failed {
            codec,
            error,
            text
        }),
        ".{0,99}".prop_map(Ending::Panicked),
        any::<u64>().prop_map(|ms| Ending::TimedOut(Duration::from_millis(ms))),
        any::<u32>().prop_map(|crashes| Ending::Poison { crashes }),
        ".{0,99}".prop_map(Ending::NoHandler),
        ".{0,99}".prop_map(Ending::Undecodable),
        any::<(usize, usize)>().prop_map(|(bytes, limit)| Ending::OutputTooLarge { bytes, limit }),
        Just(Ending::Archived),
        Just(Ending::Cancelled),
        Just(Ending::Expired),
        ".{0,99}".prop_map(Ending::Discarded),
        Just(Ending::Deleted),
    ]
}

/// Reads bytes in every way there is; whatever they are, there is an answer.
fn read_all(bytes: &Bytes) {
    let _ = Head::decode(bytes);
    let _ = Notice::decode(bytes);
    let _ = Notice::task_of(bytes);
    let _ = Reader::new(bytes).skip("anything");
    let _ = decode_payload::<serde_json::Value>(Codec::MessagePack, bytes);
    let _ = decode_payload::<serde_json::Value>(Codec::Json, bytes);
    if let Ok(envelope) = Envelope::decode(bytes, &Limits::default()) {
        // What was taken is taken again, the same.
        let again = Envelope::decode(&envelope.encode(), &Limits::default());
        assert_eq!(again, Ok(envelope));
    }
}

proptest! {
    #[test]
    fn every_envelope_comes_back(envelope in envelope()) {
        let bytes = envelope.encode();
        let decoded = Envelope::decode(&bytes, &Limits::default()).unwrap();
        prop_assert_eq!(&decoded, &envelope);
        let head = Head::decode(&bytes).unwrap();
        prop_assert_eq!((head.version, head.id, head.client), (1, envelope.id, envelope.client));
    }

    #[test]
    fn another_attempt_changes_nothing_else(envelope in envelope(), attempt: u32) {
        let bytes = envelope.with_attempt(attempt);
        let decoded = Envelope::decode(&bytes, &Limits::default()).unwrap();
        prop_assert_eq!(decoded, Envelope { attempt, ..envelope });
    }

    #[test]
    fn the_buffer_is_never_too_small(envelope in envelope()) {
        // A too small one would be correct still, but copied.
        prop_assert!(envelope.size() >= envelope.encode().len());
    }

    #[test]
    fn every_notice_comes_back(task in task_id(), ending in ending()) {
        let notice = Notice { task, ending };
        let bytes = notice.encode();
        prop_assert!(Notice::task_of(&bytes).unwrap() == notice.task);
        prop_assert_eq!(Notice::decode(&bytes).unwrap(), notice);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        read_all(&Bytes::from(bytes));
    }

    #[test]
    fn random_bytes_behind_a_valid_start_never_panic(rest in vec(any::<u8>(), 0..200)) {
        read_all(&Bytes::from([&b"\x99\x01\xa1t\xa1n\xc0\x07\xc4\x01\xc0\x00\x00"[..], &rest].concat()));
        read_all(&Bytes::from([&b"\x96\x01\xa1t"[..], &rest].concat()));
    }

    #[test]
    fn mutated_envelopes_and_notices_never_panic(
        envelope in envelope(),
        ending in ending(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let notice = Notice { task: envelope.id.clone(), ending };
        for valid in [envelope.encode(), notice.encode()] {
            let mut bytes = valid.to_vec();
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            let bytes = Bytes::from(bytes);
            read_all(&bytes);
            read_all(&bytes.slice(..cut.index(bytes.len())));
        }
    }

    #[test]
    fn unknown_parts_are_ignored_and_kept(
        known in parts(),
        key in "[a-z]{2,32}",
        value in vec(any::<u8>(), 0..50),
        elements in 0..4_u8,
    ) {
        let mut foreign = Vec::new();
        Writer::append(&mut foreign, |writer| {
            writer.text(&key);
            writer.bytes(&value);
        });
        let foreign = Bytes::from(foreign);
        let mut parts = known.clone();
        parts.foreign.part_count = 1;
        parts.foreign.parts = foreign.clone();
        parts.foreign.element_count = u32::from(elements);
        parts.foreign.elements = vec![0xc0; usize::from(elements)].into();
        let envelope = Envelope { parts, ..super::plain() };

        let decoded = Envelope::decode(&envelope.encode(), &Limits::default()).unwrap();
        prop_assert_eq!(&decoded, &envelope);
        prop_assert_eq!(&decoded.parts.headers, &known.headers);
        prop_assert_eq!(decoded.parts.max_retries, known.max_retries);
        let kept = decoded.with_attempt(9);
        prop_assert!(kept.windows(foreign.len()).any(|window| window == foreign));
    }
}

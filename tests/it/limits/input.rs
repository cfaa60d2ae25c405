//! Input that no honest program sends: refused by name, archived with a reason, never a panic.

use std::time::{Duration, UNIX_EPOCH};

use streamfleet::testing::{Leak, TestServer};
use streamfleet::{BuildError, Client, ConnectError, EnqueueError, Server};

use super::raw::{Envelope, add, archived, array, binary, int, map, text, uint};
use super::{Job, LONG, Worker, job, key, ms, number, pending};
use crate::support::alone::together;
use crate::support::eventually;

/// What a server makes of one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Archived with a reason whose text contains this.
    Archived(&'static str),
    /// Run: it was not as bad as it looks.
    Run,
    /// Gone without a trace: it was past its deadline, and nobody waited.
    Expired,
    /// Kept for a server that knows it.
    Parked,
}

/// The fields of one stream entry.
type Fields = Vec<(&'static [u8], Vec<u8>)>;

/// Every entry of the table by its task's id, its fields, and its fate. Without an id that can be read
/// a task is kept under that of its entry.
fn entries() -> Vec<(&'static str, Fields, Fate)> {
    use Fate::{Archived, Expired, Parked, Run};
    let with = |id: &str, change: fn(&mut Envelope)| {
        let mut envelope = Envelope::new(id);
        change(&mut envelope);
        envelope.bytes()
    };
    let deep = |marker: u8, levels: usize| binary(&[vec![marker; levels], vec![0xc0]].concat());
    let plain = |id: &'static str, envelope: Vec<u8>, fate| (id, vec![(&b"t"[..], envelope)], fate);
    let mut bomb = Envelope::new("array-bomb");
    bomb.payload = deep(0x91, 700);
    let mut maps = Envelope::new("map-bomb");
    maps.payload = binary(&[[0x81, 0x01].repeat(50_000), vec![0xc0]].concat());
    let mut json = Envelope::new("json-bomb");
    (json.codec, json.payload) = (uint(1), binary(&[b'['; 100_000]));
    let mut lies = Envelope::new("four-giga-elements");
    lies.payload = binary(&[0xdd, 0xff, 0xff, 0xff, 0xff]);
    let mut text_lies = Envelope::new("four-giga-text");
    text_lies.payload = binary(&[0xdb, 0xff, 0xff, 0xff, 0xff, b'x']);
    let mut map_lies = Envelope::new("four-giga-pairs");
    map_lies.payload = binary(&[0xdf, 0xff, 0xff, 0xff, 0xff]);
    let mut trailing = Envelope::new("trailing-in-payload");
    trailing.payload.extend([0xc0]);
    // The length of the binary now covers one byte more.
    let inner = trailing.payload.len() - 5;
    trailing.payload[1..5].copy_from_slice(&u32::try_from(inner).unwrap().to_be_bytes());
    let header = [&map(1)[..], &text("a"), &text("x\r\ny")].concat();
    let huge = with("eight-megabytes", |envelope| {
        envelope.payload = binary(&vec![0xc0; 8 * 1024 * 1024]);
    });
    let mut after = Envelope::new("trailing-after-envelope").bytes();
    after.extend([0xc0, 0xc0]);
    let mut cut = Envelope::new("cut-off").bytes();
    cut.truncate(cut.len() - 4);
    let mut long = Envelope::new("declares-more").bytes();
    long[0] = 0x9e;
    let mut name = Envelope::new("bad-name");
    name.name = text("a}:{b\n\u{1b}[31m");
    let mut float = Envelope::new("attempt-float");
    float.attempt = [&[0xcb][..], &1.5_f64.to_be_bytes()].concat();

    vec![
        plain(
            "as-it-should-be",
            Envelope::new("as-it-should-be").bytes(),
            Run,
        ),
        // Row 2: far over the limit of 1 MiB, and 64 KiB for what is beside the payload; never decoded.
        plain("eight-megabytes", huge, Archived("the limit is 1114112")),
        // Row 3.
        plain(
            "array-bomb",
            bomb.bytes(),
            Archived("deeper than 64 levels"),
        ),
        plain("map-bomb", maps.bytes(), Archived("deeper than 64 levels")),
        plain("json-bomb", json.bytes(), Archived("deeper than 64 levels")),
        // Row 4: five bytes that declare four billion elements.
        plain(
            "four-giga-elements",
            lies.bytes(),
            Archived("the bytes end"),
        ),
        plain(
            "four-giga-text",
            text_lies.bytes(),
            Archived("the bytes end"),
        ),
        plain(
            "four-giga-pairs",
            map_lies.bytes(),
            Archived("the bytes end"),
        ),
        plain("declares-more", long, Archived("the bytes end")),
        plain("cut-off", cut, Archived("the bytes end")),
        // Row 6.
        plain(
            "trailing-in-payload",
            trailing.bytes(),
            Archived("1 bytes follow"),
        ),
        plain("trailing-after-envelope", after, Archived("2 bytes follow")),
        // Row 7.
        ("", vec![(b"x", b"y".to_vec())], Archived("")),
        (
            "",
            (0..1_000).map(|_| (&b"f"[..], b"v".to_vec())).collect(),
            Archived(""),
        ),
        ("", vec![(b"t", Vec::new())], Archived("")),
        ("", vec![(b"r", vec![0xff; 64])], Archived("")),
        ("", vec![(b"t", b"not an envelope".to_vec())], Archived("")),
        ("", vec![(b"t", array(0))], Archived("")),
        // Row 8.
        plain(
            "version-99",
            with("version-99", |envelope| envelope.version = uint(99)),
            Parked,
        ),
        (
            "",
            vec![(
                b"t",
                with("version-0", |envelope| envelope.version = uint(0)),
            )],
            Archived(""),
        ),
        // Row 9.
        plain(
            "retries-below-zero",
            Envelope::new("retries-below-zero")
                .part("r", &int(-1))
                .bytes(),
            Archived("is -1, but must be 0 to"),
        ),
        plain(
            "retries-beyond",
            Envelope::new("retries-beyond")
                .part("r", &uint(1 << 63))
                .bytes(),
            Archived("is 9223372036854775808, but must be 0 to"),
        ),
        plain(
            "retries-abc",
            Envelope::new("retries-abc").part("r", &text("abc")).bytes(),
            Archived("must be a whole number"),
        ),
        plain(
            "deadline-minimum",
            Envelope::new("deadline-minimum")
                .part("d", &int(i64::MIN))
                .bytes(),
            Archived("is -9223372036854775808, but must be 0 to"),
        ),
        plain(
            "deadline-maximum",
            Envelope::new("deadline-maximum")
                .part("d", &uint(u64::MAX))
                .bytes(),
            Archived("is 18446744073709551615, but must be 0 to"),
        ),
        plain(
            "deadline-1970",
            Envelope::new("deadline-1970").part("d", &uint(0)).bytes(),
            Expired,
        ),
        plain(
            "deadline-9999",
            Envelope::new("deadline-9999")
                .part("d", &uint(253_402_300_799_999))
                .bytes(),
            Run,
        ),
        plain(
            "timeout-beyond",
            Envelope::new("timeout-beyond")
                .part("t", &uint(u64::MAX))
                .bytes(),
            Archived("18446744073709551615"),
        ),
        plain(
            "timeout-zero",
            Envelope::new("timeout-zero").part("t", &uint(0)).bytes(),
            Archived(", but must be"),
        ),
        plain(
            "attempt-beyond",
            with("attempt-beyond", |envelope| {
                envelope.attempt = uint(u64::MAX)
            }),
            Archived("18446744073709551615"),
        ),
        plain(
            "attempt-float",
            float.bytes(),
            Archived("must be a whole number"),
        ),
        plain(
            "",
            with("enqueued-beyond", |envelope| {
                envelope.enqueued_at = uint(u64::MAX)
            }),
            Archived("18446744073709551615"),
        ),
        plain(
            "bad-header",
            Envelope::new("bad-header").part("h", &header).bytes(),
            Archived("header"),
        ),
        // Row 11.
        plain("", name.bytes(), Archived("is not 1 to 128 bytes")),
        // Row 13.
        plain(
            "nobody-knows",
            with("nobody-knows", |envelope| {
                envelope.name = text("nobody.knows")
            }),
            Parked,
        ),
        // Row 18: a receiver that would be another key, and one of nobody.
        plain(
            "",
            with("client-is-a-key", |envelope| envelope.client = text("x}:s")),
            Archived("is not 1 to 128 bytes"),
        ),
        plain(
            "client-of-nobody",
            with("client-of-nobody", |envelope| {
                envelope.client = text("nobody")
            }),
            Run,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_malformed_entry_ends_by_name_and_the_process_lives() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    redis.allow(
        Leak::Archived,
        "every malformed task is kept with its reason",
    );
    let client = Client::connect(redis.url()).await.unwrap();
    // The queue is made first, so that nothing is read before all of it is there.
    let worker = Worker::start(&client, |server| server.unknown_grace(ms(0)))
        .ready(&redis)
        .await;
    client.inspect().pause("default", "the test").await.unwrap();
    let table = entries();
    let mut ids = Vec::new();
    for (id, fields, _) in &table {
        let fields: Vec<(&[u8], &[u8])> = fields
            .iter()
            .map(|(name, value)| (*name, value.as_slice()))
            .collect();
        let entry = add(&redis, &fields).await;
        ids.push(if id.is_empty() {
            format!("entry-{entry}")
        } else {
            (*id).to_owned()
        });
    }
    client.inspect().resume("default").await.unwrap();
    eventually("every entry has ended", LONG, async || {
        let left = number(&redis, &["XLEN", &key("s")]).await;
        let parked = number(&redis, &["SCARD", &key("unknown")]).await;
        if (left, parked) == (0, 0) {
            Ok(())
        } else {
            Err((left, parked))
        }
    })
    .await;
    assert_eq!(pending(&redis).await, 0);
    assert_eq!(number(&redis, &["EXISTS", &key("r:nobody")]).await, 0);

    // One that is as it should be still runs, on the same server.
    let handle = client.enqueue(Job::quick(4)).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 12);
    let runs = table.iter().filter(|(.., fate)| *fate == Fate::Run).count();
    assert_eq!(worker.started().len(), runs + 1);

    let kept = archived(&redis).await;
    for (id, (.., fate)) in ids.iter().zip(&table) {
        let is_kept = kept.iter().any(|kept| kept == id);
        match fate {
            Fate::Run | Fate::Expired => assert!(!is_kept, "{id} was archived"),
            Fate::Parked | Fate::Archived(_) => {
                assert!(is_kept, "{id} was not archived");
                let id = streamfleet::TaskId::new(id).unwrap();
                let task = client.inspect().task("default", &id).await.unwrap();
                let error = task.error.unwrap_or_default();
                assert!(error.len() <= 8 * 1024, "{id}: {} bytes", error.len());
                assert!(!error.contains(['\u{1b}', '\n']), "{id}: {error:?}");
                match fate {
                    Fate::Archived(text) => {
                        assert_eq!(task.reason.as_deref(), Some("undecodable"), "{id}");
                        assert!(error.contains(text), "{id}: {error}");
                    }
                    _ => assert_eq!(task.reason.as_deref(), Some("no_handler"), "{id}"),
                }
            }
        }
    }
    let report = worker.stop().await;
    eprintln!("{} archived, {report:?}", kept.len());
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_of_one_byte_over_the_limit_names_both_and_sends_nothing() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::builder(redis.url())
        .max_payload(1_000)
        .connect()
        .await
        .unwrap();
    let rest = rmp_serde::to_vec_named(&Job::of_size(1, 900))
        .unwrap()
        .len()
        - 900;
    let fits = Job::of_size(1, 1_000 - rest);
    let over = Job::of_size(1, 1_001 - rest);
    let refused = client.enqueue(over.clone()).await.unwrap_err();
    assert!(
        matches!(
            refused,
            EnqueueError::PayloadTooLarge {
                bytes: 1_001,
                limit: 1_000,
                ..
            }
        ),
        "{refused:?}"
    );
    assert_eq!(
        refused.to_string(),
        "payload of task limits.job has 1001 bytes, the limit is 1000"
    );
    assert_eq!(number(&redis, &["EXISTS", &key("s")]).await, 0);
    // In a bulk only that one is refused.
    let results = client
        .enqueue_all([fits.clone(), over, fits])
        .await
        .unwrap();
    let stored: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(stored, [true, false, true]);
    for handle in results.into_iter().flatten() {
        handle.cancel().await.unwrap();
    }
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_and_options_beyond_their_limits_are_refused_before_anything_is_sent() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let long = "q".repeat(129);
    for name in [
        "",
        "a}:{b",
        "receiver:x",
        "*",
        "a b",
        "a\nb",
        "a\0b",
        "ä",
        &long,
    ] {
        let refused = client.enqueue(Job::quick(1)).queue(name).await.unwrap_err();
        assert!(
            matches!(refused, EnqueueError::Name(_)),
            "{name:?}: {refused:?}"
        );
        let text = refused.to_string();
        assert!(
            text.contains("128 bytes") && !text.contains(['\n', '\0']),
            "{text}"
        );
        let refused = Client::builder(redis.url()).prefix(name).connect().await;
        assert!(matches!(refused, Err(ConnectError::Name(_))), "{name:?}");
        let built = Server::builder(&client, super::Log::default())
            .queue(name, 1)
            .on(job)
            .build();
        assert!(matches!(built, Err(BuildError::Name(_))), "{name:?}");
    }
    let day = Duration::from_secs(24 * 60 * 60);
    let task = || client.enqueue(Job::quick(1));
    for (refused, text) in [
        (
            task().max_retries(1_001).await,
            "max_retries is 1001, but must be",
        ),
        (task().timeout(ms(0)).await, "timeout is 0ns, but must be"),
        (task().timeout(Duration::MAX).await, "timeout is "),
        (task().delay(Duration::MAX).await, "delay is "),
        (task().delay(day * 366 * 11).await, "at most 10 years"),
        (task().deadline(UNIX_EPOCH - day).await, "deadline is "),
        (task().header("a", "x".repeat(9_000)).await, "8192 bytes"),
        (task().header("a\n", "x").await, "header is "),
    ] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, EnqueueError::Option(_)), "{refused:?}");
        assert!(refused.to_string().contains(text), "{refused}");
    }
    assert_eq!(number(&redis, &["DBSIZE"]).await, 0);
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_work_is_refused_with_both_values() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let builder = || Server::builder(&client, super::Log::default()).on(job);
    for (builder, texts) in [
        (
            builder().concurrency(0),
            ["concurrency is 0", "1 to 100000"],
        ),
        (
            builder().concurrency(10_000_000),
            ["concurrency is 10000000", "1 to 100000"],
        ),
        (builder().lease(ms(0)), ["lease is 0ns", "500ms to"]),
        (
            builder().lease(ms(5_000)).renew_every(ms(5_000)),
            ["lease is 5s", "renew_every 5s"],
        ),
        (
            builder().lease(Duration::MAX).renew_every(Duration::MAX),
            ["lease is ", "500ms to"],
        ),
        (builder().max_crashes(0), ["max_crashes is 0", "1 to 100"]),
        (builder().queue("a", 0), ["weight of queue a is 0", "1 to"]),
    ] {
        let refused = builder.build().unwrap_err();
        assert!(matches!(refused, BuildError::Config(_)), "{refused:?}");
        for text in texts {
            assert!(refused.to_string().contains(text), "{refused}");
        }
    }
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_cannot_be_used_is_refused_in_time_without_its_password() {
    let _together = together().await;
    let redis = TestServer::options()
        .password("s3cret")
        .start()
        .await
        .unwrap();
    let port = redis.port();
    let began = std::time::Instant::now();
    for (url, text) in [
        (
            "redis://u:s3cret@h:99999".to_owned(),
            "port 99999 is not 1 to 65535",
        ),
        (
            "redis://u:s3cret@h:0".to_owned(),
            "port 0 is not 1 to 65535",
        ),
        ("redis://u:s3c/ret@h".to_owned(), "must be percent-encoded"),
        (format!("redis://u:p@s3cret@127.0.0.1:{port}"), ""),
        (
            format!("redis://:wrong-s3cret@127.0.0.1:{port}"),
            "WRONGPASS",
        ),
        (format!("redis://127.0.0.1:{port}"), "NOAUTH"),
        ("mysql://:s3cret@h".to_owned(), "its scheme is not one of"),
        ("s3cret".to_owned(), "it has no scheme"),
        (String::new(), "it has no scheme"),
        #[cfg(not(feature = "tls"))]
        (
            format!("rediss://:s3cret@127.0.0.1:{port}"),
            "needs the feature `tls`",
        ),
        // A plain port answers a TLS greeting with an error, or closes.
        #[cfg(feature = "tls")]
        (format!("rediss://:s3cret@127.0.0.1:{port}"), ""),
    ] {
        let asked = std::time::Instant::now();
        let refused = Client::connect(&url).await.unwrap_err();
        let shown = format!("{refused} {refused:?}");
        assert!(refused.to_string().contains(text), "{refused}");
        assert!(
            !shown.contains("s3cret") && !shown.contains("s3c"),
            "{shown}"
        );
        assert!(
            asked.elapsed() < Duration::from_secs(5),
            "{url} took {:?}",
            asked.elapsed()
        );
    }
    eprintln!("all refused within {:?}", began.elapsed());
    redis.finish().await;
}

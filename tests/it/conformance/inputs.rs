//! What is refused before anything is sent, and how that is said.

use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use streamfleet::{
    Backoff, BuildError, Client, ConnectError, EnqueueError, Failure, Server, ServerBuilder, Task,
};

use super::app::{Act, App, run_step, step};
use super::world::{World, assert_shape, ms};

/// A task whose name no key and no log could hold; the derive would refuse it.
#[derive(Serialize, Deserialize)]
struct BadName;

impl Task for BadName {
    const NAME: &'static str = "a{b}\n\u{1b}[31m";
    type Output = ();
    type Error = Failure;
}

pub(super) async fn names_outside_the_alphabet_are_refused(world: &World) {
    let client = world.client().await;
    let long = "x".repeat(129);
    for name in ["", "*", "a b", "a}:{b", "r:x", "ü", "a\0", "a\n", &long] {
        let task = step("refused", [Act::Succeed]);
        let refused = client.enqueue(task).queue(name).await;
        assert_shape!(&refused, Err(EnqueueError::Name(_)));
        let task = step("refused", [Act::Succeed]);
        let refused = client.enqueue_all([task]).queue(name).await;
        assert_shape!(&refused, Err(EnqueueError::Name(_)));
        client.inspect().counts(name).await.unwrap_err();
        client.inspect().pause(name, "").await.unwrap_err();
        let server = World::builder(&client, &App::default())
            .queue(name, 1)
            .build();
        assert_shape!(server, Err(BuildError::Name(_)));
        let prefixed = Client::builder(world.redis.url())
            .prefix(name)
            .connect()
            .await;
        assert_shape!(prefixed, Err(ConnectError::Name(_)));
    }
    let refused = client
        .enqueue(BadName)
        .queue(world.queue())
        .await
        .unwrap_err();
    assert_shape!(refused, EnqueueError::Name(_));
    let text = refused.to_string();
    assert!(
        !text.contains(['\n', '\u{1b}']),
        "it is shown escaped: {text}"
    );
}

pub(super) async fn a_payload_over_the_limit_is_refused_with_both_sizes(world: &World) {
    let client = world.client().await;
    let label = "x".repeat(1024 * 1024);
    let task = step(label, [Act::Succeed]);
    let refused = client.enqueue(task).queue(world.queue()).await.unwrap_err();
    let EnqueueError::PayloadTooLarge { name, bytes, limit } = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!((name.as_str(), *limit), ("step", 1024 * 1024));
    assert!(*bytes > *limit);
    let text = refused.to_string();
    assert!(
        text.contains(&bytes.to_string()) && text.contains("1048576"),
        "{text}"
    );
    let length = world.command(world.queue(), "s", &[b"EXISTS"]).await;
    assert_eq!(length.int(), Some(0), "nothing was sent");
}

pub(super) async fn options_out_of_their_limits_are_refused_with_both_values(world: &World) {
    let client = world.client().await;
    let enqueue = || {
        client
            .enqueue(step("refused", [Act::Succeed]))
            .queue(world.queue())
    };
    let day = Duration::from_secs(24 * 60 * 60);
    let far = UNIX_EPOCH + 366 * 10_000 * day;
    let refused = [
        (enqueue().max_retries(1_001), "1001"),
        (enqueue().timeout(Duration::ZERO), "0"),
        (enqueue().timeout(31 * day), "2678400"),
        (enqueue().backoff(Backoff::Fixed(2 * day)), "172800"),
        (
            enqueue().backoff(Backoff::Exponential {
                initial: ms(0),
                max: day,
            }),
            "0",
        ),
        (enqueue().deadline(far), "deadline"),
        (enqueue().at(far), "at is"),
        (enqueue().delay(Duration::MAX), "delay"),
        (enqueue().header("", "x"), "header"),
        (enqueue().header("long", "x".repeat(9_000)), "9004"),
    ];
    for (enqueue, shown) in refused {
        let error = enqueue.await.unwrap_err();
        assert_shape!(&error, EnqueueError::Option(_));
        let text = error.to_string();
        assert!(
            text.contains(shown) && text.contains("must be"),
            "{shown}: {text}"
        );
    }
    // What is just within the limits passes.
    let id = enqueue()
        .max_retries(1_000)
        .timeout(30 * day)
        .delay(day)
        .forget();
    let id = id.await.unwrap();
    client.inspect().delete(world.queue(), &id).await.unwrap();
}

pub(super) async fn a_server_that_cannot_work_is_not_built(world: &World) {
    let client = world.client().await;
    let app = App::default();
    let builder = || World::builder(&client, &app).queue(world.queue(), 1);
    let refused: [(ServerBuilder<App>, &[&str]); 9] = [
        (builder().concurrency(0), &["concurrency", "0", "100000"]),
        (builder().concurrency(10_000_000), &["10000000", "100000"]),
        (builder().lease(Duration::ZERO), &["lease", "0ns"]),
        (
            builder().lease(ms(4_000)).renew_every(ms(4_000)),
            &["4s", "renew_every"],
        ),
        (builder().max_crashes(0), &["max_crashes", "0"]),
        (builder().max_payload(0), &["max_payload", "0"]),
        (builder().queue(world.queue(), 1), &["queue", "twice"]),
        (builder().queue("weightless", 0), &["weightless", "0"]),
        (builder().on(run_step), &["step"]),
    ];
    for (builder, shown) in refused {
        let error = builder.build().unwrap_err().to_string();
        assert!(
            shown.iter().all(|part| error.contains(part)),
            "{shown:?}: {error}"
        );
    }
    let empty = Server::builder(&client, ()).build();
    assert_shape!(empty, Err(BuildError::NoHandlers));
}

pub(super) async fn a_url_that_cannot_work_is_refused_without_its_password(_: &World) {
    for url in [
        "redis://user:s3cret@host@127.0.0.1:1",
        "redis://user:s3cret@127.0.0.1:99999",
        "redis://user:s3cret@127.0.0.1:1",
        "redis://user:s3cret@127.0.0.1:1/none",
        "rediss://user:s3cret@127.0.0.1:1",
        "http://user:s3cret@127.0.0.1",
        "user:s3cret",
        "",
    ] {
        let began = std::time::Instant::now();
        let error = Client::connect(url).await.unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(10), "{url}");
        for text in [error.to_string(), format!("{error:?}")] {
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
}

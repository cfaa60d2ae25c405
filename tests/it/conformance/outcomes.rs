//! What a waiter gets.

use std::time::Duration;

use streamfleet::{Client, Codec, EnqueueError, ResultError};

use super::app::{Act, App, Blocking, Nothing, OpenAccount, Refused, Sum, step, steps};
use super::world::{HOUR, SOON, World, archived_task, assert_shape, ended, ms};
use crate::support::{ChildSpawn, eventually};

fn sum() -> Sum {
    Sum {
        numbers: vec![7, -3, i64::MAX - 100, 0],
        note: Some("ünïcode \u{1f980}".to_owned()),
    }
}

pub(super) async fn a_typed_result_comes_back_in_messagepack(world: &World) {
    let client = world.client().await;
    world.serve(&client, &App::default());
    let handle = client.enqueue(sum()).queue(world.queue()).await.unwrap();
    assert_eq!(ended(&handle).await.unwrap(), sum().total());
}

pub(super) async fn a_typed_result_comes_back_in_json(world: &World) {
    let client = world.client().await;
    let handle = client
        .enqueue(sum())
        .queue(world.queue())
        .codec(Codec::Json)
        .await
        .unwrap();
    let stored = client.inspect().task(world.queue(), handle.id()).await;
    let stored = stored.unwrap();
    assert_eq!(stored.codec, Codec::Json);
    assert!(stored.payload.starts_with(b"{\"numbers\":[7,-3,"));
    world.serve(&client, &App::default());
    assert_eq!(ended(&handle).await.unwrap(), sum().total());
}

pub(super) async fn a_task_without_output_ends_with_unit(world: &World) {
    let client = world.client().await;
    world.serve(&client, &App::default());
    for codec in [Codec::MessagePack, Codec::Json] {
        let nothing = client.enqueue(Nothing).queue(world.queue()).codec(codec);
        let () = ended(&nothing.await.unwrap()).await.unwrap();
    }
}

pub(super) async fn a_forgotten_task_runs_and_notifies_nobody(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let task = step("forgotten", [Act::Fail, Act::Succeed]);
    let id = client
        .enqueue(task)
        .queue(world.queue())
        .backoff(streamfleet::Backoff::Fixed(ms(1)))
        .forget()
        .await
        .unwrap();
    world.serve(&client, &app);
    eventually("it ran twice and is gone", SOON, async || {
        app.seen().len() == 2 && world.is_drained(world.queue()).await
    })
    .await;
    assert!(app.seen().iter().all(|seen| seen.task == id));
    let receiver = format!("r:{}", client.id());
    let exists = world.command(world.queue(), &receiver, &[b"EXISTS"]).await;
    assert_eq!(exists.int(), Some(0));
}

pub(super) async fn a_bulk_has_one_result_per_item_in_order(world: &World) {
    let app = App::default();
    let client = world.connect(world.client_builder().max_payload(300)).await;
    world.serve(&client, &app);
    let mut tasks: Vec<_> = steps(450).collect();
    for number in [0, 99, 321] {
        tasks[number].label = "x".repeat(301);
    }
    let results = client
        .enqueue_all(tasks)
        .queue(world.queue())
        .await
        .unwrap();
    assert_eq!(results.len(), 450);
    for (number, result) in results.into_iter().enumerate() {
        if [0, 99, 321].contains(&number) {
            assert_shape!(
                result,
                Err(EnqueueError::PayloadTooLarge { limit: 300, .. })
            );
        } else {
            assert_eq!(ended(&result.unwrap()).await.unwrap(), number.to_string());
        }
    }
}

pub(super) async fn several_waiters_on_one_handle_all_get_the_outcome(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let held = step("held", [Act::Hold]);
    let handle = client.enqueue(held).queue(world.queue()).await.unwrap();
    let waiters: Vec<_> = (0..8)
        .map(|_| {
            let handle = handle.clone();
            tokio::spawn(async move { ended(&handle).await.unwrap() })
        })
        .collect();
    let by_itself = tokio::spawn(handle.clone().into_future());
    app.open();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap(), "held");
    }
    assert_eq!(by_itself.await.unwrap().unwrap(), "held");
}

pub(super) async fn an_outcome_can_be_awaited_again(world: &World) {
    let client = world.client().await;
    world.serve(&client, &App::default());
    let (good, bad) = (step("good", [Act::Succeed]), step("bad", [Act::Never]));
    let good = client.enqueue(good).queue(world.queue()).await.unwrap();
    let bad = client.enqueue(bad).queue(world.queue()).await.unwrap();
    for _ in 0..3 {
        assert_eq!(ended(&good).await.unwrap(), "good");
        assert_shape!(ended(&bad).await, Err(ResultError::Failed(_)));
    }
    assert_eq!(ended(&good.clone()).await.unwrap(), "good");
}

pub(super) async fn a_wait_with_a_timeout_ends_and_the_task_goes_on(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let held = step("held", [Act::Hold]);
    let handle = client.enqueue(held).queue(world.queue()).await.unwrap();
    let over = handle.result_timeout(ms(20)).await;
    assert_shape!(over, Err(ResultError::WaitTimeout(wait)) if wait == ms(20));
    app.open();
    assert_eq!(handle.result_timeout(SOON).await.unwrap(), "held");
    // An outcome that is there needs no time.
    assert_eq!(handle.result_timeout(Duration::ZERO).await.unwrap(), "held");
}

pub(super) async fn an_error_of_an_own_type_crosses_processes(world: &World) {
    let client = world.client().await;
    let worker = ChildSpawn::of_test("conformance::worker::child_main", super::worker::ROLE)
        .env("URL", world.redis.url())
        .env("PREFIX", world.prefix)
        .env("QUEUE", world.queue())
        .spawn();
    let open = async |age| {
        let open = client.enqueue(OpenAccount { age }).queue(world.queue());
        ended(&open.await.unwrap()).await
    };
    let (young, adult) = (open(17).await, open(18).await);
    assert_shape!(
        young,
        Err(ResultError::Failed(Refused::TooYoung {
            age: 17,
            needed: 18
        }))
    );
    adult.unwrap();
    worker.term();
    assert!(worker.exit(SOON).await.success());
}

pub(super) async fn an_output_that_is_too_large_is_archived_with_its_size(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let builder = World::builder(&client, &app).max_payload(2_000);
    world.start(builder.queue(world.queue(), 1));
    let enqueue = async |bytes| {
        let task = step("large", [Act::Output(bytes)]);
        client.enqueue(task).queue(world.queue()).await.unwrap()
    };
    let (fits, large) = (enqueue(1_990).await, enqueue(2_001).await);
    assert_eq!(ended(&fits).await.unwrap().len(), 1_990);
    assert_shape!(
        ended(&large).await,
        Err(ResultError::OutputTooLarge {
            bytes: 2_004,
            limit: 2_000
        })
    );
    let task = archived_task(&client, world.queue(), large.id()).await;
    assert_eq!(task.reason.as_deref(), Some("output_too_large"));
    assert_eq!(app.seen().len(), 2, "it is not retried");
}

pub(super) async fn headers_reach_the_handler(world: &World) {
    let client = world.client().await;
    let task = step("headers", [Act::Header]);
    let handle = client
        .enqueue(task)
        .queue(world.queue())
        .header("trace", "00-ünïcode-01")
        .header("other", "")
        .await
        .unwrap();
    let stored = client.inspect().task(world.queue(), handle.id()).await;
    assert_eq!(stored.unwrap().headers.len(), 2);
    world.serve(&client, &App::default());
    assert_eq!(ended(&handle).await.unwrap(), "00-ünïcode-01");
}

pub(super) async fn a_handler_enqueues_children(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let parent = step("parent", [Act::Children(3)]);
    let parent = client.enqueue(parent).queue(world.queue()).await.unwrap();
    assert_eq!(ended(&parent).await.unwrap(), "child 0, child 1, child 2");
    assert_eq!(app.labels(), ["parent", "child 0", "child 1", "child 2"]);
}

pub(super) async fn a_blocking_handler_returns_its_result(world: &World) {
    let client: Client = world.client().await;
    world.serve(&client, &App::default());
    let handles = client
        .enqueue_all((0..6).map(|_| Blocking(ms(50))))
        .queue(world.queue())
        .await
        .unwrap();
    for handle in handles {
        let output = ended(&handle.unwrap()).await.unwrap();
        assert_eq!(output, format!("{} slept", world.queue()));
    }
    // It cannot be dropped: its output counts although its time was over.
    let late = client.enqueue(Blocking(ms(300))).queue(world.queue());
    let late = late
        .timeout(ms(50))
        .deadline(std::time::SystemTime::now() + HOUR);
    ended(&late.await.unwrap()).await.unwrap();
}

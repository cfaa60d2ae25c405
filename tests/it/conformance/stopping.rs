//! How a server stops, and what it tells.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use streamfleet::{Backoff, StopReason, TaskId};

use super::app::{Act, App, Later, step, steps};
use super::world::{SOON, World, ended, ms};
use crate::support::eventually;

pub(super) async fn a_stop_lets_running_work_finish(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let builder = World::builder(&client, &app).concurrency(2);
    let server = world.start(builder.queue(world.queue(), 1));
    let held = |number: usize| step(number.to_string(), [Act::Hold]);
    let running = client.enqueue_all((0..2).map(held)).queue(world.queue());
    let running = running.await.unwrap();
    eventually("both run", SOON, async || app.seen().len() == 2).await;
    let stopping = tokio::spawn({
        let server = server.clone();
        async move { server.stop().await }
    });
    // From when it stops nothing is started any more.
    eventually("it has taken leave of reading", SOON, async || {
        world.redis.nodes().iter().all(|_| !stopping.is_finished())
    })
    .await;
    let later = client
        .enqueue_all(steps(3))
        .queue(world.queue())
        .await
        .unwrap();
    app.open();
    let report = stopping.await.unwrap();
    for handle in running {
        ended(&handle.unwrap()).await.unwrap();
    }
    assert_eq!((report.interrupted, report.abandoned), (0, 0), "{report:?}");
    assert!(report.succeeded >= 2, "{report:?}");
    world.serve(&client, &app);
    for handle in later {
        ended(&handle.unwrap()).await.unwrap();
    }
    assert!(app.seen().iter().all(|seen| seen.attempt == 1));
}

pub(super) async fn a_stop_hands_work_back_and_another_server_starts_it_within_a_second(
    world: &World,
) {
    let (client, app) = (world.client().await, App::default());
    let first = World::builder(&client, &app.on("first"))
        .concurrency(4)
        .shutdown_timeout(Duration::ZERO)
        .handler_grace(Duration::ZERO);
    let first = world.start(first.queue(world.queue(), 1));
    let deaf = |number: usize| step(number.to_string(), [Act::Deaf, Act::Succeed]);
    let handles = client.enqueue_all((0..4).map(deaf)).queue(world.queue());
    let handles = handles.await.unwrap();
    eventually("all run", SOON, async || app.seen().len() == 4).await;
    let second = World::builder(&client, &app.on("second"));
    world.start(second.queue(world.queue(), 1));
    // The second one is there when it runs what the first has no place for.
    let ready = client
        .enqueue(step("ready", [Act::Succeed]))
        .queue(world.queue());
    ended(&ready.await.unwrap()).await.unwrap();

    let stopped = Instant::now();
    let report = first.stop().await;
    for handle in handles {
        ended(&handle.unwrap()).await.unwrap();
    }
    assert_eq!((report.interrupted, report.released), (4, 0), "{report:?}");
    for number in 0..4 {
        let runs = app.runs_of(&number.to_string());
        let [before, after] = &runs[..] else {
            panic!("{runs:?}");
        };
        assert_eq!((before.server, after.server), ("first", "second"));
        assert_eq!(after.attempt, 1, "an interrupted run is no attempt");
        assert!(after.fence > before.fence, "{runs:?}");
        let took = after.at.duration_since(stopped);
        assert!(
            took < Duration::from_secs(1),
            "it started again after {took:?}"
        );
    }
    assert_eq!(app.dropped(), 4);
}

pub(super) async fn a_stop_tells_a_listening_handler_and_counts_no_attempt(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let builder = World::builder(&client, &app).shutdown_timeout(ms(100));
    let server = world.start(builder.queue(world.queue(), 1));
    let task = step("listens", [Act::Listen, Act::Succeed]);
    let handle = client.enqueue(task).queue(world.queue()).max_retries(0);
    let handle = handle.await.unwrap();
    eventually("it runs", SOON, async || !app.seen().is_empty()).await;
    server.stop().await;
    assert_eq!(app.told(), [StopReason::Shutdown]);
    world.serve(&client, &app);
    ended(&handle).await.unwrap();
    assert_eq!(app.seen()[1].attempt, 1);
}

pub(super) async fn the_stop_report_counts_what_was_done(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let server = world.serve(&client, &app);
    let enqueue = async |label: &str, acts: Vec<Act>| {
        let handle = client.enqueue(step(label, acts)).queue(world.queue());
        handle.backoff(Backoff::Fixed(ms(1))).await.unwrap()
    };
    let all = [
        enqueue("one", vec![Act::Succeed]).await,
        enqueue("two", vec![Act::Succeed]).await,
        enqueue("twice", vec![Act::Fail, Act::Succeed]).await,
        enqueue("thrice", vec![Act::Fail, Act::Panic, Act::Succeed]).await,
        enqueue("never", vec![Act::Never]).await,
        enqueue("discard", vec![Act::Discard]).await,
    ];
    for handle in &all {
        let _ = ended(handle).await;
    }
    let report = server.stop().await;
    assert_eq!(report.succeeded, 4, "{report:?}");
    assert_eq!(report.retried, 3, "{report:?}");
    assert_eq!((report.archived, report.ended), (1, 1), "{report:?}");
    let rest = [
        report.leases_lost,
        report.reclaimed,
        report.released,
        report.interrupted,
        report.abandoned,
    ];
    assert_eq!(rest, [0; 5], "{report:?}");
    assert!(report.stop_took < SOON);
}

pub(super) async fn hooks_are_told_of_every_archived_task(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let builder = World::builder(&client, &app)
        .unknown_grace(ms(200))
        // A hook that panics harms nobody.
        .on_archived(|_| panic!("a hook of a test panics"))
        .on_archived(move |task| tell.lock().unwrap().push(task.clone()));
    world.start(builder.queue(world.queue(), 1));
    let never = client
        .enqueue(step("never", [Act::Never]))
        .queue(world.queue());
    let never = never.await.unwrap();
    let unknown = client.enqueue(Later(1)).queue(world.queue()).await.unwrap();
    ended(&never).await.unwrap_err();
    ended(&unknown).await.unwrap_err();
    eventually("both were told", SOON, async || {
        told.lock().unwrap().len() == 2
    })
    .await;
    let told = told.lock().unwrap().clone();
    let of = |id: &TaskId| told.iter().find(|task| task.id == *id).unwrap();
    let failed = of(never.id());
    assert_eq!(
        (failed.reason, failed.error.as_str()),
        ("failed", "never never")
    );
    assert_eq!(
        (failed.name.as_str(), failed.queue.as_str()),
        ("step", world.queue())
    );
    assert_eq!(of(unknown.id()).reason, "no_handler");
}

//! A queue that is paused.

use std::time::{Duration, UNIX_EPOCH};

use super::app::{Act, App, step, steps};
use super::world::{SOON, World, ended};
use crate::support::eventually;

pub(super) async fn a_paused_queue_starts_nothing_and_resumes_in_order(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let inspect = client.inspect();
    let [queue, other, _] = world.queues();
    let builder = World::builder(&client, &app).concurrency(1);
    let server = world.start(builder.queue(queue, 1).queue(other, 1));
    // It serves, so a read of the queue is blocked now.
    let first = client.enqueue(step("first", [Act::Succeed])).queue(queue);
    ended(&first.await.unwrap()).await.unwrap();
    inspect.pause(queue, "for a test").await.unwrap();
    let handles = client.enqueue_all(steps(20)).queue(queue).await.unwrap();
    inspect.pause(queue, "for another reason").await.unwrap();
    // The same server goes on to read, and another one that starts now holds back as well.
    let second = World::builder(&client, &app)
        .queue(queue, 1)
        .queue(other, 1);
    let second = world.start(second);
    for number in 0..20 {
        let task = step(format!("other {number}"), [Act::Succeed]);
        let handle = client.enqueue(task).queue(other).await.unwrap();
        ended(&handle).await.unwrap();
    }
    assert!(app.seen()[1..].iter().all(|seen| seen.queue == *other));
    let counts = inspect.counts(queue).await.unwrap();
    assert_eq!((counts.pending, counts.active), (20, 0), "{counts:?}");
    let pause = counts.paused.unwrap();
    assert_eq!(
        (pause.reason.as_str(), pause.until),
        ("for another reason", None)
    );
    assert_eq!(pause.by, client.id().as_str());

    second.stop().await;
    assert!(inspect.resume(queue).await.unwrap());
    assert!(
        !inspect.resume(queue).await.unwrap(),
        "it was not paused any more"
    );
    for handle in handles {
        ended(&handle.unwrap()).await.unwrap();
    }
    let ran: Vec<String> = app.labels().split_off(21);
    let expected: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(ran, expected);
    assert!(inspect.counts(queue).await.unwrap().paused.is_none());
    server.stop().await;
}

pub(super) async fn a_pause_stops_a_busy_server_and_loses_nothing(world: &World) {
    const TASKS: usize = 1_500;
    let (client, app) = (world.client().await, App::default());
    let inspect = client.inspect();
    let [queue, other, _] = world.queues();
    let tasks = client.enqueue_all(steps(TASKS)).queue(queue).await.unwrap();
    let builder = World::builder(&client, &app).concurrency(2);
    let server = world.start(builder.queue(queue, 1).queue(other, 1));
    eventually("it is busy", SOON, async || app.seen().len() > 100).await;
    inspect.pause(queue, "for a test").await.unwrap();
    // What it took just before the pause ends or is handed back; then nothing of the queue is held.
    eventually("nothing is held", SOON, async || {
        let counts = inspect.counts(queue).await.unwrap();
        assert!(counts.pending > 0, "the pause came too late: {counts:?}");
        counts.active == 0
    })
    .await;
    let ran = app.seen().len();
    for number in 0..20 {
        let task = step(format!("other {number}"), [Act::Succeed]);
        let handle = client.enqueue(task).queue(other).await.unwrap();
        ended(&handle).await.unwrap();
    }
    assert!(app.seen()[ran..].iter().all(|seen| seen.queue == *other));
    assert!(inspect.resume(queue).await.unwrap());
    for handle in tasks {
        ended(&handle.unwrap()).await.unwrap();
    }
    assert_eq!(app.seen().len(), TASKS + 20, "each ran once");
    server.stop().await;
}

pub(super) async fn a_pause_ends_by_itself_at_its_time(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let until = world.now(world.queue()).await + 700;
    let time = UNIX_EPOCH + Duration::from_millis(until);
    client
        .inspect()
        .pause_until(world.queue(), "a moment", time)
        .await
        .unwrap();
    let handle = client
        .enqueue(step("after", [Act::Succeed]))
        .queue(world.queue());
    let handle = handle.await.unwrap();
    assert_eq!(ended(&handle).await.unwrap(), "after");
    assert!(world.now(world.queue()).await >= until);
    eventually("it is not paused any more", SOON, async || {
        client
            .inspect()
            .counts(world.queue())
            .await
            .unwrap()
            .paused
            .is_none()
    })
    .await;
}

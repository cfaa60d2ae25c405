//! When tasks start, and in which order.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use streamfleet::Order;

use super::app::{Act, App, step, steps};
use super::world::{SOON, World, ended, ms};
use crate::support::eventually;

pub(super) async fn a_delayed_task_is_never_early(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let mut waits = Vec::new();
    for delay in [1, 40, 150, 333, 700, 1_100] {
        let before = world.now(world.queue()).await;
        let task = step(delay.to_string(), [Act::Succeed]);
        let handle = client.enqueue(task).queue(world.queue()).delay(ms(delay));
        waits.push((delay, before + delay, handle.await.unwrap()));
    }
    for (delay, due, handle) in waits {
        ended(&handle).await.unwrap();
        let run = app.runs_of(&delay.to_string()).remove(0);
        // An entry is named after the time of Redis at which it was added.
        let started = run.fence.entry.millis;
        assert!(
            started >= due,
            "{delay} ms: due at {due}, started at {started}"
        );
        let late = started - due;
        assert!(late < 5_000, "{delay} ms: {late} ms late");
    }
}

pub(super) async fn a_task_starts_at_its_time(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let now = world.now(world.queue()).await;
    let time = |millis| UNIX_EPOCH + Duration::from_millis(millis);
    let at = async |label: &str, when: SystemTime| {
        let task = step(label, [Act::Succeed]);
        let handle = client.enqueue(task).queue(world.queue()).at(when);
        ended(&handle.await.unwrap()).await.unwrap();
        app.runs_of(label).remove(0).fence.entry.millis
    };
    assert!(at("soon", time(now + 400)).await >= now + 400);
    // A time that is over is now.
    assert!(at("past", time(now - 1_000_000)).await >= now);
    assert!(at("long ago", UNIX_EPOCH - Duration::from_secs(1)).await >= now);
}

pub(super) async fn one_at_a_time_means_first_in_first_out(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let enqueued = async |tasks| {
        let queue = world.queue();
        let handles = client.enqueue_all(tasks).queue(queue).await.unwrap();
        handles.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    // Half of them before there is a server, half of them while it runs.
    let mut handles = enqueued(steps(60).take(30).collect::<Vec<_>>()).await;
    world.start(
        World::builder(&client, &app)
            .concurrency(1)
            .queue(world.queue(), 1),
    );
    handles.extend(enqueued(steps(60).skip(30).collect()).await);
    for handle in &handles {
        ended(handle).await.unwrap();
    }
    let expected: Vec<String> = (0..60).map(|number| number.to_string()).collect();
    assert_eq!(app.labels(), expected);
}

/// The queues in which `each` tasks of each queue ran, with one slot and these weights.
async fn queues_run(world: &World, order: Order, weights: [u32; 3], each: usize) -> Vec<usize> {
    let (client, app) = (world.client().await, App::default());
    let mut builder = World::builder(&client, &app).concurrency(1).order(order);
    for (queue, weight) in world.queues().iter().zip(weights) {
        let tasks = client.enqueue_all(steps(each)).queue(queue).forget();
        tasks
            .await
            .unwrap()
            .into_iter()
            .for_each(|id| drop(id.unwrap()));
        builder = builder.queue(queue, weight);
    }
    world.start(builder);
    eventually("all have run", SOON, async || app.seen().len() == 3 * each).await;
    let seen = app.seen();
    let position = |name: &str| world.queues().iter().position(|queue| queue == name);
    seen.iter()
        .map(|seen| position(&seen.queue).unwrap())
        .collect()
}

pub(super) async fn strict_queues_run_by_weight(world: &World) {
    let ran = queues_run(world, Order::Strict, [1, 100, 10], 25).await;
    let expected: Vec<usize> = [1, 2, 0].iter().flat_map(|queue| [*queue; 25]).collect();
    assert_eq!(ran, expected);
}

pub(super) async fn weighted_queues_share_by_weight_and_none_starves(world: &World) {
    let ran = queues_run(world, Order::Weighted, [8, 1, 1], 100).await;
    // Of the first hundred about eighty are of the heavy queue, and each other has some.
    let count = |queue| ran[..100].iter().filter(|ran| **ran == queue).count();
    let shares = [count(0), count(1), count(2)];
    assert!(shares[0] > 60, "of the first hundred: {shares:?}");
    assert!(
        shares[1] > 0 && shares[2] > 0,
        "of the first hundred: {shares:?}"
    );
}

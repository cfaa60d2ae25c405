//! The life of a client.

use std::collections::BTreeMap;
use std::time::Duration;

use streamfleet::{EnqueueError, ResultError};

use super::app::{Act, App, step, steps};
use super::world::{HOUR, SOON, World, assert_shape, ended, ms};
use crate::support::eventually;

pub(super) async fn closing_a_client_ends_its_waits_and_not_its_tasks(world: &World) {
    let (client, other, app) = (world.client().await, world.client().await, App::default());
    let handles = client
        .enqueue_all(steps(3))
        .queue(world.queue())
        .delay(HOUR);
    let handles: Vec<_> = handles
        .await
        .unwrap()
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let waiters: Vec<_> = handles
        .iter()
        .cloned()
        .map(|handle| tokio::spawn(async move { ended(&handle).await }))
        .collect();
    let id = client.id().to_string();
    let known = async || {
        world
            .command(world.queue(), "clients", &[b"ZSCORE", id.as_bytes()])
            .await
    };
    assert!(known().await.text().is_some());
    client.close().await;
    for waiter in waiters {
        assert_shape!(waiter.await.unwrap(), Err(ResultError::Closed));
    }
    assert_shape!(ended(&handles[0]).await, Err(ResultError::Closed));
    let refused = client
        .enqueue(step("late", [Act::Succeed]))
        .queue(world.queue())
        .await;
    assert_shape!(&refused, Err(EnqueueError::Closed));
    client.close().await;
    // What it had in Redis beside its tasks is gone, the tasks are not.
    assert_eq!(known().await.text(), None);
    let receiver = format!("r:{id}");
    let receiver = world.command(world.queue(), &receiver, &[b"EXISTS"]).await;
    assert_eq!(receiver.int(), Some(0));
    world.serve(&other, &app);
    for handle in &handles {
        other
            .inspect()
            .run_now(world.queue(), handle.id())
            .await
            .unwrap();
    }
    eventually("they run", SOON, async || app.seen().len() == 3).await;
}

pub(super) async fn a_dropped_handle_cancels_nothing(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let handles = client
        .enqueue_all(steps(5))
        .queue(world.queue())
        .await
        .unwrap();
    drop(handles);
    // A future that is dropped before it was polled sends nothing.
    drop(
        client
            .enqueue(step("unsent", [Act::Succeed]))
            .queue(world.queue())
            .into_future(),
    );
    world.serve(&client, &app);
    eventually("they run", SOON, async || {
        app.seen().len() == 5 && world.is_drained(world.queue()).await
    })
    .await;
    let last = client
        .enqueue(step("last", [Act::Succeed]))
        .queue(world.queue());
    ended(&last.await.unwrap()).await.unwrap();
    assert_eq!(app.seen().len(), 6);
}

pub(super) async fn the_receiver_of_a_dead_client_is_removed(world: &World) {
    let app = App::default();
    let dead_after = Duration::from_secs(4);
    let builder = || {
        let builder = world.client_builder().client_dead_after(dead_after);
        builder.enqueue_deadline(dead_after / 2)
    };
    let alive = world.connect(builder()).await;
    let server = World::builder(&alive, &app).client_dead_after(dead_after);
    world.start(server.queue(world.queue(), 1));
    let dead = builder().connect().await.unwrap();
    let id = dead.id().to_string();
    let awaited = dead
        .enqueue(step("awaited", [Act::Hold]))
        .queue(world.queue());
    drop(awaited.await.unwrap());
    // Without a close, as if its process had died.
    drop(dead);
    app.open();
    let receiver = format!("r:{id}");
    let exists = async || {
        world
            .command(world.queue(), &receiver, &[b"EXISTS"])
            .await
            .int()
    };
    eventually("its outcome is there", SOON, async || {
        exists().await == Some(1)
    })
    .await;
    eventually("it is removed", SOON, async || exists().await == Some(0)).await;
    let score: &[&[u8]] = &[b"ZSCORE", id.as_bytes()];
    eventually("it is forgotten", SOON, async || {
        world
            .command(world.queue(), "clients", score)
            .await
            .text()
            .is_none()
    })
    .await;
    // Who is alive stays known, also without enqueuing.
    let score: &[&[u8]] = &[b"ZSCORE", alive.id().as_str().as_bytes()];
    let next = alive
        .enqueue(step("next", [Act::Succeed]))
        .queue(world.queue());
    ended(&next.await.unwrap()).await.unwrap();
    assert!(
        world
            .command(world.queue(), "clients", score)
            .await
            .text()
            .is_some()
    );
}

/// Kills the connections of this name on every node, and answers how many there were.
async fn kill_connections(world: &World, name: &str) -> usize {
    let mut killed = 0;
    for node in world.redis.nodes() {
        let list = node
            .command(&["CLIENT", "LIST"])
            .await
            .unwrap()
            .text()
            .unwrap();
        let named = format!(" name={name} ");
        for line in list.lines().filter(|line| line.contains(&named)) {
            let id = line.strip_prefix("id=").unwrap().split(' ').next().unwrap();
            let reply = node.command(&["CLIENT", "KILL", "ID", id]).await.unwrap();
            killed += usize::try_from(reply.int().unwrap()).unwrap();
        }
    }
    killed
}

pub(super) async fn a_bulk_through_broken_connections_creates_each_task_once(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.start(
        World::builder(&client, &app)
            .concurrency(64)
            .queue(world.queue(), 1),
    );
    let name = format!("streamfleet-client-{}", client.id());
    let (mut killed, mut enqueued) = (0, 0);
    while killed < 10 {
        let first = enqueued;
        let tasks = (first..first + 600).map(|n| step(n.to_string(), [Act::Succeed]));
        let bulk = client.enqueue_all(tasks).queue(world.queue()).forget();
        let bulk = tokio::spawn(bulk.into_future());
        while !bulk.is_finished() {
            killed += kill_connections(world, &name).await;
            tokio::time::sleep(ms(2)).await;
        }
        for result in bulk.await.unwrap().unwrap() {
            result.unwrap();
            enqueued += 1;
        }
        assert!(enqueued < 60_000, "only {killed} connections were broken");
    }
    eventually("all have run", SOON, async || {
        world.is_drained(world.queue()).await && app.seen().len() >= enqueued
    })
    .await;
    let mut runs = BTreeMap::new();
    for label in app.labels() {
        *runs.entry(label).or_insert(0) += 1;
    }
    runs.retain(|_, runs| *runs > 1);
    assert!(
        runs.is_empty(),
        "these were created more than once: {runs:?}"
    );
    assert_eq!(app.seen().len(), enqueued);
}

//! What happens to everything at once.

use streamfleet::ResultError;

use super::app::{Act, App, step, steps};
use super::world::{HOUR, SOON, World, assert_shape, ended, ms};
use crate::support::eventually;

pub(super) async fn a_flushed_server_ends_every_wait_and_heals_by_itself(world: &World) {
    let app = App::default();
    let builder = world.client_builder().waiter_silence(ms(500));
    let client = world.connect(builder).await;
    let mut builder = World::builder(&client, &app);
    for queue in world.queues() {
        builder = builder.queue(queue, 1);
    }
    world.start(builder);
    let mut lost = Vec::new();
    for queue in world.queues() {
        lost.extend(
            client
                .enqueue_all(steps(100))
                .queue(queue)
                .delay(HOUR)
                .await
                .unwrap(),
        );
        let held = step("held", [Act::Hold]);
        lost.push(client.enqueue(held).queue(queue).await);
    }
    eventually("some run", SOON, async || app.seen().len() == 3).await;
    for node in world.redis.nodes() {
        node.command(&["FLUSHALL"]).await.unwrap();
    }
    for handle in lost {
        assert_shape!(ended(&handle.unwrap()).await, Err(ResultError::Lost));
    }
    // Runs whose tasks are gone end like others, and disturb nobody.
    app.open();
    for queue in world.queues() {
        for handle in client.enqueue_all(steps(50)).queue(queue).await.unwrap() {
            ended(&handle.unwrap()).await.unwrap();
        }
        let fails = step("again", [Act::Fail, Act::Succeed]);
        let again = client
            .enqueue(fails)
            .queue(queue)
            .backoff(streamfleet::Backoff::Fixed(ms(20)));
        assert_eq!(ended(&again.await.unwrap()).await.unwrap(), "again");
    }
}

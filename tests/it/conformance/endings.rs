//! Ends that are not the handler's: timeouts, deadlines and cancels.

use std::time::{Duration, UNIX_EPOCH};

use streamfleet::{CancelOutcome, Client, ResultError, StopReason, TaskHandle, TaskState};

use super::app::{Act, App, Step, step};
use super::world::{HOUR, SOON, World, archived, archived_task, assert_shape, ended, ms};
use crate::support::eventually;

/// Waits until a run of this label has started.
async fn started(app: &App, label: &str) {
    let what = format!("{label} has started");
    eventually(&what, SOON, async || !app.runs_of(label).is_empty()).await;
}

/// Waits until a task is in a state.
async fn is_in(handle: &TaskHandle<Step>, state: TaskState) {
    eventually(&format!("it is {state}"), SOON, async || {
        let status = handle.status().await.unwrap();
        status.is_some_and(|status| status.state == state)
    })
    .await;
}

pub(super) async fn a_deaf_handler_is_dropped_after_its_timeout_and_grace(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let builder = World::builder(&client, &app).concurrency(1);
    world.start(builder.queue(world.queue(), 1));
    let task = step("deaf", [Act::Deaf]);
    let handle = client.enqueue(task).queue(world.queue()).timeout(ms(150));
    let handle = handle.max_retries(0).await.unwrap();
    let outcome = ended(&handle).await;
    assert_shape!(outcome, Err(ResultError::TimedOut(timeout)) if timeout == ms(150));
    assert_eq!(app.dropped(), 1);
    let task = archived_task(&client, world.queue(), handle.id()).await;
    assert_eq!(task.reason.as_deref(), Some("timed_out"));
    // Its slot is free again.
    let next = client
        .enqueue(step("next", [Act::Succeed]))
        .queue(world.queue());
    ended(&next.await.unwrap()).await.unwrap();
}

pub(super) async fn a_handler_that_listens_hears_its_timeout(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let task = step("listens", [Act::Listen, Act::Succeed]);
    let handle = client.enqueue(task).queue(world.queue()).timeout(ms(100));
    let handle = handle
        .backoff(streamfleet::Backoff::Fixed(ms(1)))
        .await
        .unwrap();
    // A run that took too long is a failure like others.
    assert_eq!(ended(&handle).await.unwrap(), "listens");
    assert_eq!(app.told(), [StopReason::TimedOut]);
    assert_eq!(app.seen()[1].attempt, 2);
}

pub(super) async fn a_task_past_its_deadline_never_starts(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let now = world.now(world.queue()).await;
    let deadline = UNIX_EPOCH + Duration::from_millis(now + 150);
    let late = client
        .enqueue(step("late", [Act::Succeed]))
        .queue(world.queue());
    let late = late.deadline(deadline).await.unwrap();
    eventually("its deadline is over", SOON, async || {
        world.now(world.queue()).await > now + 150
    })
    .await;
    world.serve(&client, &app);
    assert_shape!(ended(&late).await, Err(ResultError::Expired));
    assert!(app.seen().is_empty());
    assert!(archived(&client, world.queue()).await.is_empty());

    // A retry that would come after the deadline does not come at all.
    let deadline = UNIX_EPOCH + Duration::from_millis(world.now(world.queue()).await + 60_000);
    let task = step("fails", [Act::RetryAfter(HOUR)]);
    let fails = client.enqueue(task).queue(world.queue()).deadline(deadline);
    assert_shape!(
        ended(&fails.await.unwrap()).await,
        Err(ResultError::Expired)
    );
    assert_eq!(app.labels(), ["fails"]);
}

pub(super) async fn a_deadline_cuts_off_a_run(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let deadline = world.now(world.queue()).await + 1_500;
    let enqueue = async |act| {
        let handle = client.enqueue(step("cut", [act])).queue(world.queue());
        let deadline = UNIX_EPOCH + Duration::from_millis(deadline);
        handle.deadline(deadline).await.unwrap()
    };
    let (listens, deaf) = (enqueue(Act::Listen).await, enqueue(Act::Deaf).await);
    assert_shape!(ended(&listens).await, Err(ResultError::Expired));
    assert_shape!(ended(&deaf).await, Err(ResultError::Expired));
    assert!(world.now(world.queue()).await >= deadline);
    assert_eq!(app.told(), [StopReason::Expired]);
    assert_eq!(app.dropped(), 1);
}

pub(super) async fn a_waiting_task_expires_while_its_queue_is_paused(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    client.inspect().pause(world.queue(), "test").await.unwrap();
    let deadline = UNIX_EPOCH + Duration::from_millis(world.now(world.queue()).await + 100);
    let enqueue = client
        .enqueue(step("waits", [Act::Succeed]))
        .queue(world.queue());
    let handle = enqueue.deadline(deadline).await.unwrap();
    assert_shape!(ended(&handle).await, Err(ResultError::Expired));
    client.inspect().resume(world.queue()).await.unwrap();
    assert!(app.seen().is_empty());
}

/// Cancels by the handle and checks that the task ended there and then, without a trace.
async fn cancel_what_waits(world: &World, client: &Client, handle: &TaskHandle<Step>) {
    assert_eq!(handle.cancel().await.unwrap(), CancelOutcome::Ended);
    assert_shape!(ended(handle).await, Err(ResultError::Cancelled));
    assert_eq!(handle.status().await.unwrap(), None);
    let counts = client.inspect().counts(world.queue()).await.unwrap();
    let left = counts.pending + counts.scheduled + counts.retry + counts.archived;
    assert_eq!(left, 0, "{counts:?}");
}

pub(super) async fn a_pending_task_is_cancelled(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let handle = client
        .enqueue(step("never", [Act::Succeed]))
        .queue(world.queue());
    let handle = handle.await.unwrap();
    is_in(&handle, TaskState::Pending).await;
    cancel_what_waits(world, &client, &handle).await;
    world.serve(&client, &app);
    let next = client
        .enqueue(step("next", [Act::Succeed]))
        .queue(world.queue());
    ended(&next.await.unwrap()).await.unwrap();
    assert_eq!(app.labels(), ["next"]);
}

pub(super) async fn a_scheduled_task_is_cancelled(world: &World) {
    let client = world.client().await;
    let handle = client
        .enqueue(step("never", [Act::Succeed]))
        .queue(world.queue());
    let handle = handle.delay(HOUR).await.unwrap();
    is_in(&handle, TaskState::Scheduled).await;
    cancel_what_waits(world, &client, &handle).await;
}

pub(super) async fn a_task_between_two_attempts_is_cancelled(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let task = step("once", [Act::RetryAfter(HOUR)]);
    let handle = client.enqueue(task).queue(world.queue()).await.unwrap();
    is_in(&handle, TaskState::Retry).await;
    cancel_what_waits(world, &client, &handle).await;
    assert_eq!(app.seen().len(), 1);
}

pub(super) async fn a_running_task_is_cancelled(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let server = world.serve(&client, &app);
    for (label, act) in [("listens", Act::Listen), ("deaf", Act::Deaf)] {
        let task = step(label, [act]);
        let handle = client.enqueue(task).queue(world.queue()).await.unwrap();
        started(&app, label).await;
        assert_eq!(handle.cancel().await.unwrap(), CancelOutcome::Requested);
        assert_shape!(ended(&handle).await, Err(ResultError::Cancelled));
    }
    assert_eq!(app.told(), [StopReason::Cancelled]);
    assert_eq!(app.dropped(), 1);
    assert!(archived(&client, world.queue()).await.is_empty());

    // What finishes first is finished, and cancelled by its id alone.
    let task = step("held", [Act::Hold]);
    let held = client.enqueue(task).queue(world.queue()).await.unwrap();
    started(&app, "held").await;
    app.open();
    ended(&held).await.unwrap();
    let late = client.inspect().cancel(world.queue(), held.id()).await;
    assert_eq!(late.unwrap(), CancelOutcome::Gone);
    let report = server.stop().await;
    assert_eq!((report.ended, report.succeeded), (2, 1), "{report:?}");
}

pub(super) async fn a_task_that_ended_cannot_be_cancelled(world: &World) {
    let client = world.client().await;
    world.serve(&client, &App::default());
    let done = client
        .enqueue(step("done", [Act::Succeed]))
        .queue(world.queue());
    let done = done.await.unwrap();
    ended(&done).await.unwrap();
    assert_eq!(done.cancel().await.unwrap(), CancelOutcome::Gone);
    assert_eq!(ended(&done).await.unwrap(), "done");
}

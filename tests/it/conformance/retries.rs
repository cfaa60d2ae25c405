//! What a failed run leads to.

use std::time::Duration;

use streamfleet::{Backoff, EntryId, Page, ResultError, TaskState};

use super::app::{Act, App, Seen, step};
use super::world::{HOUR, SOON, World, archived, archived_task, assert_shape, ended, ms};
use crate::support::eventually;

const SHORTLY: Backoff = Backoff::Fixed(Duration::from_millis(5));

/// The entries of some runs, which are named after the time of Redis.
fn entries(runs: &[Seen]) -> Vec<EntryId> {
    runs.iter().map(|run| run.fence.entry).collect()
}

fn attempts(runs: &[Seen]) -> Vec<u32> {
    runs.iter().map(|run| run.attempt).collect()
}

pub(super) async fn a_task_that_fails_twice_succeeds_at_the_third_attempt(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let task = step("thrice", [Act::Fail, Act::Fail, Act::Succeed]);
    let backoff = Backoff::Exponential {
        initial: ms(100),
        max: HOUR,
    };
    let handle = client.enqueue(task).queue(world.queue()).backoff(backoff);
    let handle = handle.await.unwrap();
    assert_eq!(ended(&handle).await.unwrap(), "thrice");
    let runs = app.seen();
    assert_eq!(attempts(&runs), [1, 2, 3]);
    assert!(runs.iter().all(|run| run.task == *handle.id()));
    // The wait is drawn from the upper half, and doubles.
    let at: Vec<u64> = entries(&runs).iter().map(|entry| entry.millis).collect();
    assert!(at[1] - at[0] >= 50 && at[2] - at[1] >= 100, "{at:?}");
    assert!(archived(&client, world.queue()).await.is_empty());
}

pub(super) async fn the_last_failure_archives_with_its_typed_error(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let fails = async |label: &str, retries| {
        let task = step(label, [Act::Fail]);
        let handle = client.enqueue(task).queue(world.queue()).backoff(SHORTLY);
        let handle = handle.max_retries(retries).await.unwrap();
        let outcome = ended(&handle).await;
        let message = format!("{label} failed");
        assert_shape!(&outcome, Err(ResultError::Failed(error)) if error.message() == message);
        archived_task(&client, world.queue(), handle.id()).await
    };
    let once = fails("once", 0).await;
    assert_eq!(attempts(&app.runs_of("once")), [1]);
    let thrice = fails("thrice", 2).await;
    assert_eq!(attempts(&app.runs_of("thrice")), [1, 2, 3]);
    for task in [&once, &thrice] {
        assert_eq!(task.state, TaskState::Archived);
        assert_eq!(task.reason.as_deref(), Some("failed"));
        assert!(task.ended_at.is_some() && task.unreadable.is_none());
    }
    assert_eq!(thrice.error.as_deref(), Some("thrice failed"));
}

pub(super) async fn never_archives_at_once(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let handle = client
        .enqueue(step("gone", [Act::Never]))
        .queue(world.queue());
    let handle = handle.await.unwrap();
    let outcome = ended(&handle).await;
    assert_shape!(&outcome, Err(ResultError::Failed(error)) if error.message() == "gone never");
    assert_eq!(app.seen().len(), 1);
    let task = archived_task(&client, world.queue(), handle.id()).await;
    assert_eq!(task.error.as_deref(), Some("gone never"));
}

pub(super) async fn retry_after_waits_as_long_as_it_says(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let wait = ms(600);
    let task = step("busy", [Act::RetryAfter(wait), Act::Succeed]);
    // The policy alone would retry at once.
    let handle = client.enqueue(task).queue(world.queue());
    let handle = handle.backoff(Backoff::Fixed(ms(0))).await.unwrap();
    ended(&handle).await.unwrap();
    let runs = app.seen();
    assert_eq!(attempts(&runs), [1, 2]);
    let at = entries(&runs);
    assert!(at[1].millis >= at[0].millis + 600, "{at:?}");
}

pub(super) async fn snooze_counts_no_attempt(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let server = world.serve(&client, &app);
    let wait = ms(150);
    let acts = [
        Act::Snooze(wait),
        Act::Snooze(wait),
        Act::Fail,
        Act::Snooze(wait),
        Act::Succeed,
    ];
    let handle = client.enqueue(step("sleepy", acts)).queue(world.queue());
    let handle = handle.max_retries(1).backoff(SHORTLY).await.unwrap();
    ended(&handle).await.unwrap();
    let runs = app.seen();
    assert_eq!(attempts(&runs), [1, 1, 1, 2, 2]);
    let at = entries(&runs);
    assert!(at[1].millis >= at[0].millis + 150 && at[4].millis >= at[3].millis + 150);
    let report = server.stop().await;
    assert_eq!(
        (report.retried, report.snoozed),
        (1, 3),
        "a snooze is no failure"
    );
}

pub(super) async fn discard_ends_without_a_place_in_the_archive(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let handle = client
        .enqueue(step("user", [Act::Discard]))
        .queue(world.queue());
    let handle = handle.await.unwrap();
    let outcome = ended(&handle).await;
    assert_shape!(&outcome, Err(ResultError::Discarded(text)) if text == "user discarded");
    assert!(archived(&client, world.queue()).await.is_empty());
    assert_eq!(app.seen().len(), 1);
    assert_eq!(handle.status().await.unwrap(), None);
}

pub(super) async fn a_panic_is_retried_then_archived_as_panicked(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let mends = step("mends", [Act::Panic, Act::Succeed]);
    let mends = client.enqueue(mends).queue(world.queue()).backoff(SHORTLY);
    let stays = client
        .enqueue(step("stays", [Act::Panic]))
        .queue(world.queue());
    let stays = stays.backoff(SHORTLY).max_retries(1).await.unwrap();
    assert_eq!(ended(&mends.await.unwrap()).await.unwrap(), "mends");
    let outcome = ended(&stays).await;
    assert_shape!(&outcome, Err(ResultError::Panicked(text)) if text == "stays panicked");
    assert_eq!(attempts(&app.runs_of("stays")), [1, 2]);
    let task = archived_task(&client, world.queue(), stays.id()).await;
    assert_eq!(task.reason.as_deref(), Some("panicked"));
}

pub(super) async fn the_fence_rises_over_the_runs_of_a_task(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    // Also where a retry follows within the same millisecond.
    let acts = [
        Act::Fail,
        Act::Snooze(ms(0)),
        Act::Fail,
        Act::RetryAfter(ms(0)),
        Act::Succeed,
    ];
    let handle = client.enqueue(step("fenced", acts)).queue(world.queue());
    let handle = handle.backoff(Backoff::Fixed(ms(0))).await.unwrap();
    ended(&handle).await.unwrap();
    let fences: Vec<_> = app.seen().iter().map(|seen| seen.fence).collect();
    assert_eq!(fences.len(), 5);
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}

pub(super) async fn a_long_error_text_is_cut(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let task = step("long", [Act::LongError(300_000)]);
    let handle = client.enqueue(task).queue(world.queue()).await.unwrap();
    let outcome = ended(&handle).await;
    assert_shape!(&outcome, Err(ResultError::Failed(error)) if error.message().starts_with('ö'));
    let task = archived_task(&client, world.queue(), handle.id()).await;
    let text = task.error.unwrap();
    assert!(
        text.starts_with("öö") && text.len() <= 8 * 1024,
        "{} bytes",
        text.len()
    );
    // The queue is none the worse for it.
    eventually("it is drained", SOON, async || {
        world.is_drained(world.queue()).await
    })
    .await;
    let waiting = client.inspect().retry(world.queue(), Page::first(1)).await;
    assert!(waiting.unwrap().tasks.is_empty());
}

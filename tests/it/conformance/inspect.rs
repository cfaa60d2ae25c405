//! What a person sees of tasks and does with them.

use std::collections::BTreeSet;

use streamfleet::{CancelOutcome, Client, InspectError, Page, ResultError, TaskHandle, TaskState};

use super::app::{Act, App, Later, Step, step, steps};
use super::world::{HOUR, SOON, World, archived, assert_shape, ended};
use crate::support::eventually;

/// One task in each state that a task can be in, on a server with one slot.
struct OfEach {
    retry: TaskHandle<Step>,
    archived: TaskHandle<Step>,
    parked: TaskHandle<Later>,
    active: TaskHandle<Step>,
    pending: TaskHandle<Step>,
    scheduled: TaskHandle<Step>,
}

impl OfEach {
    async fn make(world: &World, client: &Client, app: &App) -> Self {
        world.start(
            World::builder(client, app)
                .concurrency(1)
                .queue(world.queue(), 1),
        );
        let enqueue = async |label: &str, act| {
            let task = step(label, [act, Act::Succeed]);
            client.enqueue(task).queue(world.queue()).await.unwrap()
        };
        let retry = enqueue("retry", Act::RetryAfter(HOUR)).await;
        let archived = enqueue("archived", Act::Never).await;
        let parked = client.enqueue(Later(1)).queue(world.queue()).await.unwrap();
        let active = enqueue("active", Act::Hold).await;
        let pending = enqueue("pending", Act::Succeed).await;
        let task = step("scheduled", [Act::Succeed]);
        let scheduled = client
            .enqueue(task)
            .queue(world.queue())
            .delay(HOUR)
            .await
            .unwrap();
        eventually("the slot is taken", SOON, async || {
            !app.runs_of("active").is_empty()
        })
        .await;
        Self {
            retry,
            archived,
            parked,
            active,
            pending,
            scheduled,
        }
    }
}

pub(super) async fn counts_show_every_state(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let inspect = client.inspect();
    let none = inspect.counts("no-such-queue").await.unwrap();
    assert_eq!((none.pending, none.active, none.archived), (0, 0, 0));
    let of_each = OfEach::make(world, &client, &app).await;
    let counts = inspect.counts(world.queue()).await.unwrap();
    let recorded = [
        counts.scheduled,
        counts.retry,
        counts.archived,
        counts.parked,
    ];
    assert_eq!(recorded, [1, 1, 1, 1], "{counts:?}");
    assert_eq!(
        (counts.pending, counts.active, counts.completed),
        (1, 1, 0),
        "{counts:?}"
    );
    assert!(counts.paused.is_none() && counts.now.0 > 0);
    let known = inspect.queues().await.unwrap();
    assert!(
        known.iter().any(|queue| queue.as_str() == world.queue()),
        "{known:?}"
    );

    app.open();
    ended(&of_each.pending).await.unwrap();
    for id in [
        of_each.retry.id(),
        of_each.scheduled.id(),
        of_each.parked.id(),
    ] {
        inspect.delete(world.queue(), id).await.unwrap();
    }
    let counts = inspect.counts(world.queue()).await.unwrap();
    let left = counts.pending + counts.active + counts.scheduled + counts.retry + counts.parked;
    assert_eq!((left, counts.archived), (0, 1), "{counts:?}");
}

pub(super) async fn a_task_is_deleted_in_every_state(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let of_each = OfEach::make(world, &client, &app).await;
    let delete = async |id| client.inspect().delete(world.queue(), id).await;
    for handle in [&of_each.retry, &of_each.pending, &of_each.scheduled] {
        assert_eq!(delete(handle.id()).await.unwrap(), CancelOutcome::Ended);
        assert_shape!(ended(handle).await, Err(ResultError::Deleted));
    }
    assert_eq!(
        delete(of_each.parked.id()).await.unwrap(),
        CancelOutcome::Ended
    );
    assert_shape!(ended(&of_each.parked).await, Err(ResultError::Deleted));
    // It had its outcome; deleting takes it out of the archive.
    assert_shape!(ended(&of_each.archived).await, Err(ResultError::Failed(_)));
    assert_eq!(
        delete(of_each.archived.id()).await.unwrap(),
        CancelOutcome::Ended
    );
    assert!(archived(&client, world.queue()).await.is_empty());
    // One that runs is told to stop.
    assert_eq!(
        delete(of_each.active.id()).await.unwrap(),
        CancelOutcome::Requested
    );
    let outcome = ended(&of_each.active).await;
    assert_shape!(outcome, Err(ResultError::Cancelled | ResultError::Deleted));
    for handle in [&of_each.retry, &of_each.archived, &of_each.active] {
        assert_shape!(
            delete(handle.id()).await,
            Err(InspectError::NotFound { .. })
        );
    }
}

pub(super) async fn run_now_starts_what_waits_or_was_archived(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let of_each = OfEach::make(world, &client, &app).await;
    let inspect = client.inspect();
    let run_now = async |id| inspect.run_now(world.queue(), id).await;
    for (handle, state) in [
        (&of_each.active, TaskState::Active),
        (&of_each.pending, TaskState::Pending),
    ] {
        let refused = run_now(handle.id()).await;
        assert_shape!(&refused, Err(InspectError::WrongState { state: found, .. }) if *found == state);
    }
    assert_shape!(ended(&of_each.archived).await, Err(ResultError::Failed(_)));
    for handle in [&of_each.scheduled, &of_each.retry, &of_each.archived] {
        run_now(handle.id()).await.unwrap();
    }
    app.open();
    assert_eq!(ended(&of_each.scheduled).await.unwrap(), "scheduled");
    assert_eq!(ended(&of_each.retry).await.unwrap(), "retry");
    assert_eq!(app.runs_of("retry")[1].attempt, 2);
    eventually("the archived one ran again", SOON, async || {
        app.runs_of("archived").len() == 2 && world.is_drained(world.queue()).await
    })
    .await;
    assert!(archived(&client, world.queue()).await.is_empty());
    assert_shape!(
        run_now(of_each.scheduled.id()).await,
        Err(InspectError::NotFound { .. })
    );
    inspect
        .delete(world.queue(), of_each.parked.id())
        .await
        .unwrap();
}

pub(super) async fn the_archive_is_shown_page_by_page(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let tasks = (0..25).map(|number| step(number.to_string(), [Act::Never]));
    let handles = client
        .enqueue_all(tasks)
        .queue(world.queue())
        .await
        .unwrap();
    let mut expected = BTreeSet::new();
    for handle in handles {
        let handle = handle.unwrap();
        ended(&handle).await.unwrap_err();
        expected.insert(handle.id().to_string());
    }
    let (mut shown, mut sizes, mut times) = (BTreeSet::new(), Vec::new(), Vec::new());
    let mut next = Some(Page::first(10));
    while let Some(page) = next {
        let page = client
            .inspect()
            .archived(world.queue(), page)
            .await
            .unwrap();
        sizes.push(page.tasks.len());
        for task in page.tasks {
            assert_eq!(task.name, "step");
            times.push(task.ended_at.unwrap());
            assert!(
                shown.insert(task.id.to_string()),
                "{} is shown twice",
                task.id
            );
        }
        next = page.next;
    }
    assert_eq!(shown, expected);
    assert_eq!(
        sizes.iter().filter(|size| **size > 0).count(),
        3,
        "{sizes:?}"
    );
    assert!(times.is_sorted(), "the oldest first");
}

pub(super) async fn a_task_is_found_by_its_id_in_every_state(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let of_each = OfEach::make(world, &client, &app).await;
    let inspect = client.inspect();
    let all = [
        (of_each.retry.id(), TaskState::Retry),
        (of_each.archived.id(), TaskState::Archived),
        (of_each.parked.id(), TaskState::Parked),
        (of_each.active.id(), TaskState::Active),
        (of_each.pending.id(), TaskState::Pending),
        (of_each.scheduled.id(), TaskState::Scheduled),
    ];
    for (id, state) in all {
        let task = inspect.task(world.queue(), id).await.unwrap();
        assert_eq!((&task.id, task.state), (id, state));
        assert_eq!(task.queue.as_str(), world.queue());
        assert_eq!(task.client.as_ref(), Some(client.id()));
        assert_eq!(task.consumer.is_some(), state == TaskState::Active);
        let waits = matches!(state, TaskState::Retry | TaskState::Scheduled);
        assert_eq!(task.due.is_some(), waits, "{task:?}");
    }
    let retry = inspect
        .task(world.queue(), of_each.retry.id())
        .await
        .unwrap();
    assert_eq!((retry.attempt, retry.error.as_deref()), (1, Some("later")));
    // The lists show the same.
    let page = || Page::first(10);
    let lists = [
        (
            inspect.retry(world.queue(), page()).await,
            of_each.retry.id(),
        ),
        (
            inspect.active(world.queue(), page()).await,
            of_each.active.id(),
        ),
        (
            inspect.pending(world.queue(), page()).await,
            of_each.pending.id(),
        ),
        (
            inspect.scheduled(world.queue(), page()).await,
            of_each.scheduled.id(),
        ),
    ];
    for (list, id) in lists {
        let ids: Vec<_> = list
            .unwrap()
            .tasks
            .into_iter()
            .map(|task| task.id)
            .collect();
        assert!(ids == [id.clone()], "{ids:?}");
    }
    app.open();
    ended(&of_each.active).await.unwrap();
    let gone = inspect.task(world.queue(), of_each.active.id()).await;
    assert_shape!(gone, Err(InspectError::NotFound { .. }));
    for id in [
        of_each.retry.id(),
        of_each.parked.id(),
        of_each.scheduled.id(),
    ] {
        inspect.delete(world.queue(), id).await.unwrap();
    }
    ended(&of_each.pending).await.unwrap();
}

pub(super) async fn an_operator_archives_a_task(world: &World) {
    let client = world.client().await;
    let waiting = client
        .enqueue_all(steps(2))
        .queue(world.queue())
        .delay(HOUR)
        .await;
    let pending = client.enqueue_all(steps(2)).queue(world.queue()).await;
    let handles: Vec<_> = waiting
        .unwrap()
        .into_iter()
        .chain(pending.unwrap())
        .collect();
    for handle in handles {
        let handle = handle.unwrap();
        client
            .inspect()
            .archive(world.queue(), handle.id())
            .await
            .unwrap();
        assert_shape!(ended(&handle).await, Err(ResultError::Archived));
    }
    let tasks = archived(&client, world.queue()).await;
    assert_eq!(tasks.len(), 4);
    assert!(
        tasks
            .iter()
            .all(|task| task.reason.as_deref() == Some("operator"))
    );
}

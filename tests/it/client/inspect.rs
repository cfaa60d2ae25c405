//! A look at queues and tasks.

use std::time::Duration;

use streamfleet::testing::TestServer;
use streamfleet::{CancelOutcome, Client, InspectError, Page, ResultError, TaskId, TaskState};

use super::{LIMIT, clear, square};

#[tokio::test]
async fn tasks_are_counted_shown_and_moved() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let inspect = client.inspect();
    let pending = client
        .enqueue(square(1))
        .queue("a")
        .header("x", "y")
        .await
        .unwrap();
    let later = Duration::from_secs(600);
    let scheduled = client
        .enqueue(square(2))
        .queue("a")
        .delay(later)
        .await
        .unwrap();
    let counts = inspect.counts("a").await.unwrap();
    assert_eq!((counts.pending, counts.scheduled, counts.active), (1, 1, 0));
    assert_eq!(inspect.queues().await.unwrap(), [pending.queue().clone()]);

    let info = inspect.task("a", pending.id()).await.unwrap();
    assert_eq!(
        (info.state, info.name.as_str()),
        (TaskState::Pending, "square")
    );
    assert_eq!(info.entry, pending.entry_id());
    assert_eq!(info.headers["x"], "y");
    assert!(!info.payload.is_empty());
    let page = inspect.scheduled("a", Page::first(10)).await.unwrap();
    assert_eq!(page.tasks.len(), 1);
    assert_eq!(&page.tasks[0].id, scheduled.id());
    assert!(page.tasks[0].due.is_some());

    inspect.run_now("a", scheduled.id()).await.unwrap();
    let error = inspect.run_now("a", scheduled.id()).await.unwrap_err();
    assert!(
        matches!(
            error,
            InspectError::WrongState {
                state: TaskState::Pending,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(
        inspect
            .pending("a", Page::first(10))
            .await
            .unwrap()
            .tasks
            .len(),
        2
    );

    inspect.archive("a", pending.id()).await.unwrap();
    let error = pending.result_timeout(LIMIT).await.unwrap_err();
    assert!(matches!(error, ResultError::Archived), "{error:?}");
    let archived = inspect.archived("a", Page::first(1)).await.unwrap();
    assert_eq!(archived.tasks[0].id, *pending.id());
    assert_eq!(
        inspect.delete("a", pending.id()).await.unwrap(),
        CancelOutcome::Ended
    );
    assert_eq!(
        inspect.delete("a", scheduled.id()).await.unwrap(),
        CancelOutcome::Ended
    );
    let error = scheduled.result_timeout(LIMIT).await.unwrap_err();
    assert!(matches!(error, ResultError::Deleted), "{error:?}");
    let error = inspect.task("a", scheduled.id()).await.unwrap_err();
    assert!(matches!(error, InspectError::NotFound { .. }), "{error:?}");
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn pages_follow_each_other_to_the_end() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let later = Duration::from_secs(600);
    let ids = client
        .enqueue_all((0..25).map(square))
        .delay(later)
        .forget()
        .await
        .unwrap();
    let mut seen: Vec<TaskId> = Vec::new();
    let mut next = Some(Page::first(10));
    while let Some(page) = next {
        let shown = client.inspect().scheduled("default", page).await.unwrap();
        seen.extend(shown.tasks.into_iter().map(|task| task.id));
        next = shown.next;
    }
    seen.sort();
    assert_eq!(
        seen,
        ids.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    );
    for id in &seen {
        client.inspect().delete("default", id).await.unwrap();
    }
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_pause_says_who_and_why_and_ends_by_resume() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    client.enqueue(square(1)).forget().await.unwrap();
    let inspect = client.inspect();
    inspect.pause("default", "deploy").await.unwrap();
    let pause = inspect.counts("default").await.unwrap().paused.unwrap();
    assert_eq!(
        (pause.by.as_str(), pause.reason.as_str()),
        (client.id().as_str(), "deploy")
    );
    assert!(inspect.resume("default").await.unwrap());
    assert!(!inspect.resume("default").await.unwrap());
    assert_eq!(inspect.counts("default").await.unwrap().paused, None);
    clear(&server, "default").await;
    client.close().await;
    server.finish().await;
}

#[tokio::test]
async fn a_task_that_is_not_there_and_a_bad_name_are_told_apart() {
    let server = TestServer::start().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let id = TaskId::new("0190a8c4-5f9e-7c3a-9b1d-2e4f6a8c0b1d").unwrap();
    let inspect = client.inspect();
    assert!(matches!(
        inspect.task("a", &id).await,
        Err(InspectError::NotFound { .. })
    ));
    assert!(matches!(
        inspect.delete("a", &id).await,
        Err(InspectError::NotFound { .. })
    ));
    assert!(matches!(
        inspect.task("a b", &id).await,
        Err(InspectError::Name(_))
    ));
    assert_eq!(inspect.cancel("a", &id).await.unwrap(), CancelOutcome::Gone);
    client.close().await;
    server.finish().await;
}

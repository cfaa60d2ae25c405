//! Ending tasks from outside: cancel, delete, archive, expire.

use std::time::Duration;

use bytes::Bytes;

use super::{HOUR, Rig, at, notice, task, text};
use crate::envelope::Ending;
use crate::error::BackendKind;
use crate::id::{EntryId, TaskId};
use crate::state::TaskState;
use crate::store::{EndReply, Ended, NewTask, RunNow, Start};

const LEASE: Option<Duration> = Some(Duration::from_secs(15));

async fn one(rig: &Rig) -> (NewTask, EntryId) {
    let task = task();
    let entry = rig.enqueue(1, std::slice::from_ref(&task)).await[0].unwrap();
    (task, entry)
}

async fn cancel(rig: &Rig, task: &NewTask, entry: EntryId) -> EndReply {
    let bytes = notice(&task.id, Ending::Cancelled);
    rig.store
        .end_pending(
            &rig.q,
            entry,
            LEASE,
            Ended::Cancelled,
            &task.id,
            task.client.as_ref(),
            &bytes,
        )
        .await
        .unwrap()
}

async fn end_recorded(rig: &Rig, id: &TaskId, how: Ended<'_>, ending: Ending) -> EndReply {
    let bytes = notice(id, ending);
    rig.store
        .end_recorded(&rig.q, id, how, &bytes)
        .await
        .unwrap()
}

/// Nothing of any task is left, and the group holds nothing.
async fn assert_empty(rig: &Rig) {
    for kind in [
        "tasks",
        "scheduled",
        "retry",
        "archived",
        "unknown",
        "unknown:mail.send",
        "cancel",
        "crashes",
    ] {
        assert_eq!(rig.number(["EXISTS", &rig.key(kind)]).await, 0, "{kind}");
    }
    assert_eq!(rig.entries().await, 0);
    let summary = rig.raw(["XPENDING", &rig.key("s"), "servers"]).await;
    assert_eq!(summary.array().unwrap()[0].int().unwrap(), 0);
}

#[tokio::test]
async fn a_pending_task_is_removed_and_its_client_told() {
    let rig = Rig::start().await;
    let (task, entry) = one(&rig).await;
    assert_eq!(cancel(&rig, &task, entry).await, EndReply::Ended);
    assert_empty(&rig).await;
    assert_eq!(rig.notices().await, [(task.id.clone(), Ending::Cancelled)]);
    assert_eq!(rig.counter("cancelled").await, 1);
    assert_eq!(cancel(&rig, &task, entry).await, EndReply::Gone);
    assert_eq!(rig.notices().await.len(), 1);
    assert_eq!(rig.counter("cancelled").await, 1);
}

#[tokio::test]
async fn a_client_that_is_not_signed_in_gets_no_receiver() {
    let rig = Rig::start().await;
    let (task, entry) = one(&rig).await;
    rig.store.client_close(&rig.q, &rig.client).await.unwrap();
    assert_eq!(cancel(&rig, &task, entry).await, EndReply::Ended);
    assert_eq!(rig.number(["EXISTS", &rig.key("r:c1")]).await, 0);
}

#[tokio::test]
async fn a_released_task_and_one_of_a_dead_owner_are_removed() {
    let rig = Rig::start().await;
    for (number, owner, idle) in [(1, "~released", 0), (2, "dead", 15_000)] {
        let task = task();
        let entry = rig.enqueue(number, std::slice::from_ref(&task)).await[0].unwrap();
        rig.deliver("w", 1).await;
        rig.give(entry, owner, idle).await;
        rig.raw(["HSET", &rig.key("crashes"), &entry.to_string(), "1"])
            .await;
        assert_eq!(cancel(&rig, &task, entry).await, EndReply::Ended, "{owner}");
        assert_empty(&rig).await;
    }
}

#[tokio::test]
async fn a_running_task_is_flagged_and_its_holder_woken() {
    let rig = Rig::start().await;
    let (_subscriber, mut messages) = rig.wake_ups().await;
    let (task, entry) = one(&rig).await;
    rig.deliver("w", 1).await;
    rig.give(entry, "w", 14_000).await;
    assert_eq!(
        cancel(&rig, &task, entry).await,
        EndReply::Running { flagged: true }
    );
    assert_eq!(rig.entries().await, 1);
    let flag = rig
        .raw(["HGET", &rig.key("cancel"), &entry.to_string()])
        .await;
    assert!(flag.u64().unwrap() > 0);
    let (_, message) = tokio::time::timeout(Duration::from_secs(5), messages.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(message, format!("cancel {entry}"));
    assert!(rig.notices().await.is_empty());
    // The first request counts.
    cancel(&rig, &task, entry).await;
    assert_eq!(
        rig.raw(["HGET", &rig.key("cancel"), &entry.to_string()])
            .await,
        flag
    );
    // Without a limit every owner is alive.
    rig.give(entry, "w", 3_600_000).await;
    let answer = rig
        .store
        .end_pending(
            &rig.q,
            entry,
            None,
            Ended::Deleted,
            &task.id,
            None,
            &Bytes::new(),
        )
        .await
        .unwrap();
    assert_eq!(answer, EndReply::Running { flagged: true });
}

#[tokio::test]
async fn expiry_and_archiving_leave_a_running_task_alone() {
    let rig = Rig::start().await;
    let (task, entry) = one(&rig).await;
    rig.deliver("w", 1).await;
    let before = rig.snapshot().await;
    let archived = Ended::Archived {
        reason: "operator",
        error: "",
        name: &task.name,
        envelope: &task.envelope,
    };
    for how in [Ended::Expired, archived] {
        let answer = rig
            .store
            .end_pending(
                &rig.q,
                entry,
                LEASE,
                how,
                &task.id,
                task.client.as_ref(),
                &Bytes::new(),
            )
            .await
            .unwrap();
        assert_eq!(answer, EndReply::Running { flagged: false });
    }
    assert_eq!(rig.snapshot().await, before);
}

#[tokio::test]
async fn a_task_with_a_record_ends_in_every_waiting_state() {
    let rig = Rig::start().await;
    for state in ["scheduled", "retry", "parked", "pending"] {
        for (how, ending, word) in [
            (Ended::Cancelled, Ending::Cancelled, "cancelled"),
            (Ended::Deleted, Ending::Deleted, "deleted"),
            (Ended::Expired, Ending::Expired, "expired"),
        ] {
            let task = text("x");
            rig.recorded(&task, state).await;
            rig.raw(["DEL", &rig.key("r:c1"), &rig.key("n")]).await;
            assert_eq!(
                end_recorded(&rig, &task.id, how, ending.clone()).await,
                EndReply::Ended,
                "{state}"
            );
            assert_empty(&rig).await;
            assert_eq!(rig.notices().await, [(task.id.clone(), ending.clone())]);
            assert_eq!(rig.counter(word).await, 1);
            assert_eq!(
                end_recorded(&rig, &task.id, how, ending).await,
                EndReply::Gone
            );
        }
    }
}

#[tokio::test]
async fn a_task_with_a_record_that_runs_is_flagged_by_its_id() {
    let rig = Rig::start().await;
    let task = text("x");
    rig.recorded(&task, "pending").await;
    let entry = rig.deliver("w", 1).await[0];
    let answer = end_recorded(&rig, &task.id, Ended::Cancelled, Ending::Cancelled).await;
    assert_eq!(answer, EndReply::Running { flagged: true });
    assert_eq!(
        rig.number(["HEXISTS", &rig.key("cancel"), &entry.to_string()])
            .await,
        1
    );
    // Its owner has died since.
    rig.give(entry, "w", 60_000).await;
    assert_eq!(
        end_recorded(&rig, &task.id, Ended::Cancelled, Ending::Cancelled).await,
        EndReply::Ended
    );
    assert_empty(&rig).await;
    // Released, it can be removed as well.
    let task = text("x");
    rig.recorded(&task, "pending").await;
    let entry = rig.deliver("w", 1).await[0];
    rig.give(entry, "~released", 0).await;
    assert_eq!(
        end_recorded(&rig, &task.id, Ended::Cancelled, Ending::Cancelled).await,
        EndReply::Ended
    );
    assert_empty(&rig).await;
}

#[tokio::test]
async fn an_earlier_entry_of_a_task_finds_it_where_it_is_now() {
    let rig = Rig::start().await;
    let task = text("x");
    rig.recorded(&task, "retry").await;
    let old = EntryId {
        millis: 5,
        sequence: 0,
    };
    assert_eq!(cancel(&rig, &task, old).await, EndReply::Ended);
    assert_empty(&rig).await;
    assert_eq!(rig.notices().await, [(task.id, Ending::Cancelled)]);
}

#[tokio::test]
async fn an_archived_task_can_be_deleted_and_nothing_else() {
    let rig = Rig::start().await;
    let task = text("x");
    rig.recorded(&task, "archived").await;
    let before = rig.snapshot().await;
    assert_eq!(
        end_recorded(&rig, &task.id, Ended::Cancelled, Ending::Cancelled).await,
        EndReply::Gone
    );
    assert_eq!(rig.snapshot().await, before);
    assert_eq!(
        end_recorded(&rig, &task.id, Ended::Deleted, Ending::Deleted).await,
        EndReply::Ended
    );
    assert_empty(&rig).await;
    // Its client had its outcome when it was archived.
    assert!(rig.notices().await.is_empty());
}

#[tokio::test]
async fn archiving_keeps_the_task_and_tells_the_client() {
    let rig = Rig::start().await;
    let (plain, entry) = one(&rig).await;
    let how = Ended::Archived {
        reason: "operator",
        error: "by hand",
        name: &plain.name,
        envelope: &plain.envelope,
    };
    let told = notice(&plain.id, Ending::Archived);
    let answer = rig
        .store
        .end_pending(
            &rig.q,
            entry,
            LEASE,
            how,
            &plain.id,
            plain.client.as_ref(),
            &told,
        )
        .await
        .unwrap();
    assert_eq!(answer, EndReply::Ended);
    let parked = text("x");
    rig.recorded(&parked, "parked").await;
    let reply = end_recorded(&rig, &parked.id, how, Ending::NoHandler("mail.send".into())).await;
    assert_eq!(reply, EndReply::Ended);

    for (task, envelope) in [(&plain, &plain.envelope), (&parked, &parked.envelope)] {
        let record = rig.store.record(&rig.q, &task.id).await.unwrap().unwrap();
        assert_eq!(
            (record.state, &record.envelope),
            (TaskState::Archived, envelope)
        );
        assert_eq!(
            (record.reason.as_deref(), record.error.as_deref()),
            (Some("operator"), Some("by hand"))
        );
        assert_eq!(
            (record.name.as_str(), record.entry, record.client),
            ("mail.send", None, None)
        );
        assert_eq!(record.parked_since, None);
    }
    assert_eq!(rig.number(["ZCARD", &rig.key("archived")]).await, 2);
    assert_eq!(
        rig.number(["EXISTS", &rig.key("unknown"), &rig.key("unknown:mail.send")])
            .await,
        0
    );
    assert_eq!(rig.entries().await, 0);
    assert_eq!(rig.notices().await.len(), 2);
    assert_eq!(rig.counter("archived").await, 2);
}

#[tokio::test]
async fn what_is_no_record_can_be_deleted() {
    let rig = Rig::start().await;
    rig.raw(["HSET", &rig.key("tasks"), "odd", "no record"])
        .await;
    rig.raw(["ZADD", &rig.key("archived"), "1", "odd"]).await;
    let id = TaskId::new("odd").unwrap();
    assert_eq!(
        end_recorded(&rig, &id, Ended::Cancelled, Ending::Cancelled).await,
        EndReply::Gone
    );
    assert_eq!(
        end_recorded(&rig, &id, Ended::Deleted, Ending::Deleted).await,
        EndReply::Ended
    );
    assert_empty(&rig).await;
}

#[tokio::test]
async fn ending_a_task_touches_nothing_when_a_key_has_another_type() {
    let rig = Rig::start().await;
    let kinds = [
        "clients",
        "cancel",
        "crashes",
        "archived",
        "scheduled",
        "retry",
        "unknown",
        "n",
        "r:c1",
    ];
    for kind in kinds {
        rig.raw(["FLUSHALL"]).await;
        rig.store.ensure(&rig.q).await.unwrap();
        let (task, entry) = one(&rig).await;
        rig.raw(["SET", &rig.key(kind), "text"]).await;
        let before = rig.snapshot().await;
        let bytes = notice(&task.id, Ending::Cancelled);
        let error = rig
            .store
            .end_pending(
                &rig.q,
                entry,
                LEASE,
                Ended::Cancelled,
                &task.id,
                task.client.as_ref(),
                &bytes,
            )
            .await
            .unwrap_err();
        assert_eq!(error.kind(), BackendKind::WrongType, "{kind}: {error}");
        assert_eq!(rig.snapshot().await, before, "{kind}");
    }
}

#[tokio::test]
async fn a_waiting_or_archived_task_runs_now() {
    let rig = Rig::start().await;
    for state in ["scheduled", "retry", "archived", "parked"] {
        let task = text(state);
        rig.recorded(&task, state).await;
        let RunNow::Moved(entry) = rig.store.run_now(&rig.q, &task.id).await.unwrap() else {
            panic!("{state} did not move");
        };
        let stream = rig.stream().await;
        let (last, field, envelope) = stream.last().unwrap();
        assert_eq!(
            (*last, &field[..], &envelope[..]),
            (entry, &b"r"[..], state.as_bytes())
        );
        let record = rig.store.record(&rig.q, &task.id).await.unwrap().unwrap();
        assert_eq!(
            (record.state, record.entry),
            (TaskState::Pending, Some(entry))
        );
        assert_eq!((record.due, record.parked_since), (None, None));
        // What was suspected of a task stays, except when a person took it out of the archive.
        let crashes = rig
            .raw(["HGET", &rig.key("crashes"), &entry.to_string()])
            .await;
        assert_eq!(
            crashes == crate::store::reply::Reply::Nil,
            state == "archived"
        );
        let again = rig.store.run_now(&rig.q, &task.id).await.unwrap();
        assert_eq!(again, RunNow::WrongState(TaskState::Pending));
    }
    let left = [
        "scheduled",
        "retry",
        "archived",
        "unknown",
        "unknown:mail.send",
    ]
    .map(|kind| rig.key(kind));
    for key in &left {
        assert_eq!(rig.number(["EXISTS", key]).await, 0, "{key}");
    }
    assert_eq!(rig.entries().await, 4);
}

#[tokio::test]
async fn what_is_not_there_cannot_run_now() {
    let rig = Rig::start().await;
    let (task, _) = one(&rig).await;
    // A plain task has no record; it is pending or running already.
    assert_eq!(
        rig.store.run_now(&rig.q, &task.id).await.unwrap(),
        RunNow::Gone
    );
    assert_eq!(rig.entries().await, 1);
}

#[tokio::test]
async fn a_task_put_forward_is_not_promoted_again() {
    let rig = Rig::start().await;
    let task = at(Start::After(HOUR), "x");
    rig.enqueue(1, std::slice::from_ref(&task)).await;
    rig.store.run_now(&rig.q, &task.id).await.unwrap();
    assert_eq!(rig.store.promote(&rig.q).await.unwrap().next_due, None);
    assert_eq!(rig.entries().await, 1);
}

//! Look up, pages, search and counts.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{HOUR, Rig, at, notice, task, text};
use crate::envelope::Ending;
use crate::error::BackendKind;
use crate::id::{ConsumerId, EntryId, Millis, QueueName, TaskId};
use crate::state::TaskState;
use crate::store::{Ended, Found, Listed, NewTask, PageCursor, PageOf, Start, Wanted};

fn wanted(task: &NewTask, entry: Option<EntryId>) -> Wanted {
    Wanted {
        id: task.id.clone(),
        entry,
        deadline: None,
    }
}

async fn look(rig: &Rig, items: &[Wanted]) -> Vec<Found> {
    rig.store
        .look_up(&rig.q, Some(&rig.client), items)
        .await
        .unwrap()
        .found
}

fn state(found: &Found) -> Option<TaskState> {
    match found {
        Found::Gone => None,
        Found::At { state, .. } => Some(*state),
    }
}

#[tokio::test]
async fn a_plain_task_is_found_by_its_entry_in_each_state() {
    let rig = Rig::start().await;
    let task = text("x");
    let entry = rig.enqueue(1, std::slice::from_ref(&task)).await[0].unwrap();
    let wanted = [wanted(&task, Some(entry))];
    let at = |state, consumer: Option<&str>, count| Found::At {
        state,
        entry: Some(entry),
        consumer: consumer.map(|name| ConsumerId::new(name).unwrap()),
        count,
        due: None,
        error: None,
        notice: None,
    };
    assert_eq!(look(&rig, &wanted).await, [at(TaskState::Pending, None, 0)]);
    rig.deliver("w", 1).await;
    assert_eq!(
        look(&rig, &wanted).await,
        [at(TaskState::Active, Some("w"), 1)]
    );
    rig.give(entry, "~released", 0).await;
    assert_eq!(look(&rig, &wanted).await, [at(TaskState::Pending, None, 1)]);
    rig.raw(["XACK", &rig.key("s"), "servers", &entry.to_string()])
        .await;
    rig.raw(["XDEL", &rig.key("s"), &entry.to_string()]).await;
    assert_eq!(look(&rig, &wanted).await, [Found::Gone]);
}

#[tokio::test]
async fn a_task_with_a_record_is_found_by_its_id_in_each_state() {
    let rig = Rig::start().await;
    for (word, expected) in [
        ("scheduled", TaskState::Scheduled),
        ("retry", TaskState::Retry),
        ("archived", TaskState::Archived),
        ("parked", TaskState::Parked),
        ("pending", TaskState::Pending),
    ] {
        let task = text("x");
        rig.recorded(&task, word).await;
        // The entry a handle remembers is one of before.
        let old = Some(EntryId {
            millis: 1,
            sequence: 1,
        });
        let found = look(&rig, &[wanted(&task, old), wanted(&task, None)]).await;
        assert_eq!(found[0], found[1]);
        let Found::At {
            state,
            entry,
            due,
            error,
            ..
        } = &found[0]
        else {
            panic!("{word}")
        };
        assert_eq!((*state, entry.is_some()), (expected, word == "pending"));
        if word == "archived" {
            assert_eq!(error.clone(), Some(("failed".into(), "oh".into())));
        }
        assert_eq!(*due, (word != "pending").then_some(Millis(1)));
    }
    let task = text("x");
    rig.recorded(&task, "pending").await;
    rig.deliver("w", 10).await;
    assert_eq!(
        state(&look(&rig, &[wanted(&task, None)]).await[0]),
        Some(TaskState::Active)
    );
}

#[tokio::test]
async fn a_task_whose_stream_was_lost_is_gone() {
    let rig = Rig::start().await;
    let (plain, recorded) = (text("x"), text("y"));
    let entry = rig.enqueue(1, std::slice::from_ref(&plain)).await[0];
    rig.recorded(&recorded, "pending").await;
    rig.raw(["DEL", &rig.key("s")]).await;
    let found = look(&rig, &[wanted(&plain, entry), wanted(&recorded, None)]).await;
    assert_eq!(found, [Found::Gone, Found::Gone]);
    rig.raw(["FLUSHALL"]).await;
    let looked = rig
        .store
        .look_up(&rig.q, Some(&rig.client), &[wanted(&plain, entry)])
        .await
        .unwrap();
    assert_eq!(
        (looked.found, looked.epoch.as_str()),
        (vec![Found::Gone], "")
    );
    assert_eq!(looked.receiver_last, EntryId::default());
}

#[tokio::test]
async fn the_last_id_of_the_receiver_is_that_of_the_same_moment_also_when_it_was_trimmed() {
    let rig = Rig::start().await;
    let task = task();
    let entry = rig.enqueue(1, std::slice::from_ref(&task)).await[0].unwrap();
    let looked = rig
        .store
        .look_up(&rig.q, Some(&rig.client), &[])
        .await
        .unwrap();
    assert_eq!(
        (looked.receiver_last, looked.epoch),
        (EntryId::default(), rig.epoch.clone())
    );
    let bytes = notice(&task.id, Ending::Cancelled);
    rig.store
        .end_pending(
            &rig.q,
            entry,
            None,
            Ended::Cancelled,
            &task.id,
            Some(&rig.client),
            &bytes,
        )
        .await
        .unwrap();
    let written = rig.raw(["XRANGE", &rig.key("r:c1"), "-", "+"]).await;
    let written = written.into_entries()[0].id;
    rig.raw(["XTRIM", &rig.key("r:c1"), "MAXLEN", "0"]).await;
    let looked = rig
        .store
        .look_up(&rig.q, Some(&rig.client), &[])
        .await
        .unwrap();
    assert_eq!(looked.receiver_last, written);
    let looked = rig.store.look_up(&rig.q, None, &[]).await.unwrap();
    assert_eq!(looked.receiver_last, EntryId::default());
}

#[tokio::test]
async fn a_task_found_waiting_behind_its_deadline_ends_as_expired() {
    let rig = Rig::start().await;
    let plain = text("x");
    let entry = rig.enqueue(1, std::slice::from_ref(&plain)).await[0];
    let mut items = vec![Wanted {
        deadline: Some(Millis(1)),
        ..wanted(&plain, entry)
    }];
    for word in ["scheduled", "retry", "parked", "pending"] {
        let task = text("x");
        rig.recorded(&task, word).await;
        items.push(Wanted {
            deadline: Some(Millis(1)),
            ..wanted(&task, None)
        });
    }
    // Twice in one look, it still ends once.
    items.push(items[1].clone());
    let looked = rig
        .store
        .look_up(&rig.q, Some(&rig.client), &items)
        .await
        .unwrap();
    assert_eq!(looked.found, vec![Found::Gone; 6]);
    let told: BTreeSet<TaskId> = rig
        .notices()
        .await
        .into_iter()
        .map(|(id, ending)| {
            assert_eq!(ending, Ending::Expired);
            id
        })
        .collect();
    assert_eq!(told, items.iter().map(|item| item.id.clone()).collect());
    assert_eq!(rig.notices().await.len(), 5);
    assert_eq!(rig.counter("expired").await, 5);
    // The snapshot is of after the end: whoever read up to there has the notices.
    let last = rig
        .raw(["XREVRANGE", &rig.key("r:c1"), "+", "-", "COUNT", "1"])
        .await;
    assert_eq!(looked.receiver_last, last.into_entries()[0].id);
    assert_eq!(rig.entries().await, 0);
    for kind in [
        "tasks",
        "scheduled",
        "retry",
        "unknown",
        "unknown:mail.send",
    ] {
        assert_eq!(rig.number(["EXISTS", &rig.key(kind)]).await, 0, "{kind}");
    }
}

#[tokio::test]
async fn a_look_ends_nothing_that_runs_is_not_due_or_whose_client_is_not_known() {
    let rig = Rig::start().await;
    let tasks = [text("runs"), text("early"), text("other")];
    let entries = rig.enqueue(1, &tasks).await;
    rig.deliver("w", 1).await;
    let mut items: Vec<_> = tasks
        .iter()
        .zip(&entries)
        .map(|(task, entry)| Wanted {
            deadline: Some(Millis(1)),
            ..wanted(task, *entry)
        })
        .collect();
    items[1].deadline = Some(rig.now().await.after(HOUR));
    let found = look(&rig, &items[..2]).await;
    assert_eq!(
        [state(&found[0]), state(&found[1])],
        [Some(TaskState::Active), Some(TaskState::Pending)]
    );
    let looked = rig.store.look_up(&rig.q, None, &items[2..]).await.unwrap();
    assert_eq!(state(&looked.found[0]), Some(TaskState::Pending));
    assert_eq!(rig.entries().await, 3);
}

#[tokio::test]
async fn more_than_a_hundred_at_once_are_refused() {
    let rig = Rig::start().await;
    let items = vec![wanted(&text("x"), None); 101];
    let error = rig.store.look_up(&rig.q, None, &items).await.unwrap_err();
    assert_eq!(error.kind(), BackendKind::Fatal);
}

#[tokio::test]
async fn counts_are_exact_in_every_state() {
    let rig = Rig::start().await;
    assert_eq!(
        rig.store
            .counts(&QueueName::new("none").unwrap())
            .await
            .unwrap()
            .pending,
        0
    );
    rig.enqueue(1, &vec![text("x"); 10]).await;
    let held = rig.deliver("w", 4).await;
    rig.deliver("v", 2).await;
    rig.give(held[0], "~released", 0).await;
    let later = (0..3)
        .map(|_| at(Start::After(HOUR), "x"))
        .collect::<Vec<_>>();
    rig.enqueue(2, &later).await;
    for state in ["retry", "retry", "archived", "parked", "parked", "parked"] {
        rig.recorded(&text("x"), state).await;
    }
    let counts = rig.store.counts(&rig.q).await.unwrap();
    assert_eq!((counts.pending, counts.active, counts.released), (5, 5, 1));
    assert_eq!((counts.scheduled, counts.retry, counts.archived), (3, 2, 1));
    assert_eq!(
        (counts.parked, counts.completed, counts.paused),
        (3, 0, None)
    );
    rig.store.pause(&rig.q, "ann", "", None).await.unwrap();
    let counts = rig.store.counts(&rig.q).await.unwrap();
    assert_eq!((counts.pending, counts.active), (5, 5));
}

async fn all(rig: &Rig, of: &PageOf, n: usize) -> Vec<Vec<Listed>> {
    let mut pages = Vec::new();
    let mut next = Some(PageCursor::default());
    while let Some(cursor) = next {
        let page = rig.store.page(&rig.q, of, &cursor, n).await.unwrap();
        assert!(page.tasks.len() <= n);
        next = page.next;
        pages.push(page.tasks);
        assert!(pages.len() < 100, "it never ends");
    }
    pages
}

#[tokio::test]
async fn pages_of_the_stream_show_each_entry_once_under_its_state() {
    let rig = Rig::start().await;
    let mut all_entries = BTreeSet::new();
    for number in 1..=25 {
        all_entries.extend(
            rig.enqueue(number, &[text("x")])
                .await
                .into_iter()
                .flatten(),
        );
    }
    let held = rig.deliver("w", 12).await;
    let released = [held[1], held[2], held[9]];
    for entry in released {
        rig.give(entry, "~released", 0).await;
    }
    for paused in [false, true] {
        if paused {
            rig.store.pause(&rig.q, "ann", "", None).await.unwrap();
        }
        for n in [1, 2, 7, 100] {
            let mut shown = Vec::new();
            for (of, expected) in [(PageOf::Pending, 16), (PageOf::Active, 9)] {
                let listed: Vec<_> = all(&rig, &of, n).await.into_iter().flatten().collect();
                assert_eq!(listed.len(), expected, "{of:?} by {n}, paused: {paused}");
                for task in listed {
                    let Listed::Entry(entry) = task else {
                        panic!("{task:?}")
                    };
                    assert_eq!(entry.consumer.is_some(), of == PageOf::Active);
                    assert_eq!(&entry.envelope[..], b"x");
                    shown.push(entry.entry);
                }
            }
            assert_eq!(shown.iter().copied().collect::<BTreeSet<_>>(), all_entries);
        }
    }
}

#[tokio::test]
async fn pages_of_a_set_go_on_where_they_stopped_also_between_equal_scores() {
    let rig = Rig::start().await;
    let mut ids = BTreeSet::new();
    for _ in 0..9 {
        let task = text("x");
        rig.recorded(&task, "archived").await;
        ids.insert(task.id.to_string());
    }
    for n in [1, 4, 100] {
        let listed: Vec<_> = all(&rig, &PageOf::Archived, n)
            .await
            .into_iter()
            .flatten()
            .collect();
        let shown: Vec<_> = listed
            .iter()
            .map(|task| match task {
                Listed::Recorded {
                    id,
                    score: Millis(1),
                    ..
                } => id.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(shown, ids.iter().cloned().collect::<Vec<_>>());
        assert_eq!(
            listed[0].record().unwrap().unwrap().state,
            TaskState::Archived
        );
    }
    // The one the cursor stands on leaves meanwhile.
    let page = rig
        .store
        .page(&rig.q, &PageOf::Archived, &PageCursor::default(), 4)
        .await
        .unwrap();
    let Listed::Recorded { id, .. } = &page.tasks[3] else {
        panic!()
    };
    rig.raw(["ZREM", &rig.key("archived"), id]).await;
    let rest = rig
        .store
        .page(&rig.q, &PageOf::Archived, &page.next.unwrap(), 100)
        .await
        .unwrap();
    assert_eq!(rest.tasks.len(), 5);
    let parked = text("x");
    rig.recorded(&parked, "parked").await;
    assert_eq!(
        all(&rig, &PageOf::Parked("mail.send".into()), 5).await[0].len(),
        1
    );
}

#[tokio::test]
async fn a_plain_task_is_found_by_its_id_alone() {
    let rig = Rig::start().await;
    let tasks: Vec<_> = (0..350).map(|_| task()).collect();
    let mut entries = Vec::new();
    for (number, batch) in tasks.chunks(100).enumerate() {
        entries.extend(rig.enqueue(number as u64 + 1, batch).await);
    }
    rig.deliver("w", 5).await;
    for (place, expected) in [
        (0, TaskState::Active),
        (137, TaskState::Pending),
        (349, TaskState::Pending),
    ] {
        let found = rig
            .store
            .scan_for(&rig.q, &tasks[place].id)
            .await
            .unwrap()
            .unwrap();
        assert_eq!((Some(found.entry), found.state), (entries[place], expected));
        assert_eq!(
            (found.envelope, found.has_record),
            (tasks[place].envelope.clone(), false)
        );
        assert_eq!(found.consumer.is_some(), expected == TaskState::Active);
    }
    let unknown = TaskId::from_uuid(Uuid::now_v7());
    assert_eq!(rig.store.scan_for(&rig.q, &unknown).await.unwrap(), None);
    assert_eq!(
        rig.store
            .scan_for(&rig.q, &TaskId::new("by-name").unwrap())
            .await
            .unwrap(),
        None
    );
    assert_eq!(rig.store.record(&rig.q, &tasks[0].id).await.unwrap(), None);
}

#[tokio::test]
async fn bytes_of_an_id_in_another_place_are_not_taken_for_the_task() {
    let rig = Rig::start().await;
    let wanted = task();
    // A task whose name holds the id as text.
    let decoy = text(&wanted.id.to_string());
    rig.enqueue(1, &[decoy, wanted.clone()]).await;
    let found = rig
        .store
        .scan_for(&rig.q, &wanted.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.envelope, wanted.envelope);
}

#[tokio::test]
async fn queues_are_listed() {
    let rig = Rig::start().await;
    rig.store
        .ensure(&QueueName::new("a").unwrap())
        .await
        .unwrap();
    rig.raw(["SADD", "p:queues", "not a name"]).await;
    let names: Vec<_> = rig
        .store
        .queues()
        .await
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["a", "q"]);
}

//! Enqueue: batches, their numbers, repeats.

use std::time::Duration;

use bytes::Bytes;

use super::{HOUR, Rig, at, text};
use crate::error::BackendKind;
use crate::id::{ClientId, EntryId, Millis};
use crate::state::TaskState;
use crate::store::{Batch, Enqueued, NewTask, Start};

fn three() -> Vec<NewTask> {
    vec![text("a"), text("b"), text("c")]
}

#[tokio::test]
async fn a_batch_is_in_the_stream_in_order_and_its_entries_are_counted_from_the_first() {
    let rig = Rig::start().await;
    let entries = rig.enqueue(1, &three()).await;
    let stream = rig.stream().await;
    assert_eq!(
        stream.iter().map(|(id, ..)| Some(*id)).collect::<Vec<_>>(),
        entries
    );
    let values: Vec<_> = stream
        .iter()
        .map(|(_, field, value)| (&field[..], &value[..]))
        .collect();
    assert_eq!(values, [(&b"t"[..], &b"a"[..]), (b"t", b"b"), (b"t", b"c")]);
    assert_eq!(rig.counter("enqueued").await, 3);
    // No key for each task.
    assert!(rig.is_nil(["HGET", &rig.key("tasks"), "x"]).await);
    assert_eq!(
        rig.number(["EXISTS", &rig.key("tasks"), &rig.key("scheduled")])
            .await,
        0
    );
}

#[tokio::test]
async fn a_batch_whose_reply_was_lost_is_written_once_and_answered_the_same() {
    let rig = Rig::start().await;
    let mut tasks = three();
    tasks.insert(1, at(Start::After(HOUR), "later"));
    let first = rig
        .store
        .enqueue(&rig.q, &rig.batch(1, &tasks))
        .await
        .unwrap();
    let before = rig.snapshot().await;
    let repeat = Batch {
        repeat: true,
        ..rig.batch(1, &tasks)
    };
    let second = rig.store.enqueue(&rig.q, &repeat).await.unwrap();
    let read = |stored| match stored {
        Enqueued::Stored {
            first_entry,
            scheduled,
            epoch,
            ..
        } => (first_entry, scheduled, epoch),
        other => panic!("{other:?}"),
    };
    assert_eq!(read(first.clone()), read(second));
    assert_eq!(read(first).1, [1]);
    assert_eq!(rig.snapshot().await, before);
    assert_eq!(rig.entries().await, 3);
}

#[tokio::test]
async fn a_repeat_of_a_batch_that_never_arrived_is_written() {
    let rig = Rig::start().await;
    rig.enqueue(1, &three()).await;
    let tasks = three();
    let repeat = Batch {
        repeat: true,
        ..rig.batch(2, &tasks)
    };
    let stored = rig.store.enqueue(&rig.q, &repeat).await.unwrap();
    assert!(matches!(stored, Enqueued::Stored { .. }));
    assert_eq!(rig.entries().await, 6);
}

#[tokio::test]
async fn numbers_may_have_gaps() {
    let rig = Rig::start().await;
    rig.enqueue(3, &three()).await;
    rig.enqueue(70, &three()).await;
    assert_eq!(rig.entries().await, 6);
}

#[tokio::test]
async fn a_repeat_after_data_was_lost_is_unknown_and_writes_nothing() {
    let rig = Rig::start().await;
    let tasks = three();
    rig.enqueue(1, &tasks).await;
    rig.raw(["FLUSHALL"]).await;
    // Also before anybody made the queue again, when there is no epoch at all.
    let repeat = Batch {
        repeat: true,
        ..rig.batch(1, &tasks)
    };
    let answer = rig.store.enqueue(&rig.q, &repeat).await.unwrap();
    assert_eq!(
        answer,
        Enqueued::Unknown {
            epoch: String::new()
        }
    );
    let epoch = rig.store.ensure(&rig.q).await.unwrap().epoch;
    assert_ne!(epoch, rig.epoch);
    let answer = rig.store.enqueue(&rig.q, &repeat).await.unwrap();
    assert_eq!(
        answer,
        Enqueued::Unknown {
            epoch: epoch.clone()
        }
    );
    assert_eq!(rig.entries().await, 0);
    // A first sending is written whatever the epoch, and its repeat is recognized in the new one.
    rig.enqueue(2, &tasks).await;
    let repeat = Batch {
        repeat: true,
        ..rig.batch(2, &tasks)
    };
    let answer = rig.store.enqueue(&rig.q, &repeat).await.unwrap();
    assert!(matches!(answer, Enqueued::Stored { epoch: now, .. } if now == epoch));
    assert_eq!(rig.entries().await, 3);
}

#[tokio::test]
async fn an_older_repeat_is_unknown_and_an_older_first_sending_is_a_clash() {
    let rig = Rig::start().await;
    let old = three();
    rig.enqueue(5, &old).await;
    rig.enqueue(6, &three()).await;
    let before = rig.snapshot().await;
    let repeat = Batch {
        repeat: true,
        ..rig.batch(5, &old)
    };
    let answer = rig.store.enqueue(&rig.q, &repeat).await.unwrap();
    assert_eq!(
        answer,
        Enqueued::Unknown {
            epoch: rig.epoch.clone()
        }
    );
    // A packet that lay around on an old connection, or another client with our id.
    let answer = rig
        .store
        .enqueue(&rig.q, &rig.batch(5, &old))
        .await
        .unwrap();
    assert_eq!(answer, Enqueued::ClientIdClash);
    assert_eq!(rig.snapshot().await, before);
}

#[tokio::test]
async fn the_same_number_with_other_tasks_is_a_clash() {
    let rig = Rig::start().await;
    rig.enqueue(1, &three()).await;
    let before = rig.snapshot().await;
    let others = three();
    for repeat in [false, true] {
        let batch = Batch {
            repeat,
            ..rig.batch(1, &others)
        };
        let answer = rig.store.enqueue(&rig.q, &batch).await.unwrap();
        assert_eq!(answer, Enqueued::ClientIdClash);
    }
    assert_eq!(rig.snapshot().await, before);
}

#[tokio::test]
async fn producers_do_not_know_each_other() {
    let rig = Rig::start().await;
    let tasks = three();
    rig.enqueue(9, &tasks).await;
    let other = ClientId::new("c2").unwrap();
    let batch = Batch {
        client: &other,
        ..rig.batch(1, &tasks)
    };
    let answer = rig.store.enqueue(&rig.q, &batch).await.unwrap();
    assert!(matches!(answer, Enqueued::Stored { .. }));
    assert_eq!(rig.entries().await, 6);
}

#[tokio::test]
async fn a_full_redis_refuses_the_whole_batch_and_nothing_is_written() {
    let rig = Rig::start().await;
    rig.enqueue(1, &three()).await;
    let before = rig.snapshot().await;
    rig.raw(["CONFIG", "SET", "maxmemory", "1"]).await;
    let mut tasks = three();
    tasks.push(at(Start::After(HOUR), "later"));
    let error = rig
        .store
        .enqueue(&rig.q, &rig.batch(2, &tasks))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), BackendKind::NotExecuted);
    assert!(error.to_string().starts_with("OOM"), "{error}");
    rig.raw(["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(rig.snapshot().await, before);
    // The same number is free still.
    rig.enqueue(2, &tasks).await;
    assert_eq!(rig.entries().await, 6);
}

#[tokio::test]
async fn a_key_of_another_type_is_named_and_leaves_everything_untouched() {
    let rig = Rig::start().await;
    let hour = rig.now().await.0 / 3_600_000;
    let mut tasks = three();
    tasks.push(at(Start::After(HOUR), "later"));
    let hours = [hour, hour + 1].map(|hour| format!("n:{hour}"));
    let days = [hour / 24, (hour + 1) / 24].map(|day| format!("n:d:{day}"));
    let kinds = [
        "s",
        "producers",
        "clients",
        "cfg",
        "tasks",
        "scheduled",
        "retry",
        "n",
    ]
    .map(|kind| vec![kind.to_owned()])
    .into_iter()
    .chain([hours.to_vec(), days.to_vec()]);
    for kinds in kinds {
        rig.raw(["FLUSHALL"]).await;
        rig.store.ensure(&rig.q).await.unwrap();
        for kind in &kinds {
            rig.raw(["SET", &rig.key(kind), "text"]).await;
        }
        let before = rig.snapshot().await;
        let error = rig
            .store
            .enqueue(&rig.q, &rig.batch(1, &tasks))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), BackendKind::WrongType, "{kinds:?}: {error}");
        assert!(
            kinds
                .iter()
                .any(|kind| error.to_string().contains(&rig.key(kind))),
            "{error}"
        );
        assert_eq!(rig.snapshot().await, before, "{kinds:?}");
    }
}

#[tokio::test]
async fn a_task_for_later_has_a_record_and_one_whose_time_has_come_is_plain() {
    let rig = Rig::start().await;
    let now = rig.now().await;
    let tasks = [
        at(Start::At(Millis(now.0 - 1)), "past"),
        at(Start::After(HOUR), "hour"),
        at(Start::After(Duration::ZERO), "zero"),
        at(Start::At(Millis(now.0 + 100_000)), "soon"),
    ];
    let entries = rig.enqueue(1, &tasks).await;
    assert_eq!(
        entries.iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, false, true, false]
    );
    let values: Vec<_> = rig
        .stream()
        .await
        .into_iter()
        .map(|(_, _, value)| value)
        .collect();
    assert_eq!(values, ["past", "zero"]);

    let record = rig
        .store
        .record(&rig.q, &tasks[1].id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (record.state, &record.envelope[..]),
        (TaskState::Scheduled, &b"hour"[..])
    );
    assert_eq!(
        (record.name.as_str(), record.client),
        ("mail.send", Some(rig.client.clone()))
    );
    let due = record.due.unwrap();
    assert!(due >= now.after(HOUR) && due <= rig.now().await.after(HOUR));
    let ids = rig.raw(["ZRANGE", &rig.key("scheduled"), "0", "-1"]).await;
    let ids: Vec<_> = ids
        .array()
        .unwrap()
        .iter()
        .map(|id| id.text().unwrap().to_owned())
        .collect();
    assert_eq!(ids, [tasks[3].id.to_string(), tasks[1].id.to_string()]);
}

#[tokio::test]
async fn only_a_new_earliest_due_time_wakes_the_promoters() {
    let rig = Rig::start().await;
    let (_subscriber, mut messages) = rig.wake_ups().await;
    let base = rig.now().await.0 + 1_000_000;
    for (number, due) in [(1, base + 50), (2, base + 90), (3, base + 10)] {
        rig.enqueue(number, &[at(Start::At(Millis(due)), "x")])
            .await;
    }
    let mut heard = Vec::new();
    while heard.len() < 2 {
        let next = tokio::time::timeout(Duration::from_secs(5), messages.recv())
            .await
            .unwrap();
        heard.push(String::from_utf8(next.unwrap().1.to_vec()).unwrap());
    }
    assert_eq!(
        heard,
        [format!("due {}", base + 50), format!("due {}", base + 10)]
    );
}

#[tokio::test]
async fn only_a_batch_that_wants_outcomes_signs_its_client_in() {
    let rig = Rig::start().await;
    let tasks = three();
    let batch = Batch {
        tracked: false,
        ..rig.batch(1, &tasks)
    };
    rig.store.enqueue(&rig.q, &batch).await.unwrap();
    assert!(rig.is_nil(["ZSCORE", &rig.key("clients"), "c1"]).await);
    rig.enqueue(2, &three()).await;
    assert!(!rig.is_nil(["ZSCORE", &rig.key("clients"), "c1"]).await);
}

#[tokio::test]
async fn a_batch_beyond_the_bounds_is_refused_before_it_is_sent() {
    let rig = Rig::start().await;
    let large = NewTask {
        envelope: Bytes::from(vec![b'x'; 200 * 1024]),
        ..text("x")
    };
    for tasks in [
        vec![],
        vec![text("x"); 101],
        vec![large.clone(), large.clone()],
    ] {
        let error = rig
            .store
            .enqueue(&rig.q, &rig.batch(1, &tasks))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), BackendKind::Fatal);
    }
    assert_eq!(rig.entries().await, 0);
    let alone = NewTask {
        envelope: Bytes::from(vec![b'x'; 900 * 1024]),
        ..large
    };
    rig.enqueue(1, &[alone]).await;
    assert_eq!(rig.entries().await, 1);
}

#[test]
fn entries_are_counted_over_the_scheduled_ones() {
    let id = |sequence| {
        Some(EntryId {
            millis: 5,
            sequence,
        })
    };
    assert_eq!(
        Enqueued::entries(id(7), &[1, 2], 4),
        [id(7), None, None, id(8)]
    );
    assert_eq!(Enqueued::entries(None, &[0], 1), [None]);
}

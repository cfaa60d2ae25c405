//! What is due goes back into the stream.

use bytes::Bytes;

use super::{Rig, at, text};
use crate::id::{Millis, TaskId};
use crate::state::TaskState;
use crate::store::tests_server::until;
use crate::store::{NewTask, Start};

async fn due_at(rig: &Rig, set: &str, task: &NewTask, due: u64) {
    rig.recorded(task, set).await;
    rig.raw([
        "ZADD",
        &rig.key(set),
        &due.to_string(),
        &task.id.to_string(),
    ])
    .await;
}

#[tokio::test]
async fn the_longest_due_goes_first_whichever_set_it_is_in() {
    let rig = Rig::start().await;
    let tasks = ["a", "b", "c", "d"].map(text);
    for (task, (set, due)) in tasks.iter().zip([
        ("retry", 4),
        ("scheduled", 1),
        ("retry", 2),
        ("scheduled", 3),
    ]) {
        due_at(&rig, set, task, due).await;
    }
    let later = rig.now().await.0 + 1_000_000;
    let waiting = text("e");
    due_at(&rig, "retry", &waiting, later).await;

    let promoted = rig.store.promote(&rig.q).await.unwrap();
    assert_eq!(
        (promoted.moved, promoted.next_due),
        (4, Some(Millis(later)))
    );
    assert!(!promoted.more());
    let stream = rig.stream().await;
    let values: Vec<_> = stream
        .iter()
        .map(|(_, field, value)| (&field[..], &value[..]))
        .collect();
    assert_eq!(
        values,
        [
            (&b"r"[..], &b"b"[..]),
            (b"r", b"c"),
            (b"r", b"d"),
            (b"r", b"a")
        ]
    );
    let record = rig
        .store
        .record(&rig.q, &tasks[1].id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (record.state, record.entry),
        (TaskState::Pending, Some(stream[0].0))
    );
    // What is known of its past stays.
    assert_eq!((record.due, record.error.as_deref()), (None, Some("oh")));
    assert_eq!(rig.number(["ZCARD", &rig.key("scheduled")]).await, 0);
    assert_eq!(rig.number(["ZCARD", &rig.key("retry")]).await, 1);
}

#[tokio::test]
async fn a_task_is_never_early() {
    let rig = Rig::start().await;
    let due = rig.now().await.0 + 150;
    rig.enqueue(1, &[at(Start::At(Millis(due)), "x")]).await;
    let mut polls = 0;
    until("the task is promoted", async || {
        polls += 1;
        let promoted = rig.store.promote(&rig.q).await.unwrap();
        assert_eq!(
            promoted.moved == 1,
            promoted.now.0 >= due,
            "{promoted:?}, due {due}"
        );
        promoted.moved == 1
    })
    .await;
    assert!(polls > 1, "it was due at the first look");
    assert!(rig.stream().await[0].0.millis >= due);
}

#[tokio::test]
async fn a_hundred_thousand_due_tasks_drain_in_batches_and_in_order() {
    let rig = Rig::start().await;
    for start in (1..100_000).step_by(10_000) {
        rig.raw([
            "EVAL",
            "for i = ARGV[1], ARGV[1] + 9999 do
               local id = 'task-' .. i
               redis.call('HSET', KEYS[1] .. 'tasks', id, cmsgpack.pack({v = 1, s = 'scheduled', e = tostring(i), n = 'x'}))
               redis.call('ZADD', KEYS[1] .. 'scheduled', i, id)
             end",
            "1",
            &rig.key(""),
            &start.to_string(),
        ])
        .await;
    }
    let mut moved = Vec::new();
    loop {
        let promoted = rig.store.promote(&rig.q).await.unwrap();
        moved.push(promoted.moved);
        if !promoted.more() {
            assert_eq!(promoted.next_due, None);
            break;
        }
    }
    assert_eq!(moved, [100; 1_000]);
    assert_eq!(rig.entries().await, 100_000);
    let last = rig
        .raw(["XREVRANGE", &rig.key("s"), "+", "-", "COUNT", "1"])
        .await;
    assert_eq!(last.into_entries()[0].first_field().unwrap().1, "100000");
}

#[tokio::test]
async fn a_call_is_bounded_in_bytes_too() {
    let rig = Rig::start().await;
    let large = "x".repeat(200 * 1024);
    for due in 1..=3 {
        due_at(&rig, "scheduled", &text(&large), due).await;
    }
    for left in [2, 1, 0] {
        let promoted = rig.store.promote(&rig.q).await.unwrap();
        assert_eq!((promoted.moved, promoted.more()), (1, left > 0));
    }
}

#[tokio::test]
async fn what_is_no_record_does_not_block_the_tasks_behind_it() {
    let rig = Rig::start().await;
    rig.raw(["HSET", &rig.key("tasks"), "odd", "no record"])
        .await;
    rig.raw(["ZADD", &rig.key("scheduled"), "1", "odd", "2", "nowhere"])
        .await;
    let task = text("a");
    due_at(&rig, "scheduled", &task, 3).await;
    let promoted = rig.store.promote(&rig.q).await.unwrap();
    assert_eq!((promoted.moved, promoted.next_due), (1, None));
    assert!(!rig.is_nil(["ZSCORE", &rig.key("archived"), "odd"]).await);
    assert!(
        rig.store
            .record(&rig.q, &TaskId::new("odd").unwrap())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_full_redis_still_promotes() {
    let rig = Rig::start().await;
    due_at(&rig, "retry", &text("a"), 1).await;
    rig.raw(["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(rig.store.promote(&rig.q).await.unwrap().moved, 1);
    assert_eq!(rig.stream().await[0].2, Bytes::from_static(b"a"));
}

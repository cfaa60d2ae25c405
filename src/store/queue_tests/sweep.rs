//! What the sweep removes, and what it leaves alone.

use std::time::Duration;

use super::{HOUR, Rig, task, task_with, text};
use crate::envelope::{Ending, Parts};
use crate::id::Millis;
use crate::store::sweep::Swept;
use crate::store::tests_server::until;
use crate::store::{Batch, EndReply, Ended, Enqueued, SweepCursor, SweepLimits};

const DEAD: Duration = Duration::from_secs(600);

fn limits() -> SweepLimits {
    SweepLimits {
        client_dead_after: DEAD,
        producer_keep: HOUR * 24,
        consumer_dead_after: HOUR,
        unknown_grace: HOUR,
        archive_keep: HOUR * 24 * 90,
        archive_max: 10_000,
        lease: Duration::from_secs(15),
    }
}

async fn sweep_with(rig: &Rig, limits: &SweepLimits) -> Swept {
    rig.store
        .sweep(&rig.q, limits, &mut SweepCursor::default())
        .await
        .unwrap()
}

/// One sweep, as if somebody had always swept.
async fn sweep(rig: &Rig) -> Swept {
    let now = rig.now().await.0.to_string();
    rig.raw(["HSET", &rig.key("cfg"), "sweep_at", &now, "sweep_from", "0"])
        .await;
    sweep_with(rig, &limits()).await
}

async fn last_sign(rig: &Rig, client: &str, ago: Duration) {
    let at = rig.now().await.0 - u64::try_from(ago.as_millis()).unwrap();
    rig.raw(["ZADD", &rig.key("clients"), &at.to_string(), client])
        .await;
}

#[tokio::test]
async fn the_receiver_of_a_dead_client_is_removed_and_that_of_a_living_one_stays() {
    let rig = Rig::start().await;
    for (client, ago) in [("dead", DEAD + Duration::from_secs(1)), ("alive", DEAD / 2)] {
        rig.raw(["XADD", &rig.key(&format!("r:{client}")), "*", "o", "x"])
            .await;
        last_sign(&rig, client, ago).await;
    }
    let swept = sweep(&rig).await;
    assert_eq!(
        (swept.receivers, swept.producers, swept.more),
        (1, 0, false)
    );
    assert!(rig.is_nil(["ZSCORE", &rig.key("clients"), "dead"]).await);
    assert_eq!(rig.number(["EXISTS", &rig.key("r:dead")]).await, 0);
    assert_eq!(rig.number(["EXISTS", &rig.key("r:alive")]).await, 1);
    assert_eq!(sweep(&rig).await.receivers, 0);
}

#[tokio::test]
async fn nobody_is_dead_after_a_time_in_which_nobody_swept() {
    let rig = Rig::start().await;
    last_sign(&rig, "c1", DEAD * 2).await;
    // The first sweep ever, and the next one at once.
    for _ in 0..2 {
        assert_eq!(sweep_with(&rig, &limits()).await.receivers, 0);
    }
    let from = rig.number(["HGET", &rig.key("cfg"), "sweep_from"]).await;
    assert!(from >= rig.now().await.after(DEAD / 2).0);
    // Redis was away for an hour.
    let hour_ago = (rig.now().await.0 - 3_600_000).to_string();
    rig.raw([
        "HSET",
        &rig.key("cfg"),
        "sweep_at",
        &hour_ago,
        "sweep_from",
        "0",
    ])
    .await;
    assert_eq!(sweep_with(&rig, &limits()).await.receivers, 0);
    // Its clock stepped back.
    let ahead = (rig.now().await.0 + 3_600_000).to_string();
    rig.raw([
        "HSET",
        &rig.key("cfg"),
        "sweep_at",
        &ahead,
        "sweep_from",
        "0",
    ])
    .await;
    assert_eq!(sweep_with(&rig, &limits()).await.receivers, 0);
    rig.raw(["HSET", &rig.key("cfg"), "sweep_from", &ahead])
        .await;
    assert_eq!(sweep_with(&rig, &limits()).await.receivers, 0);
    let clamped = rig.number(["HGET", &rig.key("cfg"), "sweep_from"]).await;
    assert!(clamped <= rig.now().await.after(DEAD).0);
    assert_eq!(sweep(&rig).await.receivers, 1);
}

#[tokio::test]
async fn a_beat_says_whether_there_was_a_gap_also_when_an_enqueue_came_first() {
    let rig = Rig::start().await;
    let beat = rig.store.client_beat(&rig.q, &rig.client).await.unwrap();
    assert!(!beat.known && !beat.receiver_exists && beat.epoch == rig.epoch);
    assert!(
        rig.store
            .client_beat(&rig.q, &rig.client)
            .await
            .unwrap()
            .known
    );
    rig.enqueue(1, &[text("x")]).await;
    rig.raw(["XADD", &rig.key("r:c1"), "*", "o", "x"]).await;
    let beat = rig.store.client_beat(&rig.q, &rig.client).await.unwrap();
    assert!(beat.known && beat.receiver_exists);

    last_sign(&rig, "c1", DEAD * 2).await;
    assert_eq!(sweep(&rig).await.receivers, 1);
    rig.enqueue(2, &[text("y")]).await;
    rig.enqueue(3, &[text("z")]).await;
    let beat = rig.store.client_beat(&rig.q, &rig.client).await.unwrap();
    assert!(!beat.known && !beat.receiver_exists);
    assert!(
        rig.store
            .client_beat(&rig.q, &rig.client)
            .await
            .unwrap()
            .known
    );
}

#[tokio::test]
async fn a_producer_is_remembered_for_a_day_after_its_last_sign() {
    let rig = Rig::start().await;
    let tasks = [text("x")];
    rig.enqueue(1, &tasks).await;
    last_sign(&rig, "c1", DEAD * 2).await;
    sweep(&rig).await;
    // Swept as a client, it still may repeat its last batch.
    let repeat = Batch {
        repeat: true,
        tracked: false,
        ..rig.batch(1, &tasks)
    };
    let answer = rig.store.enqueue(&rig.q, &repeat).await.unwrap();
    assert!(matches!(answer, Enqueued::Stored { .. }));
    assert_eq!(rig.entries().await, 1);

    // Counted from its last sign, which may be before or after its last batch.
    for (hours, removed) in [(23, 0), (25, 1)] {
        last_sign(&rig, "c1", HOUR * hours).await;
        let swept = sweep(&rig).await;
        assert_eq!((swept.receivers, swept.producers), (1, removed));
    }
    assert_eq!(rig.number(["EXISTS", &rig.key("producers")]).await, 0);
}

#[tokio::test]
async fn a_client_that_says_goodbye_leaves_nothing() {
    let rig = Rig::start().await;
    rig.enqueue(1, &[text("x")]).await;
    rig.raw(["XADD", &rig.key("r:c1"), "*", "o", "x"]).await;
    rig.store.client_close(&rig.q, &rig.client).await.unwrap();
    for kind in ["clients", "producers", "r:c1"] {
        assert_eq!(rig.number(["EXISTS", &rig.key(kind)]).await, 0, "{kind}");
    }
}

async fn consumers(rig: &Rig) -> u64 {
    let groups = rig.raw(["XINFO", "GROUPS", &rig.key("s")]).await;
    groups.array().unwrap()[0].array().unwrap()[3]
        .u64()
        .unwrap()
}

#[tokio::test]
async fn only_a_consumer_without_work_and_without_a_sign_is_removed() {
    let rig = Rig::start().await;
    rig.enqueue(1, &[text("x"), text("y")]).await;
    rig.deliver("holds", 1).await;
    let free = rig.deliver("free", 1).await[0];
    rig.give(free, "holds", 0).await;
    for name in ["renewed", "~released"] {
        rig.raw(["XGROUP", "CREATECONSUMER", &rig.key("s"), "servers", name])
            .await;
    }
    let now = rig.now().await;
    rig.raw([
        "ZADD",
        &rig.key("servers"),
        &now.0.to_string(),
        "renewed",
        "1",
        "free",
        "1",
        "holds",
    ])
    .await;
    rig.raw([
        "ZADD",
        &rig.key("servers"),
        "1",
        "never-read",
        &now.0.to_string(),
        "new",
    ])
    .await;
    assert_eq!(sweep(&rig).await.consumers, 0);
    assert_eq!(consumers(&rig).await, 4);
    assert!(
        rig.is_nil(["ZSCORE", &rig.key("servers"), "never-read"])
            .await
    );

    let short = SweepLimits {
        consumer_dead_after: Duration::from_millis(50),
        lease: Duration::ZERO,
        ..limits()
    };
    let mut removed = 0;
    until("the idle consumer is removed", async || {
        let now = rig.now().await.0.to_string();
        rig.raw(["ZADD", &rig.key("servers"), &now, "renewed"])
            .await;
        removed += sweep_with(&rig, &short).await.consumers;
        removed > 0
    })
    .await;
    assert_eq!((removed, consumers(&rig).await), (1, 3));
    assert_eq!(rig.store.counts(&rig.q).await.unwrap().active, 2);
    assert!(rig.is_nil(["ZSCORE", &rig.key("servers"), "free"]).await);
    // What still holds an entry is kept in both places.
    assert!(!rig.is_nil(["ZSCORE", &rig.key("servers"), "holds"]).await);
}

#[tokio::test]
async fn fields_of_entries_that_are_gone_are_dropped_and_no_others() {
    let rig = Rig::start().await;
    let entries = rig.enqueue(1, &[text("x"), text("y")]).await;
    rig.deliver("w", 1).await;
    for kind in ["cancel", "crashes"] {
        for entry in entries.iter().flatten() {
            rig.raw([
                "HSET",
                &rig.key(kind),
                &entry.to_string(),
                "1",
                "5-5",
                "1",
                "odd",
                "1",
            ])
            .await;
        }
    }
    assert_eq!(sweep(&rig).await.orphans, 4);
    for kind in ["cancel", "crashes"] {
        assert_eq!(rig.number(["HLEN", &rig.key(kind)]).await, 2, "{kind}");
    }
}

#[tokio::test]
async fn the_archive_is_trimmed_by_age_and_by_number_with_its_records() {
    let rig = Rig::start().await;
    let now = rig.now().await.0;
    for age_hours in [3_000, 2_500, 50, 40, 30] {
        let task = text("x");
        rig.recorded(&task, "archived").await;
        let at = (now - age_hours * 3_600_000).to_string();
        rig.raw(["ZADD", &rig.key("archived"), &at, &task.id.to_string()])
            .await;
    }
    assert_eq!(sweep(&rig).await.archived_trimmed, 2);
    let few = SweepLimits {
        archive_max: 1,
        ..limits()
    };
    assert_eq!(sweep_with(&rig, &few).await.archived_trimmed, 2);
    assert_eq!(rig.number(["ZCARD", &rig.key("archived")]).await, 1);
    assert_eq!(rig.number(["HLEN", &rig.key("tasks")]).await, 1);
    assert_eq!(sweep_with(&rig, &few).await.archived_trimmed, 0);
}

#[tokio::test]
async fn a_large_archive_is_trimmed_a_hundred_at_a_time() {
    let rig = Rig::start().await;
    rig.raw([
        "EVAL",
        "for i = 1, 250 do redis.call('ZADD', KEYS[1] .. 'archived', i, 't' .. i) redis.call('HSET', KEYS[1] .. 'tasks', 't' .. i, 'x') end",
        "1",
        &rig.key(""),
    ])
    .await;
    let mut trimmed = Vec::new();
    for _ in 0..4 {
        let swept = sweep(&rig).await;
        trimmed.push((swept.archived_trimmed, swept.more));
    }
    assert_eq!(trimmed, [(100, true), (100, true), (50, false), (0, false)]);
    assert_eq!(rig.number(["EXISTS", &rig.key("tasks")]).await, 0);
}

#[tokio::test]
async fn pending_tasks_with_a_deadline_are_candidates_in_rounds_over_the_whole_stream() {
    let rig = Rig::start().await;
    let with_deadline = || {
        task_with(Parts {
            deadline: Some(Millis(1_700_000_000_000)),
            ..Parts::default()
        })
    };
    let (running, released, waiting) = (with_deadline(), with_deadline(), with_deadline());
    let mut entries = rig.enqueue(1, &[running, released.clone()]).await;
    rig.deliver("w", 2).await;
    rig.give(entries[1].unwrap(), "~released", 0).await;
    let mut tasks = vec![task(); 100];
    entries.extend(rig.enqueue(2, &tasks).await);
    tasks.truncate(30);
    tasks.push(waiting.clone());
    let last = *rig.enqueue(3, &tasks).await.last().unwrap();

    let mut cursor = SweepCursor::default();
    for round in 0..2 {
        let mut found = Vec::new();
        for _ in 0..2 {
            let swept = rig
                .store
                .sweep(&rig.q, &limits(), &mut cursor)
                .await
                .unwrap();
            found.extend(swept.expired_candidates);
        }
        let ids: Vec<_> = found.iter().map(|found| Some(found.entry)).collect();
        assert_eq!(ids, [entries[1], last], "round {round}");
        assert_eq!(found[0].envelope, released.envelope);
    }
}

#[tokio::test]
async fn tasks_parked_for_too_long_are_named_and_can_be_archived() {
    let rig = Rig::start().await;
    let (old, new) = (text("old"), text("new"));
    for task in [&old, &new] {
        rig.recorded(task, "parked").await;
    }
    let now = rig.now().await.0.to_string();
    rig.raw([
        "ZADD",
        &rig.key("unknown:mail.send"),
        &now,
        &new.id.to_string(),
    ])
    .await;
    rig.raw(["SADD", &rig.key("unknown"), "empty"]).await;
    rig.raw(["ZADD", &rig.key("unknown:lost"), "1", "no-record"])
        .await;
    rig.raw(["SADD", &rig.key("unknown"), "lost"]).await;

    let overdue = sweep(&rig).await.parked_overdue;
    assert_eq!(overdue.len(), 1);
    assert_eq!(
        (&overdue[0].id, overdue[0].name.as_str()),
        (&old.id, "mail.send")
    );
    assert_eq!(rig.store.parked_names(&rig.q).await.unwrap(), ["mail.send"]);
    let how = Ended::Archived {
        reason: "no_handler",
        error: "",
        name: &overdue[0].name,
        envelope: &overdue[0].envelope,
    };
    let told = super::notice(&old.id, Ending::NoHandler("mail.send".into()));
    let reply = rig
        .store
        .end_recorded(&rig.q, &old.id, how, &told)
        .await
        .unwrap();
    assert_eq!(reply, EndReply::Ended);
    assert!(sweep(&rig).await.parked_overdue.is_empty());
    assert_eq!(rig.number(["ZCARD", &rig.key("archived")]).await, 1);
    assert_eq!(
        rig.notices().await,
        [(old.id, Ending::NoHandler("mail.send".into()))]
    );
}

#[tokio::test]
async fn a_sweep_of_a_queue_that_is_not_there_makes_no_stream() {
    let rig = Rig::start().await;
    rig.raw(["FLUSHALL"]).await;
    assert_eq!(sweep(&rig).await, Swept::default());
    assert_eq!(rig.number(["EXISTS", &rig.key("s")]).await, 0);
}

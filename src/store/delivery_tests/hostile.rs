//! Strangers, keys of other types, and a Redis without memory.

use super::*;
use crate::error::BackendKind;

#[tokio::test]
async fn an_entry_acknowledged_by_a_stranger_can_still_be_completed_and_nothing_else() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    scene
        .send(&format!("XACK p:{{q}}:s servers {}", lease.entry))
        .await;
    assert_eq!(scene.fail(&lease, retry()).await.unwrap(), Failed::Refused);
    assert_eq!(scene.renew(&[(lease.entry, 1)]).await.lost, [lease.entry]);
    assert_eq!(scene.settle_one(lease.entry).await, Settled::Won);
    assert_eq!((scene.in_stream().await, scene.told().await.len()), (0, 1));
}

#[tokio::test]
async fn the_completion_of_an_entry_deleted_by_hand_counts_and_clears_the_pending_list() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    scene.send(&format!("XDEL p:{{q}}:s {}", lease.entry)).await;
    assert_eq!(scene.settle_one(lease.entry).await, Settled::Won);
    assert_eq!((scene.rows().await, scene.told().await.len()), (vec![], 1));
}

#[tokio::test]
async fn beside_a_gone_entry_one_deleted_by_hand_is_gone_too_and_leaves_no_ghost() {
    let scene = Scene::new().await;
    let gone = scene.delivered(Owner::Gone).await.entry;
    let ghost = scene.delivered(Owner::Me).await.entry;
    scene.send(&format!("XDEL p:{{q}}:s {ghost}")).await;
    let batch = [success(gone), success(ghost)];
    let settled = scene
        .store
        .settle(&scene.q, &me(), &batch, false)
        .await
        .unwrap();
    assert_eq!(settled, [Settled::Gone, Settled::Gone]);
    assert_eq!(scene.rows().await, []);
}

#[tokio::test]
async fn the_failure_of_an_entry_deleted_by_hand_is_kept() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    scene.send(&format!("XDEL p:{{q}}:s {}", lease.entry)).await;
    assert_eq!(scene.fail(&lease, archive()).await.unwrap(), Failed::Done);
    assert!(scene.record(&task()).await.is_some());
    assert_eq!(scene.rows().await, []);
}

#[tokio::test]
async fn a_value_that_is_no_record_keeps_no_task_from_ending() {
    let scene = Scene::new().await;
    for settles in [true, false] {
        let lease = scene.delivered(Owner::Me).await;
        scene.send("HSET p:{q}:tasks task-1 rubbish").await;
        if settles {
            let batch = [Success {
                record: Some(task()),
                ..success(lease.entry)
            }];
            let settled = scene
                .store
                .settle(&scene.q, &me(), &batch, false)
                .await
                .unwrap();
            assert_eq!(
                (settled, scene.record(&task()).await),
                (vec![Settled::Won], None)
            );
        } else {
            assert_eq!(scene.fail(&lease, retry()).await.unwrap(), Failed::Done);
            assert!(scene.record(&task()).await.is_some());
        }
    }
}

/// The keys that each call writes or reads, besides the stream.
const KEYS: [(&str, &[&str]); 14] = [
    (
        "settle",
        &[
            "tasks", "clients", "r:waiter", "cancel", "crashes", "n", "n:d", "n:h",
        ],
    ),
    (
        "retry",
        &[
            "tasks",
            "scheduled",
            "retry",
            "cancel",
            "crashes",
            "clients",
            "r:waiter",
            "n",
            "n:d",
            "n:h",
        ],
    ),
    (
        "archive",
        &[
            "tasks", "archived", "cancel", "crashes", "clients", "r:waiter", "n", "n:d", "n:h",
        ],
    ),
    (
        "park",
        &[
            "tasks",
            "unknown",
            "unknown:job",
            "cancel",
            "crashes",
            "clients",
            "r:waiter",
            "n",
        ],
    ),
    ("renew", &["cfg", "servers", "cancel", "crashes"]),
    ("reclaim", &["cfg", "cancel", "crashes", "n", "n:d", "n:h"]),
    ("release", &["cancel", "crashes"]),
    ("take_released", &["cfg", "cancel", "crashes"]),
    ("own_pending", &["cancel", "crashes"]),
    ("begin", &["crashes"]),
    ("unpark", &["tasks", "unknown", "unknown:job", "crashes"]),
    ("server_leave", &["cfg", "servers"]),
    ("upkeep_lock", &["cfg", "servers", "scheduled", "retry"]),
    ("ensure", &["cfg"]),
];

async fn call(scene: &Scene, name: &str, lease: &Lease) -> Result<(), BackendError> {
    let times = RenewTimes {
        interval: INTERVAL,
        quiet: QUIET,
        lease: LEASE,
    };
    let (store, q) = (&scene.store, &scene.q);
    match name {
        "settle" => {
            let batch = [Success {
                record: Some(task()),
                ..success(lease.entry)
            }];
            store.settle(q, &me(), &batch, false).await.map(drop)
        }
        "retry" => scene.fail(lease, retry()).await.map(drop),
        "archive" => scene.fail(lease, archive()).await.map(drop),
        "park" => scene.park(lease).await.map(drop),
        "renew" => store
            .renew(q, &me(), &[(lease.entry, 1)], &times)
            .await
            .map(drop),
        "reclaim" => {
            let times = ReclaimTimes {
                lease: LEASE,
                quiet: QUIET,
            };
            store
                .reclaim(q, &me(), 9, true, &times, &mut ReclaimCursor::default())
                .await
                .map(drop)
        }
        "release" => store
            .release(q, &me(), &[(lease.entry, 1, true)])
            .await
            .map(drop),
        "take_released" => store.take_released(q, &me(), 9).await.map(drop),
        "own_pending" => store
            .own_pending(q, &me(), EntryId::default(), 9)
            .await
            .map(drop),
        "begin" => store.begin(lease, &me()).await.map(drop),
        "unpark" => store.unpark(q, "job", 9).await.map(drop),
        "server_leave" => store.server_leave(q, &me()).await.map(drop),
        "upkeep_lock" => store
            .upkeep_lock(q, &me(), INTERVAL, QUIET, LEASE)
            .await
            .map(drop),
        "ensure" => store.ensure_serving(q, QUIET, LEASE).await.map(drop),
        other => unreachable!("{other}"),
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_named_and_nothing_is_written() {
    let scene = Scene::new().await;
    for (name, kinds) in KEYS {
        for kind in kinds.iter().copied().chain(["s"]) {
            scene.send("FLUSHALL").await;
            scene.store.ensure(&scene.q).await.unwrap();
            scene.send("ZADD p:{q}:clients 1 waiter").await;
            scene.servers_were_seen().await;
            let lease = scene.delivered(Owner::Me).await;
            let hours = scene.now().await / 3_600_000;
            let key = match kind {
                "n:h" => format!("p:{{q}}:n:{hours}"),
                "n:d" => format!("p:{{q}}:n:d:{}", hours / 24),
                kind => format!("p:{{q}}:{kind}"),
            };
            scene.send(&format!("SET {key} stranger")).await;
            let before = scene.everything().await;
            let error = call(&scene, name, &lease)
                .await
                .expect_err(&format!("{name} took a wrong {key}"));
            assert_eq!(
                error.kind(),
                BackendKind::WrongType,
                "{name} {key}: {error}"
            );
            assert!(error.to_string().contains(&key), "{name} {key}: {error}");
            assert_eq!(scene.everything().await, before, "{name} {key}");
        }
    }
}

#[tokio::test]
async fn a_full_redis_takes_no_new_work_but_drains() {
    let scene = Scene::new().await;
    let mut leases = Vec::new();
    for _ in 0..6 {
        leases.push(scene.delivered(Owner::Me).await);
    }
    let dead = scene.delivered(Owner::Another).await.entry;
    scene.idle(dead, DEAD_MS).await;
    let ahead = scene.now().await + 3_600_000;
    scene
        .send(&format!("XGROUP SETID p:{{q}}:s servers {ahead}-0"))
        .await;
    scene.send("CONFIG SET maxmemory-policy noeviction").await;
    scene.send("CONFIG SET maxmemory 1").await;
    let full = scene.try_send("XADD p:{q}:s * t body").await.unwrap_err();
    assert_eq!(full.kind(), BackendKind::NotExecuted);

    assert_eq!(scene.settle_one(leases[0].entry).await, Settled::Won);
    assert_eq!(scene.fail(&leases[1], retry()).await.unwrap(), Failed::Done);
    scene.send("ZREM p:{q}:retry task-1").await;
    scene.send("HDEL p:{q}:tasks task-1").await;
    assert_eq!(
        scene.fail(&leases[2], archive()).await.unwrap(),
        Failed::Done
    );
    scene.send("HDEL p:{q}:tasks task-1").await;
    assert!(scene.park(&leases[3]).await.unwrap());
    assert_eq!(scene.store.unpark(&scene.q, "job", 9).await.unwrap(), 1);
    let last = [(leases[4].entry, 1), (leases[5].entry, 1)];
    assert!(scene.renew(&last).await.lost.is_empty());
    assert_eq!(scene.store.begin(&leases[4], &me()).await.unwrap(), Some(1));
    assert_eq!(
        scene
            .store
            .release(&scene.q, &me(), &[(leases[4].entry, 1, true)])
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        scene
            .store
            .take_released(&scene.q, &me(), 9)
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(scene.reclaim(9, true).await.deliveries.len(), 1);
    assert!(!scene.store.ensure(&scene.q).await.unwrap().created);
    assert!(
        scene
            .store
            .upkeep_lock(&scene.q, &me(), INTERVAL, QUIET, LEASE)
            .await
            .unwrap()
            .mine
    );
    assert_eq!(scene.told().await.len(), 2);
}

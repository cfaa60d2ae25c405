//! `renew`: keeps what is mine, and never takes anything.

use super::*;

#[tokio::test]
async fn what_is_mine_is_extended_once_it_is_idle_for_half_the_interval() {
    let scene = Scene::new().await;
    let old = scene.delivered(Owner::Me).await.entry;
    let young = scene.delivered(Owner::Me).await.entry;
    scene.idle(old, 21_000).await;
    scene.idle(young, 10_000).await;
    let renewed = scene.renew(&[(old, 1), (young, 1)]).await;
    assert_eq!(
        renewed,
        Renewed {
            now: renewed.now,
            ..Renewed::default()
        }
    );
    assert!(scene.row(old).await.unwrap().2 < 10_000);
    assert!(
        scene.row(young).await.unwrap().2 >= 10_000,
        "a fresh entry was claimed"
    );
    assert_eq!(scene.owner(old).await, Some(("me".to_owned(), 1)));
}

#[tokio::test]
async fn what_is_not_mine_is_lost_and_stays_with_its_owner() {
    for owner in [
        Owner::Another,
        Owner::AnotherSameCount,
        Owner::Released,
        Owner::Gone,
    ] {
        let scene = Scene::new().await;
        let lease = scene.delivered(owner).await;
        if owner != Owner::Gone {
            scene.idle(lease.entry, DEAD_MS).await;
        }
        let before = scene.rows().await;
        let renewed = scene.renew(&[(lease.entry, 1)]).await;
        assert_eq!(renewed.lost, [lease.entry], "{owner:?}");
        assert!(
            renewed.moved.is_empty() && renewed.unlisted.is_empty(),
            "{owner:?}"
        );
        let after = scene.rows().await;
        assert_eq!(after.len(), before.len(), "{owner:?}");
        for (row, was) in after.iter().zip(&before) {
            assert_eq!((&row.1, row.3), (&was.1, was.3), "{owner:?}");
            assert!(row.2 >= was.2, "{owner:?}: its idle time was reset");
        }
    }
}

#[tokio::test]
async fn a_count_that_moved_is_reported_and_still_extended() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Moved).await;
    scene.idle(lease.entry, 50_000).await;
    let renewed = scene.renew(&[(lease.entry, 1)]).await;
    assert_eq!(
        (renewed.moved, renewed.lost),
        (vec![(lease.entry, 2)], vec![])
    );
    assert!(scene.row(lease.entry).await.unwrap().2 < 10_000);
    let renewed = scene.renew(&[(lease.entry, 1), (lease.entry, 2)]).await;
    assert_eq!(
        renewed.moved,
        [(lease.entry, 2)],
        "one of two deliveries is out of date"
    );
    let renewed = scene.renew(&[(lease.entry, 2)]).await;
    assert!(renewed.moved.is_empty());
}

#[tokio::test]
async fn cancel_requests_and_a_pause_are_reported() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    scene
        .send(&format!("HSET p:{{q}}:cancel {} 1 9-9 1", lease.entry))
        .await;
    let renewed = scene.renew(&[(lease.entry, 1)]).await;
    assert_eq!(
        (renewed.cancelled, renewed.paused),
        (vec![lease.entry], false)
    );
    scene.send("HSET p:{q}:cfg paused 1").await;
    assert!(scene.renew(&[]).await.paused);
}

#[tokio::test]
async fn a_delivery_that_nobody_saw_is_found_after_one_interval() {
    let scene = Scene::new().await;
    let old = scene.put_as("r", "body").await;
    let young = scene.put().await;
    scene.read_by("me").await;
    scene.idle(old, 50_000).await;
    scene.send(&format!("HSET p:{{q}}:crashes {old} 1")).await;
    let renewed = scene.renew(&[]).await;
    assert_eq!(renewed.unlisted.len(), 1);
    let found = &renewed.unlisted[0];
    assert_eq!(
        (found.entry, found.count, found.has_record, found.suspect),
        (old, 1, true, true)
    );
    assert_eq!(found.envelope, "body");
    assert!(renewed.lost.is_empty());
    assert!(
        scene.row(old).await.unwrap().2 >= 50_000,
        "nobody took it up yet, so its lease runs on"
    );
    assert!(scene.row(young).await.is_some());
}

#[tokio::test]
async fn an_entry_deleted_by_hand_is_lost_and_leaves_no_ghost() {
    let scene = Scene::new().await;
    let held = scene.delivered(Owner::Me).await.entry;
    let unseen = scene.delivered(Owner::Me).await.entry;
    for entry in [held, unseen] {
        scene.idle(entry, 50_000).await;
        scene.send(&format!("XDEL p:{{q}}:s {entry}")).await;
        scene.send(&format!("HSET p:{{q}}:cancel {entry} 1")).await;
    }
    let renewed = scene.renew(&[(held, 1)]).await;
    assert_eq!(
        (renewed.lost, renewed.cancelled, renewed.unlisted),
        (vec![held], vec![], vec![])
    );
    assert_eq!(scene.rows().await, []);
    assert_eq!(scene.send("EXISTS p:{q}:cancel").await, Reply::Int(0));
}

#[tokio::test]
async fn any_number_of_held_entries_is_renewed_in_pages() {
    let scene = Scene::new().await;
    let mut all = Vec::new();
    for _ in 0..600 {
        all.push(scene.put().await);
    }
    scene.read_by("me").await;
    for entry in &all {
        scene.idle(*entry, 50_000).await;
    }
    // Every second one is held; the others nobody saw, more of them than one page looks at.
    let held: Vec<(EntryId, u64)> = all.iter().step_by(2).map(|entry| (*entry, 1)).collect();
    for gone in [1, 100, 299] {
        scene.hand(held[gone].0, Owner::Another).await;
    }
    let renewed = scene.renew(&held).await;
    assert_eq!(renewed.lost, [held[1].0, held[100].0, held[299].0]);
    assert_eq!(renewed.unlisted.len(), 300);
    let stale = scene
        .rows()
        .await
        .iter()
        .filter(|row| row.1 == "me" && row.2 >= 50_000)
        .count();
    assert_eq!(
        stale, 300,
        "all that is held was extended, and nothing else"
    );

    let crowd = scene.renew(&held[299..]).await;
    assert_eq!(crowd.lost, [held[299].0], "behind a crowd of unlisted ones");
}

#[tokio::test]
async fn a_beat_with_nothing_held_is_a_sign_of_life() {
    let scene = Scene::new().await;
    let renewed = scene.renew(&[]).await;
    assert_eq!(
        scene.send("ZSCORE p:{q}:servers me").await.u64().unwrap(),
        renewed.now.0
    );
    assert_eq!(scene.cfg("last_sign").await, Some(renewed.now.0));
}

#[tokio::test]
async fn a_queue_without_its_group_says_so() {
    let scene = Scene::new().await;
    scene.send("DEL p:{q}:s").await;
    let times = RenewTimes {
        interval: INTERVAL,
        quiet: QUIET,
        lease: LEASE,
    };
    let error = scene
        .store
        .renew(&scene.q, &me(), &[], &times)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), crate::error::BackendKind::Group);
}

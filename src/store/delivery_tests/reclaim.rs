//! `reclaim`: takes exactly what a dead owner left.

use super::*;

#[tokio::test]
async fn the_entries_of_a_dead_owner_are_taken_and_nobody_elses() {
    let scene = Scene::new().await;
    let dead = [
        scene.delivered(Owner::Another).await,
        scene.delivered(Owner::AnotherSameCount).await,
    ];
    let fresh = scene.delivered(Owner::Another).await.entry;
    let own = scene.delivered(Owner::Me).await.entry;
    let moved = scene.delivered(Owner::Moved).await.entry;
    let released = scene.delivered(Owner::Released).await.entry;
    scene.delivered(Owner::Gone).await;
    for entry in [dead[0].entry, dead[1].entry, own, moved, released] {
        scene.idle(entry, DEAD_MS).await;
    }
    lift_end_bound(&scene).await;
    let new = scene.put().await;
    let reclaimed = scene.reclaim(10, true).await;
    let taken: Vec<_> = reclaimed
        .deliveries
        .iter()
        .map(|d| (d.entry, d.count, d.suspect))
        .collect();
    assert_eq!(
        taken,
        [(dead[0].entry, 3, false), (dead[1].entry, 2, false)]
    );
    assert_eq!(reclaimed.deliveries[0].envelope, "body");
    assert_eq!((reclaimed.refreshed, reclaimed.more), (0, false));
    assert_eq!(scene.owner(fresh).await, Some(("other".to_owned(), 2)));
    assert_eq!(scene.owner(own).await, Some(("me".to_owned(), 1)));
    assert_eq!(scene.owner(moved).await, Some(("me".to_owned(), 2)));
    assert_eq!(
        scene.owner(released).await,
        Some(("~released".to_owned(), 1))
    );
    assert_eq!(scene.owner(new).await, None);
    assert_eq!(scene.counted("reclaimed").await, 2);
}

/// The end bound of the probe looks at ids: entries of this test are younger than a lease, so the
/// bound is lifted as after a clock that stepped back, by a last delivered id in the future.
async fn lift_end_bound(scene: &Scene) {
    let ahead = scene.now().await + 3_600_000;
    scene
        .send(&format!("XGROUP SETID p:{{q}}:s servers {ahead}-0"))
        .await;
}

async fn dead(scene: &Scene, field: &str, body: &str) -> EntryId {
    let entry = scene.put_as(field, body).await;
    scene.read_by("other").await;
    scene.idle(entry, DEAD_MS).await;
    entry
}

#[tokio::test]
async fn an_entry_younger_than_a_lease_is_not_even_looked_at() {
    let scene = Scene::new().await;
    let young = dead(&scene, "t", "body").await;
    let old = scene.now().await - 300_000;
    scene.send("DEL p:{q}:s").await;
    scene.store.ensure(&scene.q).await.unwrap();
    scene.send(&format!("XADD p:{{q}}:s {old}-0 t old")).await;
    scene.send(&format!("XADD p:{{q}}:s {young} t young")).await;
    scene.read_by("other").await;
    scene
        .idle(
            EntryId {
                millis: old,
                sequence: 0,
            },
            DEAD_MS,
        )
        .await;
    scene.idle(young, DEAD_MS).await;
    let reclaimed = scene.reclaim(10, true).await;
    assert_eq!(reclaimed.deliveries.len(), 1);
    assert_eq!(reclaimed.deliveries[0].envelope, "old");
}

#[tokio::test]
async fn the_first_reclaim_is_nobodys_fault_and_the_second_makes_a_suspect() {
    let scene = Scene::new().await;
    let entry = dead(&scene, "r", "body").await;
    lift_end_bound(&scene).await;
    let first = scene.reclaim(10, true).await.deliveries;
    assert_eq!(
        (first[0].suspect, first[0].crashes, first[0].has_record),
        (false, 0, true)
    );
    assert_eq!(
        scene
            .send(&format!("HGET p:{{q}}:crashes {entry}"))
            .await
            .u64()
            .unwrap(),
        0
    );

    for crashes in 0..3 {
        scene.hand(entry, Owner::AnotherSameCount).await;
        scene.idle(entry, DEAD_MS).await;
        assert_eq!(
            scene.reclaim(10, false).await.deliveries,
            [],
            "the suspect lane is not free"
        );
        let suspect = scene.reclaim(10, true).await.deliveries;
        assert_eq!((suspect[0].suspect, suspect[0].crashes), (true, crashes));
        assert_eq!(
            scene.store.begin(&suspect[0].lease(), &me()).await.unwrap(),
            Some(crashes + 1)
        );
    }
}

#[tokio::test]
async fn one_suspect_at_a_time_and_its_neighbours_stay_innocent() {
    let scene = Scene::new().await;
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(dead(&scene, "t", "body").await);
    }
    lift_end_bound(&scene).await;
    scene
        .send(&format!("HSET p:{{q}}:crashes {} 1 {} 0", all[0], all[2]))
        .await;
    let taken = scene.reclaim(10, true).await.deliveries;
    let found: Vec<_> = taken.iter().map(|d| (d.entry, d.suspect)).collect();
    assert_eq!(found, [(all[0], true), (all[1], false), (all[3], false)]);
    assert_eq!(scene.owner(all[2]).await.unwrap().0, "other");
}

#[tokio::test]
async fn the_cursor_goes_on_where_the_room_ended() {
    let scene = Scene::new().await;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(dead(&scene, "t", "body").await);
    }
    lift_end_bound(&scene).await;
    let mut cursor = ReclaimCursor::default();
    let mut taken = Vec::new();
    for (room, more) in [(2, true), (0, false), (2, true), (2, false)] {
        let reclaimed = scene.reclaim_from(room, true, &mut cursor).await;
        assert_eq!(reclaimed.more, more);
        taken.extend(reclaimed.deliveries.iter().map(|d| d.entry));
    }
    assert_eq!(taken, all);
    assert_eq!(cursor, ReclaimCursor::default());
}

#[tokio::test]
async fn large_bodies_end_a_round_early() {
    let scene = Scene::new().await;
    let body = "x".repeat(150 * 1024);
    for _ in 0..3 {
        dead(&scene, "t", &body).await;
    }
    lift_end_bound(&scene).await;
    let reclaimed = scene.reclaim(10, true).await;
    assert_eq!((reclaimed.deliveries.len(), reclaimed.more), (2, true));
}

#[tokio::test]
async fn a_crowd_that_is_not_to_be_taken_does_not_hide_the_dead_one() {
    let scene = Scene::new().await;
    for _ in 0..250 {
        scene.put().await;
    }
    scene.read_by("me").await;
    let crowd: Vec<(EntryId, u64, bool)> = scene
        .rows()
        .await
        .iter()
        .map(|row| (row.0, 1, false))
        .collect();
    assert_eq!(
        scene.store.release(&scene.q, &me(), &crowd).await.unwrap(),
        250
    );
    for (entry, ..) in &crowd {
        scene.idle(*entry, DEAD_MS).await;
    }
    let last = dead(&scene, "t", "body").await;
    lift_end_bound(&scene).await;
    let reclaimed = scene.reclaim(10, true).await;
    assert_eq!(
        reclaimed
            .deliveries
            .iter()
            .map(|d| d.entry)
            .collect::<Vec<_>>(),
        [last]
    );
}

#[tokio::test]
async fn nothing_is_taken_while_paused_or_in_grace() {
    let scene = Scene::new().await;
    let entry = dead(&scene, "t", "body").await;
    lift_end_bound(&scene).await;
    scene.send("HSET p:{q}:cfg paused 1").await;
    let paused = scene.reclaim(10, true).await;
    assert!(paused.paused && paused.deliveries.is_empty());
    scene.send("HDEL p:{q}:cfg paused").await;
    let grace_end = scene.now().await + 50_000;
    scene
        .send(&format!("HSET p:{{q}}:cfg grace_end {grace_end}"))
        .await;
    let grace = scene.reclaim(10, true).await;
    assert!(grace.deliveries.is_empty());
    assert_eq!(grace.grace_until.unwrap().0, grace_end);
    assert_eq!(scene.owner(entry).await, Some(("other".to_owned(), 1)));
}

#[tokio::test]
async fn an_entry_deleted_by_hand_leaves_the_pending_list_and_its_fields() {
    let scene = Scene::new().await;
    let ghost = dead(&scene, "t", "body").await;
    let behind = dead(&scene, "t", "body").await;
    scene.send(&format!("XDEL p:{{q}}:s {ghost}")).await;
    scene.send(&format!("HSET p:{{q}}:crashes {ghost} 0")).await;
    scene.send(&format!("HSET p:{{q}}:cancel {ghost} 1")).await;
    lift_end_bound(&scene).await;
    let reclaimed = scene.reclaim(10, true).await;
    assert_eq!(
        reclaimed
            .deliveries
            .iter()
            .map(|d| d.entry)
            .collect::<Vec<_>>(),
        [behind]
    );
    assert_eq!(scene.row(ghost).await, None);
    assert_eq!(
        scene
            .send(&format!("HEXISTS p:{{q}}:crashes {ghost}"))
            .await,
        Reply::Int(0)
    );
    assert_eq!(scene.send("EXISTS p:{q}:cancel").await, Reply::Int(0));
}

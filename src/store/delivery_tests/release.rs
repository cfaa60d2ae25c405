//! `release`, `take_released`, `own_pending`, `server_leave`: how work changes hands in peace.

use super::*;

#[tokio::test]
async fn a_released_entry_keeps_its_count_and_wakes_the_others() {
    let scene = Scene::new().await;
    let mut wakes = Wakes::of(&scene).await;
    let lease = scene.delivered(Owner::Me).await;
    let released = scene
        .store
        .release(&scene.q, &me(), &[(lease.entry, 1, false)])
        .await
        .unwrap();
    assert_eq!(released, 1);
    assert_eq!(
        scene.owner(lease.entry).await,
        Some(("~released".to_owned(), 1))
    );
    assert_eq!(wakes.so_far(&scene).await, ["released"]);
}

#[tokio::test]
async fn a_stale_owner_releases_nothing_and_wakes_nobody() {
    for owner in NOT_ME {
        let scene = Scene::new().await;
        let lease = scene.delivered(owner).await;
        let mut wakes = Wakes::of(&scene).await;
        let before = scene.everything().await;
        let released = scene
            .store
            .release(&scene.q, &me(), &[(lease.entry, 1, true)])
            .await
            .unwrap();
        assert_eq!(released, 0, "{owner:?}");
        assert_eq!(scene.everything().await, before, "{owner:?}");
        assert_eq!(wakes.so_far(&scene).await, [""; 0], "{owner:?}");
    }
}

#[tokio::test]
async fn a_crash_counted_ahead_is_taken_back_and_never_below_zero() {
    let scene = Scene::new().await;
    let begun = scene.delivered(Owner::Me).await.entry;
    let idle = scene.delivered(Owner::Me).await.entry;
    let plain = scene.delivered(Owner::Me).await.entry;
    scene
        .send(&format!("HSET p:{{q}}:crashes {begun} 2 {idle} 2"))
        .await;
    let all = [(begun, 1, true), (idle, 1, false), (plain, 1, true)];
    assert_eq!(scene.store.release(&scene.q, &me(), &all).await.unwrap(), 3);
    let left = scene
        .send(&format!("HMGET p:{{q}}:crashes {begun} {idle} {plain}"))
        .await;
    let left: Vec<Option<u64>> = left
        .array()
        .unwrap()
        .iter()
        .map(|n| n.clone().optional(|n| n.u64()).unwrap())
        .collect();
    assert_eq!(left, [Some(1), Some(2), None]);
}

#[tokio::test]
async fn released_work_is_taken_lowest_first_under_a_higher_fence() {
    let scene = Scene::new().await;
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(scene.delivered(Owner::Released).await.entry);
    }
    scene
        .send(&format!("HSET p:{{q}}:crashes {} 2", all[1]))
        .await;
    let taken = scene.store.take_released(&scene.q, &me(), 3).await.unwrap();
    let found: Vec<_> = taken
        .iter()
        .map(|d| (d.entry, d.count, d.suspect, d.crashes))
        .collect();
    assert_eq!(
        found,
        [
            (all[0], 2, false, 0),
            (all[1], 2, true, 2),
            (all[2], 2, false, 0)
        ]
    );
    assert_eq!(
        (taken[0].envelope.as_ref(), taken[0].has_record),
        (&b"body"[..], false)
    );
    assert_eq!(scene.owner(all[0]).await, Some(("me".to_owned(), 2)));
    assert_eq!(scene.owner(all[3]).await, Some(("~released".to_owned(), 1)));
    assert_eq!(
        scene.store.take_released(&scene.q, &me(), 0).await.unwrap(),
        []
    );
}

#[tokio::test]
async fn nothing_but_released_work_is_taken_and_nothing_while_paused() {
    let scene = Scene::new().await;
    for owner in [Owner::Me, Owner::Moved, Owner::Another, Owner::Gone] {
        let lease = scene.delivered(owner).await;
        if owner != Owner::Gone {
            scene.idle(lease.entry, DEAD_MS).await;
        }
    }
    assert_eq!(
        scene
            .store
            .take_released(&scene.q, &me(), 10)
            .await
            .unwrap(),
        []
    );
    let lease = scene.delivered(Owner::Released).await;
    scene.send("HSET p:{q}:cfg paused 1").await;
    assert_eq!(
        scene
            .store
            .take_released(&scene.q, &me(), 10)
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        scene.owner(lease.entry).await,
        Some(("~released".to_owned(), 1))
    );
    scene.send("HDEL p:{q}:cfg paused").await;
    // Grace keeps nobody from work that was handed back.
    scene.send("HSET p:{q}:cfg grace_end 99999999999999").await;
    assert_eq!(
        scene
            .store
            .take_released(&scene.q, &me(), 10)
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_large_body_ends_the_page_and_an_entry_deleted_by_hand_is_no_work() {
    let scene = Scene::new().await;
    let body = "x".repeat(150 * 1024);
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(scene.put_as("r", &body).await);
    }
    scene.read_by("me").await;
    for entry in &all {
        scene.hand(*entry, Owner::Released).await;
    }
    scene.send(&format!("XDEL p:{{q}}:s {}", all[0])).await;
    let taken = scene
        .store
        .take_released(&scene.q, &me(), 10)
        .await
        .unwrap();
    assert_eq!(taken.iter().map(|d| d.entry).collect::<Vec<_>>(), all[1..3]);
    assert!(taken.iter().all(|d| d.has_record));
    assert_eq!(scene.row(all[0]).await, None);
}

#[tokio::test]
async fn the_own_pending_list_is_read_without_a_trace() {
    let scene = Scene::new().await;
    let mut mine = Vec::new();
    for _ in 0..120 {
        mine.push(scene.put().await);
    }
    scene.read_by("me").await;
    scene.delivered(Owner::Another).await;
    scene.send(&format!("XDEL p:{{q}}:s {}", mine[3])).await;
    let before = scene.rows().await;
    let own = scene
        .store
        .own_pending(&scene.q, &me(), EntryId::default(), 110)
        .await
        .unwrap();
    mine.remove(3);
    assert_eq!(own.iter().map(|d| d.entry).collect::<Vec<_>>(), mine[..110]);
    let rest = scene
        .store
        .own_pending(&scene.q, &me(), own[109].entry, 110)
        .await
        .unwrap();
    assert_eq!(
        rest.iter().map(|d| d.entry).collect::<Vec<_>>(),
        mine[110..]
    );
    assert!(own.iter().all(|d| d.count == 1 && d.envelope == "body"));
    // Only the entry that was deleted by hand has left the list.
    let counts = |rows: Vec<Row>| {
        rows.into_iter()
            .map(|row| (row.0, row.1, row.3))
            .collect::<Vec<_>>()
    };
    let mut expected = counts(before);
    expected.remove(3);
    assert_eq!(counts(scene.rows().await), expected);
}

#[tokio::test]
async fn the_count_of_one_entry_is_told_only_to_its_owner() {
    for (owner, count) in [
        (Owner::Me, Some(1)),
        (Owner::Moved, Some(2)),
        (Owner::Another, None),
        (Owner::Gone, None),
    ] {
        let scene = Scene::new().await;
        let lease = scene.delivered(owner).await;
        let found = scene
            .store
            .own_pending_count(&scene.q, &me(), lease.entry)
            .await
            .unwrap();
        assert_eq!(found, count, "{owner:?}");
    }
}

#[tokio::test]
async fn a_server_that_leaves_takes_its_consumer_along_only_when_it_holds_nothing() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    scene.renew(&[(lease.entry, 1)]).await;
    scene
        .send("HSET p:{q}:cfg upkeep me upkeep_end 99999999999999")
        .await;
    assert!(!scene.store.server_leave(&scene.q, &me()).await.unwrap());
    assert_eq!(scene.owner(lease.entry).await, Some(("me".to_owned(), 1)));
    assert_eq!(scene.send("EXISTS p:{q}:servers").await, Reply::Int(0));
    assert_eq!(scene.send("HEXISTS p:{q}:cfg upkeep").await, Reply::Int(0));

    scene.settle_one(lease.entry).await;
    assert!(scene.store.server_leave(&scene.q, &me()).await.unwrap());
    assert_eq!(
        scene.send("XINFO CONSUMERS p:{q}:s servers").await,
        Reply::Array(Vec::new())
    );
    scene.send("DEL p:{q}:s").await;
    assert!(scene.store.server_leave(&scene.q, &me()).await.unwrap());
}

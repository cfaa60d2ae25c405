//! `settle`: the first completion of an entry wins, whoever sends it.

use super::*;

#[tokio::test]
async fn a_completion_wins_whoever_owns_the_entry() {
    for owner in [
        Owner::Me,
        Owner::Moved,
        Owner::Another,
        Owner::AnotherSameCount,
        Owner::Released,
    ] {
        let scene = Scene::new().await;
        let lease = scene.delivered(owner).await;
        assert_eq!(
            scene.settle_one(lease.entry).await,
            Settled::Won,
            "{owner:?}"
        );
        assert_eq!(
            scene.told().await,
            [format!("done-{}", lease.entry)],
            "{owner:?}"
        );
        assert_eq!(
            (scene.rows().await, scene.in_stream().await),
            (vec![], 0),
            "{owner:?}"
        );
    }
}

#[tokio::test]
async fn the_second_completion_is_gone_and_tells_nobody() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    assert_eq!(scene.settle_one(lease.entry).await, Settled::Won);
    assert_eq!(scene.settle_one(lease.entry).await, Settled::Gone);
    assert_eq!(scene.told().await.len(), 1);
    assert_eq!(scene.counted("succeeded").await, 1);
}

#[tokio::test]
async fn one_gone_entry_does_not_spoil_its_batch() {
    let scene = Scene::new().await;
    let entries = [scene.put().await, scene.put().await, scene.put().await];
    scene.read_by("me").await;
    scene.hand(entries[1], Owner::Gone).await;
    let batch = entries.map(success);
    let settled = scene
        .store
        .settle(&scene.q, &me(), &batch, false)
        .await
        .unwrap();
    assert_eq!(settled, [Settled::Won, Settled::Gone, Settled::Won]);
    assert_eq!(
        scene.told().await,
        [
            format!("done-{}", entries[0]),
            format!("done-{}", entries[2])
        ]
    );
    assert_eq!(scene.counted("succeeded").await, 2);
    assert_eq!((scene.rows().await, scene.in_stream().await), (vec![], 0));
}

#[tokio::test]
async fn an_entry_that_stands_twice_in_a_batch_wins_once() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    let batch = [success(lease.entry), success(lease.entry)];
    let settled = scene
        .store
        .settle(&scene.q, &me(), &batch, false)
        .await
        .unwrap();
    assert_eq!(settled, [Settled::Won, Settled::Gone]);
    assert_eq!(scene.told().await.len(), 1);
}

#[tokio::test]
async fn more_than_one_script_takes_is_settled_in_pages() {
    let scene = Scene::new().await;
    let mut entries = Vec::new();
    for _ in 0..230 {
        entries.push(scene.put().await);
    }
    scene.read_by("me").await;
    scene.hand(entries[150], Owner::Gone).await;
    let batch: Vec<Success> = entries.iter().copied().map(success).collect();
    let settled = scene
        .store
        .settle(&scene.q, &me(), &batch, false)
        .await
        .unwrap();
    let gone: Vec<usize> = (0..settled.len())
        .filter(|item| settled[*item] == Settled::Gone)
        .collect();
    assert_eq!((settled.len(), gone), (230, vec![150]));
    assert_eq!(scene.told().await.len(), 229);
}

#[tokio::test]
async fn each_client_is_told_its_own_and_a_dead_one_nothing() {
    let scene = Scene::new().await;
    scene.send("ZADD p:{q}:clients 1 second").await;
    let entries = [
        scene.put().await,
        scene.put().await,
        scene.put().await,
        scene.put().await,
    ];
    scene.read_by("me").await;
    let clients = [Some("second"), None, Some("waiter"), Some("dead")];
    let batch: Vec<Success> = entries
        .iter()
        .zip(clients)
        .map(|(entry, client)| Success {
            client: client.map(|client| ClientId::new(client).unwrap()),
            ..success(*entry)
        })
        .collect();
    let settled = scene
        .store
        .settle(&scene.q, &me(), &batch, false)
        .await
        .unwrap();
    assert_eq!(settled, [Settled::Won; 4]);
    assert_eq!(scene.told().await, [format!("done-{}", entries[2])]);
    assert_eq!(scene.send("XLEN p:{q}:r:second").await, Reply::Int(1));
    assert_eq!(scene.send("EXISTS p:{q}:r:dead").await, Reply::Int(0));
}

#[tokio::test]
async fn a_record_goes_only_if_it_names_the_entry() {
    let scene = Scene::new().await;
    for (named, stays) in [(true, false), (false, true)] {
        let entry = scene.put_as("r", "body").await;
        scene.read_by("me").await;
        let later = EntryId {
            millis: entry.millis,
            sequence: entry.sequence + 1,
        };
        scene
            .write_record(&task(), "pending", Some(if named { entry } else { later }))
            .await;
        let batch = [Success {
            record: Some(task()),
            ..success(entry)
        }];
        let settled = scene
            .store
            .settle(&scene.q, &me(), &batch, false)
            .await
            .unwrap();
        assert_eq!(settled, [Settled::Won]);
        assert_eq!(scene.record(&task()).await.is_some(), stays);
    }
}

#[tokio::test]
async fn the_record_of_a_gone_entry_stays() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Gone).await;
    scene
        .write_record(&task(), "pending", Some(lease.entry))
        .await;
    let batch = [Success {
        record: Some(task()),
        ..success(lease.entry)
    }];
    let settled = scene
        .store
        .settle(&scene.q, &me(), &batch, false)
        .await
        .unwrap();
    assert_eq!(settled, [Settled::Gone]);
    assert!(scene.record(&task()).await.is_some());
}

#[tokio::test]
async fn the_fields_of_an_entry_go_with_it() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    scene
        .send(&format!("HSET p:{{q}}:cancel {} 1", lease.entry))
        .await;
    scene
        .send(&format!("HSET p:{{q}}:crashes {} 1 9-9 1", lease.entry))
        .await;
    assert_eq!(scene.settle_one(lease.entry).await, Settled::Won);
    assert_eq!(scene.send("EXISTS p:{q}:cancel").await, Reply::Int(0));
    assert_eq!(
        scene
            .send("HKEYS p:{q}:crashes")
            .await
            .array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn strict_wins_only_what_is_pending_with_me_and_deletes_nothing_else() {
    let scene = Scene::new().await;
    let mine = scene.delivered(Owner::Me).await.entry;
    let others = scene.delivered(Owner::Another).await.entry;
    let new = scene.put().await;
    let batch = [success(mine), success(others), success(new)];
    let settled = scene
        .store
        .settle(&scene.q, &me(), &batch, true)
        .await
        .unwrap();
    assert_eq!(settled, [Settled::Won, Settled::Gone, Settled::Gone]);
    assert_eq!(scene.owner(others).await, Some(("other".to_owned(), 2)));
    assert_eq!(scene.in_stream().await, 2);
    assert_eq!(scene.told().await, [format!("done-{mine}")]);
}

#[tokio::test]
async fn counters_are_kept_by_minute_and_by_day_and_expire() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    let minutes = scene.now().await / 60_000;
    scene.settle_one(lease.entry).await;
    let (hour, day) = (minutes / 60, minutes / 1440);
    let field = format!("{}:succeeded", minutes % 60);
    // The minute may turn between the look at the clock and the settle.
    let counted = scene.send(&format!("HVALS p:{{q}}:n:{hour}")).await;
    assert_eq!(counted.array().unwrap().len(), 1, "{field}");
    assert_eq!(
        scene
            .send(&format!("HGET p:{{q}}:n:d:{day} succeeded"))
            .await
            .u64()
            .unwrap(),
        1
    );
    let expires = scene
        .send(&format!("TTL p:{{q}}:n:{hour}"))
        .await
        .u64()
        .unwrap();
    assert!((47 * 3600..=48 * 3600).contains(&expires), "{expires}");
    let expires = scene
        .send(&format!("TTL p:{{q}}:n:d:{day}"))
        .await
        .u64()
        .unwrap();
    assert!((89 * 86_400..=90 * 86_400).contains(&expires), "{expires}");
}

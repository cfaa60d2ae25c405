//! `park` and `unpark`: a task that a server does not know waits for one that does.

use super::*;
use crate::state::TaskState;

#[tokio::test]
async fn a_parked_task_keeps_its_crashes_and_comes_back_with_them() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    scene
        .send(&format!("HSET p:{{q}}:crashes {} 2", lease.entry))
        .await;
    assert!(scene.park(&lease).await.unwrap());
    let parked = scene.record(&task()).await.unwrap();
    assert_eq!(
        (parked.state, parked.crashes, parked.entry),
        (TaskState::Parked, 2, None)
    );
    assert_eq!(
        (parked.client, parked.envelope.as_ref()),
        (Some(waiter()), &b"body"[..])
    );
    assert_eq!(scene.store.parked_names(&scene.q).await.unwrap(), ["job"]);
    let since = scene
        .send("ZSCORE p:{q}:unknown:job task-1")
        .await
        .u64()
        .unwrap();
    assert_eq!(parked.parked_since.unwrap().0, since);
    assert_eq!(
        (
            scene.in_stream().await,
            scene.send("EXISTS p:{q}:crashes").await
        ),
        (0, Reply::Int(0))
    );

    assert_eq!(scene.store.unpark(&scene.q, "job", 100).await.unwrap(), 1);
    let back = scene.record(&task()).await.unwrap();
    let entry = back.entry.unwrap();
    assert_eq!(
        (back.state, back.parked_since.unwrap().0),
        (TaskState::Pending, since)
    );
    assert_eq!(
        scene
            .send(&format!("HGET p:{{q}}:crashes {entry}"))
            .await
            .u64()
            .unwrap(),
        2
    );
    let found = scene.send("XRANGE p:{q}:s - +").await.into_entries();
    let field = found[0].first_field().unwrap();
    assert_eq!(
        (found[0].id, field.0.as_ref(), field.1.as_ref()),
        (entry, &b"r"[..], &b"body"[..])
    );
    assert_eq!(
        scene.send("EXISTS p:{q}:unknown p:{q}:unknown:job").await,
        Reply::Int(0)
    );
}

#[tokio::test]
async fn a_task_that_is_parked_again_and_again_keeps_the_first_time() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    assert!(scene.park(&lease).await.unwrap());
    let first = scene.record(&task()).await.unwrap().parked_since;
    assert_eq!(scene.store.unpark(&scene.q, "job", 1).await.unwrap(), 1);
    scene.read_by("me").await;
    let entry = scene.record(&task()).await.unwrap().entry.unwrap();
    assert!(scene.park(&scene.lease(entry)).await.unwrap());
    assert_eq!(scene.record(&task()).await.unwrap().parked_since, first);
}

#[tokio::test]
async fn a_stale_owner_parks_nothing() {
    for owner in NOT_ME {
        let scene = Scene::new().await;
        let lease = scene.delivered(owner).await;
        let before = scene.everything().await;
        assert!(!scene.park(&lease).await.unwrap(), "{owner:?}");
        assert_eq!(scene.everything().await, before, "{owner:?}");
    }
}

#[tokio::test]
async fn a_flagged_task_is_cancelled_instead_of_parked() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    scene
        .send(&format!("HSET p:{{q}}:cancel {} 1", lease.entry))
        .await;
    assert!(scene.park(&lease).await.unwrap());
    assert_eq!(scene.told().await, ["was-cancelled"]);
    assert_eq!(
        scene
            .send("EXISTS p:{q}:tasks p:{q}:unknown p:{q}:cancel p:{q}:unknown:job")
            .await,
        Reply::Int(0)
    );
}

#[tokio::test]
async fn a_task_of_an_unknown_version_waits_under_its_version() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    let park = Parking {
        lease: &lease,
        task: &task(),
        name: "job",
        version: Some(2),
        client: None,
        envelope: &Bytes::from_static(b"newer"),
        cancelled_notice: &Bytes::new(),
    };
    assert!(scene.store.park(&park, &me()).await.unwrap());
    assert_eq!(scene.store.parked_names(&scene.q).await.unwrap(), ["job@2"]);
    assert_eq!(scene.store.unpark(&scene.q, "job", 10).await.unwrap(), 0);
    assert_eq!(scene.store.unpark(&scene.q, "job@2", 0).await.unwrap(), 0);
    assert_eq!(scene.store.unpark(&scene.q, "job@2", 10).await.unwrap(), 1);
    assert_eq!(scene.record(&task()).await.unwrap().name, "job");
}

#[tokio::test]
async fn a_parked_id_without_a_record_is_dropped() {
    let scene = Scene::new().await;
    scene.send("SADD p:{q}:unknown job").await;
    scene.send("ZADD p:{q}:unknown:job 1 nobody").await;
    assert_eq!(scene.store.unpark(&scene.q, "job", 10).await.unwrap(), 0);
    assert_eq!(
        scene.send("EXISTS p:{q}:unknown p:{q}:unknown:job").await,
        Reply::Int(0)
    );
}

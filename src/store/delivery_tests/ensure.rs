//! `ensure`: a queue is there, and its epoch says whether its data still is.

use super::*;

const LAST_ID: &str = "18446744073709551615-18446744073709551615";

async fn position(scene: &Scene) -> String {
    let groups = scene.send("XINFO GROUPS p:{q}:s").await;
    let group = groups.array().unwrap()[0].array().unwrap().to_vec();
    let at = group
        .iter()
        .position(|f| f.text().is_ok_and(|f| f == "last-delivered-id"))
        .unwrap();
    group[at + 1].text().unwrap().to_owned()
}

#[tokio::test]
async fn a_known_queue_keeps_its_epoch() {
    let scene = Scene::new().await;
    let first = scene.store.ensure(&scene.q).await.unwrap();
    let again = scene.store.ensure(&scene.q).await.unwrap();
    assert_eq!((again.created, &again.epoch), (false, &first.epoch));
    assert_eq!(first.epoch.len(), 32);
    assert_eq!(
        scene.send("SMEMBERS p:queues").await,
        Reply::Array(vec![Reply::Bytes("q".into())])
    );
}

#[tokio::test]
async fn a_lost_stream_or_group_makes_a_new_epoch_and_new_work_is_delivered() {
    for lose in ["DEL p:{q}:s", "XGROUP DESTROY p:{q}:s servers"] {
        let scene = Scene::new().await;
        scene.put().await;
        let before = scene.store.ensure(&scene.q).await.unwrap();
        scene.send(lose).await;
        let after = scene.store.ensure(&scene.q).await.unwrap();
        assert!(after.created && after.epoch != before.epoch, "{lose}");
        assert_eq!(position(&scene).await, "0-0");
        let entry = scene.put().await;
        scene.read_by("me").await;
        assert_eq!(scene.owner(entry).await, Some(("me".to_owned(), 1)));
    }
}

#[tokio::test]
async fn after_flushall_the_queue_is_new_and_nothing_known_was_lost() {
    let scene = Scene::new().await;
    scene.send("FLUSHALL").await;
    assert!(!scene.store.ensure(&scene.q).await.unwrap().created);
}

#[tokio::test]
async fn a_paused_queue_whose_group_is_lost_stays_paused_and_resumes_at_its_start() {
    let scene = Scene::new().await;
    scene
        .send("HSET p:{q}:cfg paused 1 paused_position 5-5")
        .await;
    scene.send("DEL p:{q}:s").await;
    assert!(scene.store.ensure(&scene.q).await.unwrap().created);
    assert_eq!(position(&scene).await, LAST_ID);
    assert_eq!(
        scene
            .send("HGET p:{q}:cfg paused_position")
            .await
            .text()
            .unwrap(),
        "0-0"
    );
}

#[tokio::test]
async fn a_queue_that_lost_its_settings_while_paused_goes_on_behind_what_was_delivered() {
    let scene = Scene::new().await;
    let active = scene.delivered(Owner::Me).await.entry;
    let pending = scene.put().await;
    scene
        .send(&format!("XGROUP SETID p:{{q}}:s servers {LAST_ID}"))
        .await;
    scene.send("DEL p:{q}:cfg").await;
    assert!(!scene.store.ensure(&scene.q).await.unwrap().created);
    scene.read_by("other").await;
    assert_eq!(scene.owner(active).await, Some(("me".to_owned(), 1)));
    assert_eq!(scene.owner(pending).await, Some(("other".to_owned(), 1)));
}

#[tokio::test]
async fn a_layout_of_another_version_is_refused() {
    let scene = Scene::new().await;
    scene.send("HSET p:{q}:cfg layout 2").await;
    let error = scene.store.ensure(&scene.q).await.unwrap_err();
    assert_eq!(error.kind(), crate::error::BackendKind::Fatal);
    assert!(error.to_string().contains("layout version 2"), "{error}");
}

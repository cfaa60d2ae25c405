//! Last sign, grace and the upkeep lock: a Redis that was away never looks like dead workers.

use super::*;
use crate::store::upkeep_lock::Upkeep;

const HOLD: Duration = Duration::from_secs(40);

async fn lock(scene: &Scene, consumer: &str) -> Upkeep {
    let consumer = ConsumerId::new(consumer).unwrap();
    scene
        .store
        .upkeep_lock(&scene.q, &consumer, HOLD, QUIET, LEASE)
        .await
        .unwrap()
}

/// Everything that looks at the last sign.
#[derive(Clone, Copy, Debug)]
enum Sign {
    Renew,
    Reclaim,
    Start,
    Lock,
}

async fn sign(scene: &Scene, sign: Sign) {
    match sign {
        Sign::Renew => _ = scene.renew(&[]).await,
        Sign::Reclaim => _ = scene.reclaim(1, true).await,
        Sign::Start => {
            let started = scene.store.ensure_serving(&scene.q, QUIET, LEASE).await;
            started.unwrap();
        }
        Sign::Lock => _ = lock(scene, "me").await,
    }
}

#[tokio::test]
async fn after_a_quiet_gap_whoever_comes_first_begins_grace_once() {
    for first in [Sign::Renew, Sign::Reclaim, Sign::Start, Sign::Lock] {
        let scene = Scene::new().await;
        let quiet = scene.now().await - 65_000;
        scene
            .send(&format!("HSET p:{{q}}:cfg last_sign {quiet} grace_end 0"))
            .await;
        let before = scene.now().await;
        sign(&scene, first).await;
        let grace_end = scene.cfg("grace_end").await.unwrap();
        let after = scene.now().await;
        assert!(
            (before + 150_000..=after + 150_000).contains(&grace_end),
            "{first:?} {grace_end}"
        );
        for next in [Sign::Renew, Sign::Reclaim, Sign::Start, Sign::Lock] {
            sign(&scene, next).await;
        }
        assert_eq!(
            scene.cfg("grace_end").await,
            Some(grace_end),
            "{first:?}: grace began twice"
        );
        assert_eq!(scene.cfg("restamp").await, None);
    }
}

#[tokio::test]
async fn a_gap_that_is_not_quiet_begins_no_grace() {
    let scene = Scene::new().await;
    let seen = scene.now().await - 40_000;
    scene
        .send(&format!("HSET p:{{q}}:cfg last_sign {seen} grace_end 0"))
        .await;
    sign(&scene, Sign::Renew).await;
    assert_eq!(scene.cfg("grace_end").await, Some(0));
}

#[tokio::test]
async fn a_queue_that_no_server_ever_served_begins_with_grace() {
    let scene = Scene::new().await;
    scene.send("HDEL p:{q}:cfg last_sign grace_end").await;
    scene.store.ensure(&scene.q).await.unwrap();
    assert_eq!(
        scene.cfg("last_sign").await,
        None,
        "a client is no sign of a server"
    );
    sign(&scene, Sign::Reclaim).await;
    assert!(scene.cfg("grace_end").await.unwrap() > scene.now().await + 100_000);
}

#[tokio::test]
async fn a_grace_end_is_never_more_than_two_leases_ahead() {
    let scene = Scene::new().await;
    scene.send("HSET p:{q}:cfg grace_end 99999999999999").await;
    sign(&scene, Sign::Renew).await;
    assert!(scene.cfg("grace_end").await.unwrap() <= scene.now().await + 300_000);
}

#[tokio::test]
async fn after_a_clock_step_back_every_pending_entry_is_stamped_anew() {
    let scene = Scene::new().await;
    for _ in 0..150 {
        scene.put().await;
    }
    scene.read_by("other").await;
    let future = scene.now().await + 3_600_000;
    for row in scene.rows().await {
        scene
            .send(&format!(
                "XCLAIM p:{{q}}:s servers other 0 {} TIME {future} JUSTID",
                row.0
            ))
            .await;
    }
    let handed = scene.rows().await[7].0;
    scene
        .send(&format!(
            "XCLAIM p:{{q}}:s servers ~released 0 {handed} TIME {future} JUSTID"
        ))
        .await;
    scene
        .send(&format!("HSET p:{{q}}:cfg last_sign {future} grace_end 0"))
        .await;

    // Renew sees the step first; the pending list is the business of reclaim.
    scene.renew(&[]).await;
    assert!(scene.cfg("last_sign").await.unwrap() < future);
    assert!(scene.cfg("grace_end").await.unwrap() > scene.now().await);
    let mut cursor = ReclaimCursor::default();
    assert!(scene.reclaim_from(10, true, &mut cursor).await.more);
    assert!(!scene.reclaim_from(10, true, &mut cursor).await.more);
    assert_eq!(scene.cfg("restamp").await, None);

    super::super::tests_server::until("idle times run again", async || {
        scene.rows().await.iter().all(|row| row.2 > 0)
    })
    .await;
    for (n, row) in scene.rows().await.into_iter().enumerate() {
        let owner = if n == 7 { "~released" } else { "other" };
        assert_eq!((row.1.as_str(), row.3), (owner, 1));
    }
}

#[tokio::test]
async fn one_server_at_a_time_has_the_upkeep_and_the_next_follows_a_dead_one() {
    let scene = Scene::new().await;
    scene.renew(&[]).await;
    let mine = lock(&scene, "me").await;
    assert_eq!(
        (mine.mine, mine.servers_seen, mine.next_due, mine.paused),
        (true, 1, None, false)
    );
    assert!(!lock(&scene, "other").await.mine);
    assert!(lock(&scene, "me").await.mine);
    scene
        .send(&format!(
            "HSET p:{{q}}:cfg upkeep_end {}",
            scene.now().await
        ))
        .await;
    assert!(lock(&scene, "other").await.mine);
    // Written before the clock stepped back: nobody may hold it for so long.
    scene.send("HSET p:{q}:cfg upkeep_end 99999999999999").await;
    assert!(lock(&scene, "me").await.mine);
}

#[tokio::test]
async fn the_lock_says_what_is_due_and_when_a_pause_is_over() {
    let scene = Scene::new().await;
    scene.send("ZADD p:{q}:retry 300 a").await;
    scene.send("ZADD p:{q}:scheduled 200 b").await;
    assert_eq!(lock(&scene, "me").await.next_due.unwrap().0, 200);
    scene
        .send(&format!(
            "HSET p:{{q}}:cfg paused 1 paused_until {}",
            scene.now().await + 60_000
        ))
        .await;
    let paused = lock(&scene, "me").await;
    assert_eq!((paused.paused, paused.pause_is_over), (true, false));
    scene.send("HSET p:{q}:cfg paused_until 5").await;
    assert!(lock(&scene, "me").await.pause_is_over);
}

#[tokio::test]
async fn the_holder_repeats_the_wake_up_while_released_work_is_left() {
    let scene = Scene::new().await;
    scene.delivered(Owner::Released).await;
    let mut wakes = Wakes::of(&scene).await;
    lock(&scene, "me").await;
    lock(&scene, "other").await;
    assert_eq!(wakes.so_far(&scene).await, ["released"]);
    scene.send("HSET p:{q}:cfg paused 1").await;
    lock(&scene, "me").await;
    assert_eq!(wakes.so_far(&scene).await, [""; 0]);
    scene.send("HDEL p:{q}:cfg paused").await;
    scene.store.take_released(&scene.q, &me(), 1).await.unwrap();
    lock(&scene, "me").await;
    assert_eq!(wakes.so_far(&scene).await, [""; 0]);
}

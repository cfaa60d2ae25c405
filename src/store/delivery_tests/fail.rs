//! `fail` and `begin`: only the very delivery that is still mine may end its task without success.

use super::*;
use crate::state::TaskState;

#[tokio::test]
async fn a_failure_of_mine_waits_in_redis_for_its_next_attempt() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    let before = scene.now().await;
    assert_eq!(scene.fail(&lease, retry()).await.unwrap(), Failed::Done);
    let after = scene.now().await;
    assert_eq!((scene.rows().await, scene.in_stream().await), (vec![], 0));
    let record = scene.record(&task()).await.unwrap();
    assert_eq!(record.state, TaskState::Retry);
    assert_eq!(
        (record.envelope.as_ref(), record.name.as_str()),
        (&b"next"[..], "job")
    );
    assert_eq!(
        (record.error.as_deref(), record.reason.as_deref()),
        (Some("no luck"), Some("failed"))
    );
    assert_eq!((record.client, record.entry), (Some(waiter()), None));
    let due = record.due.unwrap().0;
    assert!((before + 60_000..=after + 60_000).contains(&due), "{due}");
    assert_eq!(
        scene.send("ZSCORE p:{q}:retry task-1").await.u64().unwrap(),
        due
    );
    assert_eq!(
        (
            scene.counted("failed").await,
            scene.counted("retried").await
        ),
        (1, 1)
    );
    assert_eq!(scene.told().await, [""; 0]);
}

#[tokio::test]
async fn a_stale_owner_can_end_nothing() {
    for owner in NOT_ME {
        let scene = Scene::new().await;
        let lease = scene.delivered(owner).await;
        let before = scene.everything().await;
        for verdict in [
            retry(),
            archive(),
            Verdict::Snooze { delay: INTERVAL },
            Verdict::Cancel {
                notice: Bytes::new(),
            },
            Verdict::Expire {
                notice: Bytes::new(),
            },
            Verdict::Discard {
                notice: Bytes::new(),
            },
        ] {
            let refused = scene.fail(&lease, verdict.clone()).await.unwrap();
            assert_eq!(refused, Failed::Refused, "{owner:?} {verdict:?}");
        }
        assert_eq!(
            scene.store.begin(&lease, &me()).await.unwrap(),
            None,
            "{owner:?}"
        );
        assert_eq!(scene.everything().await, before, "{owner:?}");
    }
}

#[tokio::test]
async fn a_cancel_flag_wins_over_every_verdict() {
    for verdict in [retry(), archive(), Verdict::Snooze { delay: INTERVAL }] {
        let scene = Scene::new().await;
        let lease = scene.delivered(Owner::Me).await;
        scene
            .write_record(&task(), "pending", Some(lease.entry))
            .await;
        scene
            .send(&format!("HSET p:{{q}}:cancel {} 1", lease.entry))
            .await;
        assert_eq!(
            scene.fail(&lease, verdict).await.unwrap(),
            Failed::Cancelled
        );
        assert_eq!(scene.told().await, ["was-cancelled"]);
        assert_eq!(scene.record(&task()).await, None);
        assert_eq!(
            scene
                .send("EXISTS p:{q}:cancel p:{q}:retry p:{q}:archived p:{q}:scheduled")
                .await,
            Reply::Int(0)
        );
        assert_eq!(
            (
                scene.counted("cancelled").await,
                scene.counted("failed").await
            ),
            (1, 0)
        );
    }
}

#[tokio::test]
async fn a_task_that_ends_without_a_place_leaves_nothing() {
    let notice = || Bytes::from_static(b"ended");
    for (verdict, word) in [
        (Verdict::Cancel { notice: notice() }, "cancelled"),
        (Verdict::Expire { notice: notice() }, "expired"),
        (Verdict::Discard { notice: notice() }, "discarded"),
    ] {
        let scene = Scene::new().await;
        let lease = scene.delivered(Owner::Me).await;
        scene
            .write_record(&task(), "pending", Some(lease.entry))
            .await;
        scene
            .send(&format!("HSET p:{{q}}:crashes {} 2", lease.entry))
            .await;
        assert_eq!(scene.fail(&lease, verdict).await.unwrap(), Failed::Done);
        assert_eq!(scene.told().await, ["ended"]);
        assert_eq!(
            scene.send("EXISTS p:{q}:tasks p:{q}:crashes").await,
            Reply::Int(0)
        );
        assert_eq!((scene.counted(word).await, scene.in_stream().await), (1, 0));
    }
}

#[tokio::test]
async fn an_archived_task_is_kept_and_its_waiter_is_told() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    assert_eq!(scene.fail(&lease, archive()).await.unwrap(), Failed::Done);
    let record = scene.record(&task()).await.unwrap();
    assert_eq!(
        (record.state, record.reason.as_deref()),
        (TaskState::Archived, Some("failed"))
    );
    assert_eq!(
        (record.entry, record.due, record.client),
        (None, None, None)
    );
    let score = scene
        .send("ZSCORE p:{q}:archived task-1")
        .await
        .u64()
        .unwrap();
    assert_eq!(record.ended_at.unwrap().0, score);
    assert_eq!(scene.told().await, ["archived"]);
    assert_eq!(
        (
            scene.counted("archived").await,
            scene.counted("failed").await
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn an_error_text_of_a_megabyte_is_cut() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    let error = "é".repeat(500_000);
    let verdict = Verdict::Retry {
        delay: INTERVAL,
        error: &error,
        reason: "failed",
    };
    assert_eq!(scene.fail(&lease, verdict).await.unwrap(), Failed::Done);
    assert_eq!(
        scene.record(&task()).await.unwrap().error.unwrap().len(),
        8192
    );
}

#[tokio::test]
async fn the_archive_drops_its_oldest_with_their_records_a_hundred_at_a_time() {
    let scene = Scene::new().await;
    let old = Bytes::from_static(
        b"for i = 1, 10150 do redis.call('ZADD', KEYS[1], tonumber(ARGV[1]) + i, 'old' .. i) \
          redis.call('HSET', KEYS[2], 'old' .. i, 'x') end",
    );
    let now = scene.now().await;
    let words =
        ["2", "p:{q}:archived", "p:{q}:tasks"].map(|word| Bytes::from_static(word.as_bytes()));
    let args = [old]
        .into_iter()
        .chain(words)
        .chain([Bytes::from((now - 20_000).to_string())])
        .collect();
    scene
        .store
        .conn()
        .command("EVAL", None, args)
        .await
        .unwrap();
    let lease = scene.delivered(Owner::Me).await;
    scene.fail(&lease, archive()).await.unwrap();
    assert_eq!(scene.send("ZCARD p:{q}:archived").await, Reply::Int(10_051));
    assert_eq!(scene.send("HLEN p:{q}:tasks").await, Reply::Int(10_051));
    assert_eq!(
        scene.send("HEXISTS p:{q}:tasks old100").await,
        Reply::Int(0)
    );
    assert_eq!(
        scene.send("HEXISTS p:{q}:tasks old101").await,
        Reply::Int(1)
    );
}

#[tokio::test]
async fn the_archive_keeps_what_the_servers_settings_say() {
    let mut scene = Scene::new().await;
    scene.archive_keep = Duration::from_secs(3650 * 24 * 3600);
    let year_ago = scene.now().await - 365 * 24 * 3_600_000;
    for (later, id) in [(0, "older"), (1, "old")] {
        let score = year_ago + later;
        scene
            .send(&format!("ZADD p:{{q}}:archived {score} {id}"))
            .await;
        scene
            .write_record(&TaskId::new(id).unwrap(), "archived", None)
            .await;
    }
    scene.archive_most = 2;
    let lease = scene.delivered(Owner::Me).await;
    scene.fail(&lease, archive()).await.unwrap();
    let left = |id| format!("HEXISTS p:{{q}}:tasks {id}");
    assert_eq!(scene.send("ZCARD p:{q}:archived").await, Reply::Int(2));
    assert_eq!(scene.send(&left("older")).await, Reply::Int(0));
    assert_eq!(scene.send(&left("old")).await, Reply::Int(1));
}

#[tokio::test]
async fn the_archive_drops_what_is_older_than_ninety_days() {
    let scene = Scene::new().await;
    let old = scene.now().await - 90 * 86_400_000 - 1000;
    scene
        .send(&format!(
            "ZADD p:{{q}}:archived {old} ancient {} young",
            old + 60_000
        ))
        .await;
    scene
        .write_record(&TaskId::new("ancient").unwrap(), "archived", None)
        .await;
    let lease = scene.delivered(Owner::Me).await;
    scene.fail(&lease, archive()).await.unwrap();
    assert_eq!(scene.send("ZCARD p:{q}:archived").await, Reply::Int(2));
    assert_eq!(scene.record(&TaskId::new("ancient").unwrap()).await, None);
}

#[tokio::test]
async fn a_snooze_keeps_the_last_error_and_is_no_failure() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    scene
        .write_record(&task(), "pending", Some(lease.entry))
        .await;
    let verdict = Verdict::Snooze { delay: INTERVAL };
    assert_eq!(scene.fail(&lease, verdict).await.unwrap(), Failed::Done);
    let record = scene.record(&task()).await.unwrap();
    assert_eq!(
        (record.state, record.error.as_deref()),
        (TaskState::Scheduled, Some("old error"))
    );
    assert_eq!(scene.send("ZCARD p:{q}:scheduled").await, Reply::Int(1));
    assert_eq!(scene.counted("failed").await, 0);
}

#[tokio::test]
async fn a_left_over_entry_goes_without_touching_the_record_that_names_another() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    scene.write_record(&task(), "retry", None).await;
    let record = scene.record(&task()).await;
    assert_eq!(scene.fail(&lease, archive()).await.unwrap(), Failed::Done);
    assert_eq!(scene.record(&task()).await, record);
    assert_eq!(scene.told().await, [""; 0]);
    assert_eq!(scene.in_stream().await, 0);
}

#[tokio::test]
async fn only_a_new_earliest_due_time_wakes_the_promoters() {
    let scene = Scene::new().await;
    let mut wakes = Wakes::of(&scene).await;
    for (delay, heard) in [(60, true), (90, false), (30, true)] {
        let lease = scene.delivered(Owner::Me).await;
        let delay = Duration::from_secs(delay);
        let verdict = Verdict::Retry {
            delay,
            error: "",
            reason: "failed",
        };
        assert_eq!(scene.fail(&lease, verdict).await.unwrap(), Failed::Done);
        let due = scene.send("ZSCORE p:{q}:retry task-1").await.u64().unwrap();
        // The next one finds it among the scheduled, and its task without a record.
        scene
            .send(&format!("ZADD p:{{q}}:scheduled {due} kept-{due}"))
            .await;
        scene.send("DEL p:{q}:retry p:{q}:tasks").await;
        let expected = if heard {
            vec![format!("due {due}")]
        } else {
            Vec::new()
        };
        assert_eq!(wakes.so_far(&scene).await, expected, "{delay:?}");
    }
}

#[tokio::test]
async fn a_suspect_counts_its_crash_before_it_runs() {
    let scene = Scene::new().await;
    let lease = scene.delivered(Owner::Me).await;
    assert_eq!(scene.store.begin(&lease, &me()).await.unwrap(), Some(1));
    assert_eq!(scene.store.begin(&lease, &me()).await.unwrap(), Some(2));
}

//! Pause and resume.

use std::time::Duration;

use bytes::Bytes;

use super::{Rig, text};
use crate::id::{EntryId, Millis};
use crate::store::NewTask;
use crate::store::keys::GROUP;
use crate::store::tests_server::until;

fn texts<const N: usize>(texts: [&str; N]) -> Vec<NewTask> {
    texts.map(text).to_vec()
}

async fn values(rig: &Rig, entries: &[EntryId]) -> Vec<String> {
    let mut values = Vec::new();
    for entry in entries {
        let id = entry.to_string();
        let reply = rig.raw(["XRANGE", &rig.key("s"), &id, &id]).await;
        let found = reply.into_entries();
        values.push(String::from_utf8(found[0].first_field().unwrap().1.to_vec()).unwrap());
    }
    values
}

async fn pause(rig: &Rig) {
    rig.store
        .pause(&rig.q, "ann", "deploy", None)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_paused_queue_delivers_nothing_and_a_resumed_one_everything_in_order() {
    let rig = Rig::start().await;
    rig.enqueue(1, &texts(["a", "b", "c"])).await;
    let first = rig.deliver("w", 1).await;
    pause(&rig).await;
    rig.enqueue(2, &texts(["d", "e"])).await;
    assert!(rig.deliver("w", 10).await.is_empty());
    assert!(rig.store.resume(&rig.q).await.unwrap());
    let rest = rig.deliver("w", 10).await;
    assert_eq!(values(&rig, &first).await, ["a"]);
    assert_eq!(values(&rig, &rest).await, ["b", "c", "d", "e"]);
    assert!(rig.store.counts(&rig.q).await.unwrap().paused.is_none());
    assert!(!rig.store.resume(&rig.q).await.unwrap());
}

#[tokio::test]
async fn not_even_a_blocked_reader_receives_anything_while_paused() {
    let rig = Rig::start().await;
    let reader = rig.reader().await;
    let keys = [Bytes::from(rig.key("s"))];
    let blocked = async {
        let block = Some(Duration::from_millis(1_500));
        reader
            .read_group(GROUP, "w", 10, block, &keys)
            .await
            .unwrap()
    };
    let meanwhile = async {
        until("the reader is blocked", async || {
            let info = rig.raw(["INFO", "clients"]).await;
            info.text().unwrap().contains("blocked_clients:1")
        })
        .await;
        pause(&rig).await;
        rig.enqueue(1, &texts(["a"])).await;
    };
    let (read, ()) = tokio::join!(blocked, meanwhile);
    assert!(read.is_empty(), "{read:?}");
    assert_eq!(rig.entries().await, 1);
    rig.store.resume(&rig.q).await.unwrap();
    assert_eq!(rig.deliver("w", 10).await.len(), 1);
}

#[tokio::test]
async fn pausing_again_changes_the_reason_and_keeps_the_position() {
    let rig = Rig::start().await;
    rig.enqueue(1, &texts(["a", "b"])).await;
    rig.deliver("w", 1).await;
    pause(&rig).await;
    let first = rig.store.counts(&rig.q).await.unwrap().paused.unwrap();
    assert_eq!(
        (first.by.as_str(), first.why.as_str(), first.until),
        ("ann", "deploy", None)
    );
    let until = Millis(first.since.0 + 1_000_000);
    rig.store
        .pause(&rig.q, "bob", "incident", Some(until))
        .await
        .unwrap();
    let second = rig.store.counts(&rig.q).await.unwrap().paused.unwrap();
    assert_eq!(
        (second.by.as_str(), second.why.as_str()),
        ("bob", "incident")
    );
    assert_eq!((second.until, second.since), (Some(until), first.since));
    pause(&rig).await;
    assert_eq!(
        rig.store
            .counts(&rig.q)
            .await
            .unwrap()
            .paused
            .unwrap()
            .until,
        None
    );
    rig.store.resume(&rig.q).await.unwrap();
    let rest = rig.deliver("w", 10).await;
    assert_eq!(values(&rig, &rest).await, ["b"]);
}

#[tokio::test]
async fn a_group_lost_while_paused_stays_paused_and_starts_from_the_beginning() {
    let rig = Rig::start().await;
    rig.enqueue(1, &texts(["a"])).await;
    rig.deliver("w", 1).await;
    pause(&rig).await;
    rig.raw(["DEL", &rig.key("s")]).await;
    // Tasks may come before anybody makes the group again.
    rig.enqueue(2, &texts(["b", "c"])).await;
    let ensured = rig.store.ensure(&rig.q).await.unwrap();
    assert!(ensured.created && ensured.epoch != rig.epoch);
    assert!(rig.deliver("w", 10).await.is_empty());
    assert!(rig.store.resume(&rig.q).await.unwrap());
    let rest = rig.deliver("w", 10).await;
    assert_eq!(values(&rig, &rest).await, ["b", "c"]);
}

#[tokio::test]
async fn resume_makes_a_lost_group_itself_and_pause_too() {
    let rig = Rig::start().await;
    pause(&rig).await;
    rig.raw(["DEL", &rig.key("s")]).await;
    assert!(rig.store.resume(&rig.q).await.unwrap());
    rig.enqueue(1, &texts(["a"])).await;
    assert_eq!(rig.deliver("w", 10).await.len(), 1);

    rig.raw(["DEL", &rig.key("s")]).await;
    pause(&rig).await;
    rig.enqueue(2, &texts(["b"])).await;
    assert!(rig.deliver("w", 10).await.is_empty());
    rig.store.resume(&rig.q).await.unwrap();
    let rest = rig.deliver("w", 10).await;
    assert_eq!(values(&rig, &rest).await, ["b"]);
}

#[tokio::test]
async fn a_pause_with_an_end_is_ended_when_it_is_due_and_no_other() {
    let rig = Rig::start().await;
    assert!(!rig.store.resume_due(&rig.q).await.unwrap());
    pause(&rig).await;
    assert!(!rig.store.resume_due(&rig.q).await.unwrap());
    let until = Millis(rig.now().await.0 + 1_000_000);
    rig.store
        .pause(&rig.q, "ann", "", Some(until))
        .await
        .unwrap();
    assert!(!rig.store.resume_due(&rig.q).await.unwrap());
    rig.store
        .pause(&rig.q, "ann", "", Some(rig.now().await))
        .await
        .unwrap();
    assert!(rig.store.resume_due(&rig.q).await.unwrap());
    assert!(rig.store.counts(&rig.q).await.unwrap().paused.is_none());
}

#[tokio::test]
async fn resume_wakes_the_readers() {
    let rig = Rig::start().await;
    let (_subscriber, mut messages) = rig.wake_ups().await;
    pause(&rig).await;
    rig.store.resume(&rig.q).await.unwrap();
    let message = tokio::time::timeout(Duration::from_secs(5), messages.recv())
        .await
        .unwrap();
    assert_eq!(message.unwrap().1, "resume");
}

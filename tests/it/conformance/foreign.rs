//! What a server finds in its queues that it does not know, cannot read, or did not write.

use std::process::Command;

use streamfleet::{BackendKind, EnqueueError, ResultError, TaskId, TaskState};

use super::app::{Act, App, Later, NotASum, run_later, step, steps};
use super::raw;
use super::world::{SOON, World, archived, archived_task, assert_shape, ended, ms};
use crate::support::eventually;

/// Adds one entry to the stream of the usual queue, as any program can.
async fn add(world: &World, fields: &[&[u8]]) -> String {
    let mut args: Vec<&[u8]> = vec![b"XADD", b"*"];
    args.extend(fields);
    let reply = world.command(world.queue(), "s", &args).await;
    reply.text().unwrap()
}

/// A usual task still passes, and nothing is stuck.
async fn still_works(world: &World, client: &streamfleet::Client) {
    let next = client
        .enqueue(step("next", [Act::Succeed]))
        .queue(world.queue());
    ended(&next.await.unwrap()).await.unwrap();
    eventually("nothing is stuck", SOON, async || {
        world.is_drained(world.queue()).await
    })
    .await;
}

pub(super) async fn a_task_nobody_knows_waits_for_a_server_that_does(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let old = world.serve(&client, &app);
    let handles = client
        .enqueue_all((0..5).map(Later))
        .queue(world.queue())
        .await;
    let handles: Vec<_> = handles.unwrap().into_iter().map(Result::unwrap).collect();
    eventually("they are parked", SOON, async || {
        client.inspect().counts(world.queue()).await.unwrap().parked == 5
    })
    .await;
    let task = client
        .inspect()
        .task(world.queue(), handles[0].id())
        .await
        .unwrap();
    assert_eq!((task.state, task.attempt), (TaskState::Parked, 0));
    still_works(world, &client).await;
    let new = World::builder(&client, &app)
        .on(run_later)
        .queue(world.queue(), 1);
    world.start(new);
    // The old server may take one again; it is parked again then, without counting an attempt.
    eventually("one has run beside the old server", SOON, async || {
        client.inspect().counts(world.queue()).await.unwrap().parked < 5
    })
    .await;
    assert_eq!(old.stop().await.archived, 0);
    for (number, handle) in handles.iter().enumerate() {
        assert_eq!(ended(handle).await.unwrap() as usize, number);
    }
}

pub(super) async fn a_task_nobody_ever_knows_is_archived_after_the_grace(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let builder = World::builder(&client, &app).unknown_grace(ms(300));
    world.start(builder.queue(world.queue(), 1));
    let handle = client.enqueue(Later(1)).queue(world.queue()).await.unwrap();
    let outcome = ended(&handle).await;
    assert_shape!(&outcome, Err(ResultError::NoHandler(text)) if text.contains("later"));
    let task = archived_task(&client, world.queue(), handle.id()).await;
    assert_eq!(task.reason.as_deref(), Some("no_handler"));
    assert_eq!((task.name.as_str(), task.attempt), ("later", 0));
}

pub(super) async fn a_version_nobody_knows_is_parked_then_archived(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let builder = World::builder(&client, &app).unknown_grace(ms(1_500));
    world.start(builder.queue(world.queue(), 1));
    let bytes = raw::golden("envelope_v99.hex");
    assert_eq!(bytes[1], 99);
    add(world, &[b"t", &bytes]).await;
    eventually("it is parked", SOON, async || {
        client.inspect().counts(world.queue()).await.unwrap().parked == 1
    })
    .await;
    eventually("it is archived", SOON, async || {
        !archived(&client, world.queue()).await.is_empty()
    })
    .await;
    let task = archived(&client, world.queue()).await.remove(0);
    assert_eq!(task.id.to_string(), "0190a8c4-5f9e-7c3a-9b1d-2e4f6a8c0b1d");
    assert_eq!(
        (task.name.as_str(), task.reason.as_deref()),
        ("a.b", Some("no_handler"))
    );
    assert!(task.error.unwrap().contains("version 99"));
    still_works(world, &client).await;
}

pub(super) async fn malformed_entries_are_archived_and_block_nobody(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let whole = raw::envelope(1, "whole", "step", &[0xc0]);
    let mut trailing = raw::envelope(1, "trailing", "step", &[0xc0]);
    trailing.push(0xc0);
    let many: Vec<Vec<u8>> = (0..1_000).map(|n| format!("f{n}").into_bytes()).collect();
    let many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    let part = |key, value: &[u8]| raw::envelope_with_part(key, "step", key, value);
    let entries: Vec<Vec<Vec<u8>>> = vec![
        vec![b"t".to_vec(), b"garbage".to_vec()],
        vec![b"t".to_vec(), Vec::new()],
        // Four thousand million elements that are not there.
        vec![b"t".to_vec(), vec![0xdd, 0xff, 0xff, 0xff, 0xff]],
        vec![b"t".to_vec(), vec![0x91; 700]],
        vec![b"t".to_vec(), trailing],
        vec![b"t".to_vec(), whole[..whole.len() - 1].to_vec()],
        vec![b"x".to_vec(), whole.clone()],
        vec![b"t".to_vec(), raw::envelope(1, "bad id", "step", &[0xc0])],
        vec![
            b"t".to_vec(),
            raw::envelope(1, "bad-name", "a b\n\u{1b}[31m", &[0xc0]),
        ],
        // Retries of -1, of 2^63 and of "abc"; a deadline long before the world began.
        vec![b"t".to_vec(), part("r", &[0xff])],
        vec![b"t".to_vec(), part("r", &[0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0])],
        vec![b"t".to_vec(), part("r", b"\xa3abc")],
        vec![b"t".to_vec(), part("d", &[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0])],
    ];
    for entry in &entries {
        let fields: Vec<&[u8]> = entry.iter().map(Vec::as_slice).collect();
        add(world, &fields).await;
    }
    add(world, &many).await;
    world.serve(&client, &app);
    // Some have the same id, which is the producer's fault: they share a place in the archive.
    eventually("they are archived", SOON, async || {
        world.is_drained(world.queue()).await
            && archived(&client, world.queue()).await.len() >= entries.len() - 2
    })
    .await;
    for task in archived(&client, world.queue()).await {
        assert_eq!(task.reason.as_deref(), Some("undecodable"), "{task:?}");
        assert!(!task.error.unwrap().is_empty());
    }
    assert!(app.seen().is_empty());
    still_works(world, &client).await;
}

pub(super) async fn an_entry_over_the_limit_is_archived_unread(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let builder = World::builder(&client, &app).max_payload(10_000);
    world.start(builder.queue(world.queue(), 1));
    let huge = raw::envelope(1, "huge", "step", &vec![0xc0; 4 * 1024 * 1024]);
    add(world, &[b"t", &huge]).await;
    let id = TaskId::new("huge").unwrap();
    eventually("it is archived", SOON, async || {
        !archived(&client, world.queue()).await.is_empty()
    })
    .await;
    let task = archived_task(&client, world.queue(), &id).await;
    assert_eq!(task.reason.as_deref(), Some("undecodable"));
    let text = task.error.unwrap();
    assert!(text.contains("41943") && text.contains("75536"), "{text}");
    still_works(world, &client).await;
}

pub(super) async fn a_payload_of_another_type_is_archived_as_undecodable(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let numbers = "one, two".to_owned();
    let handle = client.enqueue(NotASum { numbers }).queue(world.queue());
    let handle = handle.await.unwrap();
    let outcome = ended(&handle).await;
    assert_shape!(&outcome, Err(ResultError::Undecodable(text)) if !text.is_empty());
    let task = archived_task(&client, world.queue(), handle.id()).await;
    assert_eq!(task.reason.as_deref(), Some("undecodable"));
    assert_eq!(task.attempt, 0, "no retry can mend it");
    still_works(world, &client).await;
}

pub(super) async fn a_payload_that_nests_too_deep_is_archived_as_undecodable(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let deep = vec![0x91; 100_000];
    add(world, &[b"t", &raw::envelope(1, "deep", "sum", &deep)]).await;
    let trailing = [0x81, 0xa5, b'l', b'a', b'b', b'e', b'l', 0xc0, 0xc0];
    add(
        world,
        &[b"t", &raw::envelope(1, "trailing", "nothing", &trailing)],
    )
    .await;
    eventually("both are archived", SOON, async || {
        archived(&client, world.queue()).await.len() == 2
    })
    .await;
    for task in archived(&client, world.queue()).await {
        assert_eq!(task.reason.as_deref(), Some("undecodable"), "{task:?}");
    }
    still_works(world, &client).await;
}

pub(super) async fn a_program_in_another_language_enqueues_by_one_command(world: &World) {
    let (client, app) = (world.client().await, App::default());
    world.serve(&client, &app);
    let node = world.redis.node_of(&world.key(world.queue(), "s"));
    let port = node.port().to_string();
    let script = format!("{}/tests/golden/enqueue.py", env!("CARGO_MANIFEST_DIR"));
    for codec in ["msgpack", "json"] {
        let mut python = Command::new("python3");
        python.args([&script, "127.0.0.1", &port, world.queue()]);
        python.args(["--prefix", world.prefix, "--name", "step", "--codec", codec]);
        let payload = format!(r#"{{"label":"{codec}","acts":["Header"]}}"#);
        python.args(["--payload", &payload, "--max-retries", "2"]);
        python.args(["--header", "trace=from python"]);
        let ran = tokio::task::spawn_blocking(move || python.output())
            .await
            .unwrap();
        let ran = ran.unwrap();
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        let entry = String::from_utf8(ran.stdout).unwrap();
        eventually("our server ran it", SOON, async || {
            let runs = app.runs_of(codec);
            runs.iter()
                .any(|run| run.fence.entry.to_string() == entry.trim())
        })
        .await;
    }
    still_works(world, &client).await;
}

pub(super) async fn a_key_of_another_type_breaks_one_queue_only(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let [broken, other, _] = world.queues();
    world.start(
        World::builder(&client, &app)
            .queue(broken, 1)
            .queue(other, 1),
    );
    let first = client.enqueue_all(steps(3)).queue(broken).await.unwrap();
    for handle in first {
        ended(&handle.unwrap()).await.unwrap();
    }
    world.command(broken, "s", &[b"SET", b"not a stream"]).await;
    for handle in client.enqueue_all(steps(50)).queue(other).await.unwrap() {
        ended(&handle.unwrap()).await.unwrap();
    }
    let refused = client
        .enqueue(step("refused", [Act::Succeed]))
        .queue(broken)
        .await;
    assert_shape!(
        &refused,
        Err(EnqueueError::Backend(error)) if error.kind() == BackendKind::WrongType
    );
    world.command(broken, "s", &[b"DEL"]).await;
    // It heals by itself.
    let healed = client.enqueue(step("healed", [Act::Succeed])).queue(broken);
    assert_eq!(ended(&healed.await.unwrap()).await.unwrap(), "healed");
}

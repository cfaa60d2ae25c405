//! What becomes of the work of servers that are gone.

use std::sync::{Arc, Mutex};

use streamfleet::{Client, LostLease, ResultError, ServerBuilder, StopReason};
use tokio::runtime::Runtime;

use super::app::{Act, App, step};
use super::world::{SOON, World, archived_task, assert_shape, ended, ms};
use crate::support::eventually;

/// Leases that end soon after a server has died.
fn short_lease(builder: ServerBuilder<App>) -> ServerBuilder<App> {
    builder
        .lease(ms(1_500))
        .renew_every(ms(300))
        .quiet_gap(ms(500))
}

/// A server with a runtime of its own, which can die as suddenly as a process.
struct Mortal(Option<Runtime>);

impl Mortal {
    fn start(world: &World, app: App, max_crashes: u32) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (connect, queue) = (world.client_builder(), world.queue().to_owned());
        runtime.spawn(async move {
            let client: Client = connect.connect().await.unwrap();
            let builder = World::builder(&client, &app).max_crashes(max_crashes);
            let server = short_lease(builder).queue(queue, 1).build().unwrap();
            server.run_until(std::future::pending()).await.unwrap();
        });
        Self(Some(runtime))
    }

    /// Nothing of it runs on; Redis hears no word.
    fn die(mut self) {
        self.0.take().unwrap().shutdown_background();
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Waits until a label has run so often.
async fn has_run(app: &App, label: &str, times: usize) {
    eventually(
        &format!("{label} has run {times} times"),
        SOON,
        async || app.runs_of(label).len() == times,
    )
    .await;
}

pub(super) async fn the_work_of_a_dead_process_is_taken_over_after_its_lease(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let first = Mortal::start(world, app.on("first"), 3);
    let hang = |number: usize| step(number.to_string(), [Act::Deaf, Act::Succeed]);
    let handles = client.enqueue_all((0..5).map(hang)).queue(world.queue());
    let handles: Vec<_> = handles
        .await
        .unwrap()
        .into_iter()
        .map(Result::unwrap)
        .collect();
    for number in 0..5 {
        has_run(&app, &number.to_string(), 1).await;
    }
    first.die();
    let builder = short_lease(World::builder(&client, &app.on("second")));
    let second = world.start(builder.queue(world.queue(), 1));
    for handle in &handles {
        ended(handle).await.unwrap();
    }
    for number in 0..5 {
        let runs = app.runs_of(&number.to_string());
        assert_eq!(runs.len(), 2, "{runs:?}");
        assert_eq!((runs[1].server, runs[1].attempt), ("second", 1));
        assert_eq!(runs[0].fence.entry, runs[1].fence.entry);
        assert!(runs[1].fence > runs[0].fence);
    }
    assert_eq!(second.stop().await.reclaimed, 5);
}

pub(super) async fn a_task_that_takes_its_processes_down_is_archived_as_poison(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let task = step("poison", [Act::Deaf]);
    let poison = client.enqueue(task).queue(world.queue()).await.unwrap();
    // The first death makes nobody a suspect; from the second on runs are counted.
    for runs in 1..=3 {
        let server = Mortal::start(world, app.clone(), 1);
        has_run(&app, "poison", runs).await;
        server.die();
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let last = short_lease(World::builder(&client, &app))
        .max_crashes(1)
        .on_archived(move |task| tell.lock().unwrap().push(task.reason));
    world.start(last.queue(world.queue(), 1));
    assert_shape!(
        ended(&poison).await,
        Err(ResultError::Poison { crashes: 1 })
    );
    has_run(&app, "poison", 3).await;
    let task = archived_task(&client, world.queue(), poison.id()).await;
    assert_eq!(
        (task.reason.as_deref(), task.name.as_str()),
        (Some("poison"), "step")
    );
    eventually("the hook was told", SOON, async || {
        *told.lock().unwrap() == ["poison"]
    })
    .await;
    assert!(app.seen().iter().all(|seen| seen.attempt == 1));
}

pub(super) async fn a_dropped_server_leaves_its_work_to_another(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let builder = short_lease(World::builder(&client, &app.on("first")));
    let first = world.start(builder.queue(world.queue(), 1));
    let deaf = step("deaf", [Act::Deaf, Act::Succeed]);
    let listens = step("listens", [Act::Listen, Act::Succeed]);
    let deaf = client.enqueue(deaf).queue(world.queue()).await.unwrap();
    let listens = client.enqueue(listens).queue(world.queue()).max_retries(0);
    let listens = listens.await.unwrap();
    has_run(&app, "deaf", 1).await;
    has_run(&app, "listens", 1).await;
    first.drop_it().await;
    let builder = short_lease(World::builder(&client, &app.on("second")));
    world.start(builder.queue(world.queue(), 1));
    assert_eq!(ended(&deaf).await.unwrap(), "deaf");
    assert_eq!(ended(&listens).await.unwrap(), "listens");
    assert_eq!(app.told(), [StopReason::Shutdown]);
    for label in ["deaf", "listens"] {
        let runs = app.runs_of(label);
        assert_eq!(
            (runs.len(), runs[1].server, runs[1].attempt),
            (2, "second", 1)
        );
    }
}

pub(super) async fn a_run_that_lost_its_lease_is_told_and_writes_nothing(world: &World) {
    let (client, app) = (world.client().await, App::default());
    let lost = Arc::new(Mutex::new(Vec::<LostLease>::new()));
    let tell = Arc::clone(&lost);
    let builder = short_lease(World::builder(&client, &app))
        .on_lease_lost(move |event| tell.lock().unwrap().push(event.clone()));
    let server = world.start(builder.queue(world.queue(), 1));
    let task = step("listens", [Act::Listen, Act::Succeed]);
    let handle = client.enqueue(task).queue(world.queue()).max_retries(0);
    let handle = handle.await.unwrap();
    has_run(&app, "listens", 1).await;
    let entry = app.seen()[0].fence.entry.to_string();
    let claim: &[&[u8]] = &[b"XCLAIM", b"servers", b"thief", b"0", entry.as_bytes()];
    world.command(world.queue(), "s", claim).await;
    eventually("it was told", SOON, async || {
        app.told() == [StopReason::LeaseLost]
    })
    .await;
    // The thief is silent, so after a lease the task comes back; what the first run failed with
    // was not written.
    assert_eq!(ended(&handle).await.unwrap(), "listens");
    let runs = app.seen();
    assert_eq!((runs.len(), runs[1].attempt), (2, 1));
    assert!(runs[1].fence > runs[0].fence, "{runs:?}");
    let forget: &[&[u8]] = &[b"XGROUP", b"DELCONSUMER"];
    let key = world.key(world.queue(), "s");
    let args = [forget[0], forget[1], key.as_bytes(), b"servers", b"thief"];
    world.redis.command_on_key(&key, &args).await.unwrap();
    let report = server.stop().await;
    assert_eq!((report.leases_lost, report.reclaimed), (1, 1), "{report:?}");
    let lost = lost.lock().unwrap().clone();
    assert_eq!(lost.len(), 1);
    assert_eq!(
        (lost[0].fence, lost[0].queue.as_str()),
        (runs[0].fence, world.queue())
    );
}

//! One list of behaviours, run on every kind of server.
//!
//! A behaviour is an async function over a [`World`]: a real server of some kind, a prefix of its own
//! and three queues, which on a cluster are on three nodes. They run beside each other on one server;
//! those that touch the whole server run alone afterwards. All of them run even if one fails. At the
//! end the server checks that nothing is left under any prefix, whose name is that of the behaviour.
//!
//! `STREAMFLEET_BEHAVIOURS=<part of a name>` runs some of them only, and says so.

mod app;
mod client;
mod endings;
mod foreign;
mod inputs;
mod inspect;
mod order;
mod outcomes;
mod pause;
mod raw;
mod retries;
mod stopping;
mod takeover;
mod whole_server;
mod worker;
mod world;

use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use streamfleet::testing::AofMode;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use crate::support::alone::together;
use crate::support::{Redis, Topology};
use world::World;

/// How many behaviours run beside each other: they mostly wait.
const BESIDE: usize = 12;
/// A behaviour that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(90);

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// One thing that every kind of server must show.
#[derive(Clone, Copy)]
struct Behaviour {
    name: &'static str,
    run: fn(Arc<World>) -> Running,
}

macro_rules! behaviours {
    ($($module:ident: $($name:ident)+;)+) => {
        &[$($(Behaviour {
            name: stringify!($name),
            run: |world| Box::pin(async move { $module::$name(&world).await }),
        },)+)+]
    };
}

/// Run beside each other.
const TOGETHER: &[Behaviour] = behaviours! {
    // The slow ones first.
    takeover:
        a_task_that_takes_its_processes_down_is_archived_as_poison
        the_work_of_a_dead_process_is_taken_over_after_its_lease
        a_run_that_lost_its_lease_is_told_and_writes_nothing
        a_dropped_server_leaves_its_work_to_another;
    client:
        the_receiver_of_a_dead_client_is_removed
        a_bulk_through_broken_connections_creates_each_task_once
        closing_a_client_ends_its_waits_and_not_its_tasks
        a_dropped_handle_cancels_nothing;
    outcomes:
        a_typed_result_comes_back_in_messagepack
        a_typed_result_comes_back_in_json
        a_task_without_output_ends_with_unit
        a_forgotten_task_runs_and_notifies_nobody
        a_bulk_has_one_result_per_item_in_order
        several_waiters_on_one_handle_all_get_the_outcome
        an_outcome_can_be_awaited_again
        a_wait_with_a_timeout_ends_and_the_task_goes_on
        an_error_of_an_own_type_crosses_processes
        an_output_that_is_too_large_is_archived_with_its_size
        headers_reach_the_handler
        a_handler_enqueues_children
        a_blocking_handler_returns_its_result;
    order:
        a_delayed_task_is_never_early
        a_task_starts_at_its_time
        one_at_a_time_means_first_in_first_out
        strict_queues_run_by_weight
        weighted_queues_share_by_weight_and_none_starves;
    retries:
        a_task_that_fails_twice_succeeds_at_the_third_attempt
        the_last_failure_archives_with_its_typed_error
        never_archives_at_once
        retry_after_waits_as_long_as_it_says
        snooze_counts_no_attempt
        discard_ends_without_a_place_in_the_archive
        a_panic_is_retried_then_archived_as_panicked
        the_fence_rises_over_the_runs_of_a_task
        a_long_error_text_is_cut;
    endings:
        a_deaf_handler_is_dropped_after_its_timeout_and_grace
        a_handler_that_listens_hears_its_timeout
        a_task_past_its_deadline_never_starts
        a_deadline_cuts_off_a_run
        a_waiting_task_expires_while_its_queue_is_paused
        a_pending_task_is_cancelled
        a_scheduled_task_is_cancelled
        a_task_between_two_attempts_is_cancelled
        a_running_task_is_cancelled
        a_task_that_ended_cannot_be_cancelled;
    inspect:
        counts_show_every_state
        a_task_is_deleted_in_every_state
        run_now_starts_what_waits_or_was_archived
        the_archive_is_shown_page_by_page
        a_task_is_found_by_its_id_in_every_state
        an_operator_archives_a_task;
    pause:
        a_paused_queue_starts_nothing_and_resumes_in_order
        a_pause_stops_a_busy_server_and_loses_nothing
        a_pause_ends_by_itself_at_its_time;
    foreign:
        a_task_nobody_knows_waits_for_a_server_that_does
        a_task_nobody_ever_knows_is_archived_after_the_grace
        a_version_nobody_knows_is_parked_then_archived
        malformed_entries_are_archived_and_block_nobody
        an_entry_over_the_limit_is_archived_unread
        a_payload_of_another_type_is_archived_as_undecodable
        a_payload_that_nests_too_deep_is_archived_as_undecodable
        a_program_in_another_language_enqueues_by_one_command
        a_key_of_another_type_breaks_one_queue_only;
    inputs:
        names_outside_the_alphabet_are_refused
        a_payload_over_the_limit_is_refused_with_both_sizes
        options_out_of_their_limits_are_refused_with_both_values
        a_server_that_cannot_work_is_not_built
        a_url_that_cannot_work_is_refused_without_its_password;
    stopping:
        a_stop_lets_running_work_finish
        a_stop_hands_work_back_and_another_server_starts_it_within_a_second
        a_stop_tells_a_listening_handler_and_counts_no_attempt
        the_stop_report_counts_what_was_done
        hooks_are_told_of_every_archived_task;
};

/// Run alone: they do something to the whole server.
const ALONE: &[Behaviour] = behaviours! {
    whole_server:
        a_flushed_server_ends_every_wait_and_heals_by_itself;
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_behaviour_holds_on_one_server() {
    LocalSet::new().run_until(run(Topology::Standalone)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_behaviour_holds_on_a_cluster() {
    LocalSet::new().run_until(run(Topology::Cluster)).await;
}

/// Runs the whole list on a server of this kind. The behaviours share one thread; the clients and
/// servers that they start have those of the runtime.
async fn run(topology: Topology) {
    let _together = together().await;
    let all = || TOGETHER.iter().chain(ALONE);
    let only = std::env::var("STREAMFLEET_BEHAVIOURS").unwrap_or_default();
    let chosen = |behaviour: &&Behaviour| behaviour.name.contains(&only);
    let prefixes: Vec<&str> = all().map(|behaviour| behaviour.name).collect();
    let redis = Redis::start_for(topology, AofMode::Off, &prefixes).await;
    let redis = Arc::new(redis);
    let began = Instant::now();
    let mut failed = Vec::new();

    let places = Arc::new(Semaphore::new(BESIDE));
    let running: Vec<_> = TOGETHER
        .iter()
        .filter(chosen)
        .map(|behaviour| {
            let (redis, places) = (Arc::clone(&redis), Arc::clone(&places));
            tokio::task::spawn_local(async move {
                let _place = places.acquire_owned().await;
                show(behaviour, redis).await
            })
        })
        .collect();
    for behaviour in running {
        failed.extend(behaviour.await.unwrap());
    }
    for behaviour in ALONE.iter().filter(chosen) {
        failed.extend(show(behaviour, Arc::clone(&redis)).await);
    }

    let passed = all().filter(chosen).count() - failed.len();
    let skipped = all().count() - all().filter(chosen).count();
    // Past the capture of the test runner: this line is part of every log.
    let line = format!(
        "conformance server={} version={} passed={passed} skipped={skipped}\n",
        redis.title(),
        redis.version()
    );
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    eprintln!("on {} in {:.1?}", redis.title(), began.elapsed());
    assert!(failed.is_empty(), "failed: {failed:#?}");
    let redis = Arc::into_inner(redis).expect("every behaviour has ended");
    redis.finish().await;
}

/// Runs one behaviour. Answers why it failed, if it did.
async fn show(behaviour: &Behaviour, redis: Arc<Redis>) -> Option<String> {
    let began = Instant::now();
    let world = Arc::new(World::new(redis, behaviour.name));
    let mut running = tokio::task::spawn_local((behaviour.run)(Arc::clone(&world)));
    let why = match tokio::time::timeout(PATIENCE, &mut running).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(world::panic_text(error)),
        Err(_) => {
            running.abort();
            let _ = running.await;
            Some(format!("it hangs: not done within {PATIENCE:?}"))
        }
    };
    // What it left is looked for at the end, so it has to be taken down also after a failure.
    let world = Arc::into_inner(world).expect("the behaviour has ended");
    let left = world.finish(why.is_none()).await;
    let why = why.or(left);
    let took = began.elapsed();
    match why {
        None => {
            eprintln!("ok {} ({took:.1?})", behaviour.name);
            None
        }
        Some(why) => {
            eprintln!("FAILED {} ({took:.1?}): {why}", behaviour.name);
            Some(format!("{}: {why}", behaviour.name))
        }
    }
}

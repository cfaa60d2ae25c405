//! Child processes are started, heard, signalled and never left behind.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::support::{ChildProcess, ChildSpawn, eventually, process};

const SOON: Duration = Duration::from_secs(10);

fn spawn() -> ChildProcess {
    let child = ChildSpawn::of_test("testing::children::child_main", "ticker");
    child
        .arg("--include-ignored")
        .env("GREETING", "hello")
        .spawn()
}

#[tokio::test]
async fn child_main() {
    if process::role().as_deref() != Some("ticker") {
        return;
    }
    let mut term = signal(SignalKind::terminate()).unwrap();
    process::say(std::env::var("GREETING").unwrap());
    for number in 0_u64.. {
        tokio::select! {
            _ = term.recv() => break,
            () = tokio::time::sleep(Duration::from_millis(10)) => process::say(number),
        }
    }
    process::say(format_args!("bye from {}", std::process::id()));
    eprintln!("it was nice");
}

#[tokio::test]
async fn a_child_is_heard_line_by_line_and_ends_on_sigterm() {
    let child = spawn();
    // The whole line: nothing of libtest stands before it.
    assert_eq!(child.line("hello", SOON).await, "hello");
    child.term();
    let bye = format!("bye from {}", child.pid());
    assert_eq!(child.line("bye", SOON).await, bye);
    assert!(child.exit(SOON).await.success());
    eventually("its errors are heard", SOON, async || {
        child.errors().iter().any(|line| line == "it was nice")
    })
    .await;
}

#[tokio::test]
async fn a_stopped_child_says_nothing_until_it_goes_on() {
    let child = spawn();
    child.line("hello", SOON).await;
    child.stop();
    let mut before = child.lines().len();
    eventually("it is silent", SOON, async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let same = child.lines().len() == before;
        before = child.lines().len();
        same
    })
    .await;
    child.cont();
    eventually("it goes on", SOON, async || child.lines().len() > before).await;
}

#[tokio::test]
async fn a_killed_child_shows_the_signal() {
    let child = spawn();
    child.line("hello", SOON).await;
    child.kill();
    assert_eq!(child.exit(SOON).await.signal(), Some(9));
}

#[tokio::test]
#[should_panic(expected = "not within 50ms: the moon is full; last: \"waning\"")]
async fn a_condition_that_never_holds_fails_with_what_it_said_last() {
    let condition = async || Err::<(), _>("waning");
    eventually("the moon is full", Duration::from_millis(50), condition).await;
}

#[test]
#[should_panic(expected = "no example at")]
fn an_example_that_was_not_built_is_named() {
    ChildSpawn::of_example("no-such-example");
}

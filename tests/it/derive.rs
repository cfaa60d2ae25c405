//! What `#[derive(Task)]` expands to.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use streamfleet::{
    Backoff, Codec, Failure, MAX_NAME_BYTES, QueueName, Task, TaskError, TaskOptions,
};

#[derive(Serialize, Deserialize, Task)]
#[task(name = "plain")]
struct Plain;

#[derive(Debug, Serialize, Deserialize)]
struct Refused;

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("refused")
    }
}

impl TaskError for Refused {}

#[derive(Serialize, Deserialize, Task)]
#[task(name = "every.key", output = Vec<Option<String>>, error = Refused)]
#[task(codec = json, queue = "low", max_retries = 3, timeout = "30s", delay = "250ms")]
#[task(backoff = exponential("1s", "1h"), crate = streamfleet)]
enum EveryKey {
    _One { _a: u32 },
    _Two,
}

#[derive(Serialize, Deserialize, Task)]
#[task(name = "of-many_types", output = T, backoff = fixed("5m"))]
struct Generic<T: Copy, const N: usize>
where
    T: Default,
{
    value: T,
}

/// The parameter has no bounds; serde's derives would refuse those that a task needs.
#[derive(Serialize, Deserialize, Task)]
#[task(name = "unbounded", output = Option<T>, error = Failure)]
struct Unbounded<T>(T);

fn is_task<T: Task<Output = O, Error = E>, O, E>() -> &'static str {
    T::NAME
}

#[test]
fn only_a_name_is_needed() {
    assert_eq!(is_task::<Plain, (), Failure>(), "plain");
    assert_eq!(Plain::CODEC, Codec::MessagePack);
    assert_eq!(Plain::options(), TaskOptions::default());
}

#[test]
fn every_key_arrives() {
    assert_eq!(
        is_task::<EveryKey, Vec<Option<String>>, Refused>(),
        "every.key"
    );
    assert_eq!(EveryKey::CODEC, Codec::Json);
    let backoff = Backoff::Exponential {
        initial: Duration::from_secs(1),
        max: Duration::from_secs(3600),
    };
    let expected = TaskOptions::default()
        .queue(QueueName::new("low").unwrap())
        .max_retries(3)
        .backoff(backoff)
        .timeout(Duration::from_secs(30))
        .delay(Duration::from_millis(250));
    assert_eq!(EveryKey::options(), expected);
}

#[test]
fn types_with_parameters_are_tasks() {
    assert_eq!(is_task::<Generic<u8, 2>, u8, Failure>(), "of-many_types");
    let fixed = TaskOptions::default().backoff(Backoff::Fixed(Duration::from_secs(300)));
    assert_eq!(Generic::<u8, 2>::options(), fixed);
    assert_eq!(
        is_task::<Unbounded<String>, Option<String>, Failure>(),
        "unbounded"
    );
}

#[test]
fn the_derive_and_the_library_have_one_rule_for_names() {
    // The derive's own tests pin its alphabet and its limit of 128.
    assert_eq!(MAX_NAME_BYTES, 128);
    for c in (0..=255_u8).map(char::from) {
        let allowed = c.is_ascii_alphanumeric() || "._-".contains(c);
        assert_eq!(QueueName::new(c.to_string()).is_ok(), allowed, "{c:?}");
    }
}

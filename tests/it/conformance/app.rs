//! The tasks and handlers of the behaviours.
//!
//! Most behaviours use [`Step`]: a task that says itself what each of its runs shall do, so that a
//! behaviour reads in one place. [`App`] is the state of its servers and remembers every run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use streamfleet::{Context, Failure, Fence, Retry, StopReason, Task, TaskError, TaskId};
use tokio::sync::watch;

/// What one run of a [`Step`] does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Act {
    /// Returns the label.
    Succeed,
    Fail,
    Never,
    RetryAfter(Duration),
    Snooze(Duration),
    Discard,
    Panic,
    /// Waits until the app's gate is open, then succeeds.
    Hold,
    /// Never ends, whatever it is told.
    Deaf,
    /// Waits until it is told to stop, then fails.
    Listen,
    /// Returns so many bytes.
    Output(usize),
    /// Fails for good with a text of so many bytes.
    LongError(usize),
    /// Enqueues so many steps, awaits them, and joins their outputs.
    Children(usize),
    /// Returns the header `trace`.
    Header,
}

/// A task that says what its runs do: the first one the first act, and so on; the last act stays.
#[derive(Clone, Serialize, Deserialize, Task)]
#[task(name = "step", output = String)]
pub(super) struct Step {
    pub(super) label: String,
    pub(super) acts: Vec<Act>,
}

/// A step of this label.
pub(super) fn step(label: impl Into<String>, acts: impl IntoIterator<Item = Act>) -> Step {
    Step {
        label: label.into(),
        acts: acts.into_iter().collect(),
    }
}

/// Steps that succeed, named by numbers.
pub(super) fn steps(count: usize) -> impl Iterator<Item = Step> {
    (0..count).map(|number| step(number.to_string(), [Act::Succeed]))
}

/// One run as its handler saw it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) label: String,
    pub(super) server: &'static str,
    pub(super) task: TaskId,
    pub(super) attempt: u32,
    pub(super) fence: Fence,
    pub(super) queue: String,
    pub(super) at: Instant,
}

/// The state of one server; servers of one behaviour share what they saw.
#[derive(Clone, Default)]
pub(super) struct App {
    /// The name of the server that has this state.
    pub(super) server: &'static str,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    told: Mutex<Vec<StopReason>>,
    gate: watch::Sender<bool>,
    /// Runs of [`Act::Deaf`] that were dropped.
    dropped: AtomicUsize,
}

impl App {
    /// The same app as the state of another server.
    pub(super) fn on(&self, server: &'static str) -> Self {
        Self {
            server,
            shared: Arc::clone(&self.shared),
        }
    }

    /// Every run so far, in order of their starts.
    pub(super) fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// The labels of every run so far, in order.
    pub(super) fn labels(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.label).collect()
    }

    /// The runs of one label.
    pub(super) fn runs_of(&self, label: &str) -> Vec<Seen> {
        let mut seen = self.seen();
        seen.retain(|seen| seen.label == label);
        seen
    }

    /// What listening handlers were told.
    pub(super) fn told(&self) -> Vec<StopReason> {
        lock(&self.shared.told).clone()
    }

    pub(super) fn dropped(&self) -> usize {
        self.shared.dropped.load(Ordering::SeqCst)
    }

    /// Lets every [`Act::Hold`] end, now and later.
    pub(super) fn open(&self) {
        self.shared.gate.send_replace(true);
    }

    /// Notes a run and answers how many of this label there were before.
    fn note(&self, cx: &Context<Self>, label: &str) -> usize {
        let mut seen = lock(&self.shared.seen);
        let before = seen.iter().filter(|seen| seen.label == label).count();
        seen.push(Seen {
            label: label.to_owned(),
            server: self.server,
            task: cx.id().clone(),
            attempt: cx.attempt(),
            fence: cx.fence(),
            queue: cx.queue().to_string(),
            at: Instant::now(),
        });
        before
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

struct Deaf(Arc<Shared>);

impl Drop for Deaf {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

pub(super) async fn run_step(cx: Context<App>, task: Step) -> Result<String, Failure> {
    let app = cx.state();
    let run = app.note(&cx, &task.label);
    let act = task.acts.get(run).or(task.acts.last()).unwrap();
    let label = task.label;
    match act {
        Act::Succeed => Ok(label),
        Act::Fail => Err(Failure::new(format!("{label} failed"))),
        Act::Never => Err(Failure::never(format!("{label} never"))),
        Act::RetryAfter(wait) => Err(Failure::retry_after(*wait, "later")),
        Act::Snooze(wait) => Err(Failure::snooze(*wait)),
        Act::Discard => Err(Failure::discard(format!("{label} discarded"))),
        Act::Panic => panic!("{label} panicked"),
        Act::Hold => {
            let mut gate = app.shared.gate.subscribe();
            gate.wait_for(|open| *open).await?;
            Ok(label)
        }
        Act::Deaf => {
            let _deaf = Deaf(Arc::clone(&app.shared));
            std::future::pending().await
        }
        Act::Listen => {
            let reason = cx.cancelled().await;
            lock(&app.shared.told).push(reason);
            Err(Failure::new(reason.as_str()))
        }
        Act::Output(bytes) => Ok("x".repeat(*bytes)),
        Act::LongError(bytes) => Err(Failure::never("ö".repeat(bytes / 2))),
        Act::Children(count) => {
            let mut outputs = Vec::new();
            for number in 0..*count {
                let child = step(format!("child {number}"), [Act::Succeed]);
                let child = cx.enqueue(child).queue(cx.queue().as_str()).await?;
                outputs.push(child.result().await?);
            }
            Ok(outputs.join(", "))
        }
        Act::Header => Ok(cx.header("trace").unwrap_or("none").to_owned()),
    }
}

/// A payload and an output of several types.
#[derive(Clone, Serialize, Deserialize, Task)]
#[task(name = "sum", output = Total)]
pub(super) struct Sum {
    pub(super) numbers: Vec<i64>,
    pub(super) note: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Total {
    pub(super) sum: i64,
    pub(super) by_sign: BTreeMap<String, (u64, f64)>,
    pub(super) note: Option<String>,
}

impl Sum {
    pub(super) fn total(&self) -> Total {
        let mut by_sign = BTreeMap::new();
        for number in &self.numbers {
            let sign = if *number < 0 { "minus" } else { "plus" };
            let (count, share): &mut (u64, f64) = by_sign.entry(sign.to_owned()).or_default();
            *count += 1;
            *share += 0.1;
        }
        Total {
            sum: self.numbers.iter().sum(),
            by_sign,
            note: self.note.clone(),
        }
    }
}

pub(super) async fn run_sum(_: Context<App>, task: Sum) -> Result<Total, Failure> {
    Ok(task.total())
}

/// Another type under the name of [`Sum`].
#[derive(Serialize, Deserialize, Task)]
#[task(name = "sum", output = Total)]
pub(super) struct NotASum {
    pub(super) numbers: String,
}

/// A task without output.
#[derive(Serialize, Deserialize, Task)]
#[task(name = "nothing")]
pub(super) struct Nothing;

pub(super) async fn run_nothing(_: Context<App>, _: Nothing) -> Result<(), Failure> {
    Ok(())
}

/// A task whose handler blocks its thread.
#[derive(Serialize, Deserialize, Task)]
#[task(name = "blocking", output = String)]
pub(super) struct Blocking(pub(super) Duration);

#[expect(clippy::needless_pass_by_value, reason = "a handler owns both")]
pub(super) fn run_blocking(cx: Context<App>, task: Blocking) -> Result<String, Failure> {
    std::thread::sleep(task.0);
    Ok(format!("{} slept", cx.queue()))
}

/// A task that servers know only where a behaviour says so.
#[derive(Serialize, Deserialize, Task)]
#[task(name = "later", output = u32)]
pub(super) struct Later(pub(super) u32);

pub(super) async fn run_later(_: Context<App>, task: Later) -> Result<u32, Failure> {
    Ok(task.0)
}

/// A task with an error of its own type.
#[derive(Serialize, Deserialize, Task)]
#[task(name = "account.open", error = Refused)]
pub(super) struct OpenAccount {
    pub(super) age: u32,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Refused {
    TooYoung { age: u32, needed: u32 },
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::TooYoung { age, needed } = self;
        write!(f, "{age} is under {needed}")
    }
}

impl TaskError for Refused {
    fn retry(&self) -> Retry {
        Retry::Never
    }
}

pub(super) async fn open_account(_: Context<()>, task: OpenAccount) -> Result<(), Refused> {
    let (age, needed) = (task.age, 18);
    if age < needed {
        return Err(Refused::TooYoung { age, needed });
    }
    Ok(())
}

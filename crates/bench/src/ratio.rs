//! The subcommand `ratio`: the limit and the library in turn, each with a server of its own.

use std::time::Duration;

use serde::Serialize;
use streamfleet::testing::AofMode;

use crate::Result;
use crate::cli::{Part, RatioArgs};
use crate::fleet::{self, Shape};
use crate::host::Host;
use crate::limit::{Strength, weakness};
use crate::rate::{Rate, median, spread};
use crate::raw;
use crate::scripts::Names;
use crate::show::{self, Table, thousands};
use crate::stats::{Latencies, Percentiles};

/// The limit and the library in one round.
#[derive(Clone, Copy, Debug, Serialize)]
struct Pair<T> {
    raw: T,
    library: T,
}

#[derive(Debug, Default, Serialize)]
struct Rounds {
    server: String,
    tracked: Vec<Pair<Rate>>,
    forget: Vec<Pair<Rate>>,
    enqueue: Vec<Pair<Rate>>,
    latency: Vec<Pair<Percentiles>>,
    /// The limit of `latency` through fred, without the library.
    through_fred: Vec<Percentiles>,
}

/// What the last line says: the library as a share of the limit, medians over the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratio {
    tracked: f64,
    forget: f64,
    enqueue: f64,
    server_cpu: f64,
    latency: f64,
    rounds: usize,
    spread: f64,
    raw_util: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    rounds: Rounds,
    strength: Strength,
    #[serde(flatten)]
    ratio: Option<Ratio>,
    warning: Option<String>,
}

pub(crate) async fn run(args: &RatioArgs, json: bool) -> Result<()> {
    let mut rounds = Rounds::default();
    for round in 0..args.rounds() {
        for part in [Part::Tracked, Part::Forget, Part::Enqueue, Part::Latency] {
            if args.measures(part) {
                let name = format!("{part:?}").to_lowercase();
                show::progress(&format!(
                    "ratio: round {} of {}, {name}",
                    round + 1,
                    args.rounds()
                ));
                measure(&mut rounds, part, round, args).await?;
            }
        }
    }
    show::progress("ratio: plain XADD and redis-benchmark");
    let strength = Strength::measure(args.time()).await?;
    show::progress_over();
    let ratio = args.is_whole().then(|| rounds.ratio());
    let warning = ratio.and_then(|ratio| weakness(ratio.raw_util, &strength));
    let report = Report {
        rounds,
        strength,
        ratio,
        warning,
    };
    if json {
        show::print([serde_json::to_string_pretty(&report)?]);
    } else {
        report.print();
    }
    match (&report.warning, report.ratio) {
        (Some(warning), Some(_)) if !args.print_weak => Err(warning.clone().into()),
        (_, Some(ratio)) if !json => {
            show::print([ratio.line()]);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// One round. The two take turns of half a second, because the neighbours of a machine change within
/// seconds; and which of them goes first alternates, so that the heat of the one before favours
/// neither. Each has a server of its own, which is emptied before each turn.
async fn measure(rounds: &mut Rounds, part: Part, round: usize, args: &RatioArgs) -> Result<()> {
    let mut limit = Host::start(AofMode::Off).await?;
    let mut host = Host::start(AofMode::Off).await?;
    rounds.server = limit.version();
    let names = raw::prepare(&limit)?;
    let turns = round..round + args.turns();
    if part == Part::Latency {
        latencies(rounds, &mut limit, &mut host, turns, args).await?;
        return names.check_known(host.port());
    }
    let pair = rates(&mut limit, &mut host, part, turns, args).await?;
    match part {
        Part::Forget => rounds.forget.push(pair),
        Part::Enqueue => {
            rounds.enqueue.push(pair);
            // It never settled anything.
            return Ok(());
        }
        _ => rounds.tracked.push(pair),
    }
    names.check_known(host.port())
}

/// Who measures single tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Raw,
    Library,
    Fred,
}

/// Forwards and backwards in turn.
fn order<T, const N: usize>(mut sides: [T; N], turn: usize) -> [T; N] {
    if !turn.is_multiple_of(2) {
        sides.reverse();
    }
    sides
}

/// A server for the next turn of raw commands.
fn prepared_anew(host: &mut Host) -> Result<Names> {
    host.empty()?;
    raw::prepare(host)
}

async fn rates(
    limit: &mut Host,
    host: &mut Host,
    part: Part,
    turns: std::ops::Range<usize>,
    args: &RatioArgs,
) -> Result<Pair<Rate>> {
    let mut pair = Pair {
        raw: Rate::default(),
        library: Rate::default(),
    };
    for turn in turns {
        for raw in order([true, false], turn) {
            if raw {
                let names = prepared_anew(limit)?;
                let rate = raw_rate(limit, &names, part, args.turn())?;
                pair.raw = pair.raw.plus(rate);
            } else {
                host.empty()?;
                pair.library = pair.library.plus(library_rate(host, part, args).await?);
            }
        }
    }
    Ok(pair)
}

async fn latencies(
    rounds: &mut Rounds,
    limit: &mut Host,
    host: &mut Host,
    turns: std::ops::Range<usize>,
    args: &RatioArgs,
) -> Result<()> {
    let mut through = Host::start(AofMode::Off).await?;
    let [mut raw, mut library, mut fred] =
        [Latencies::new()?, Latencies::new()?, Latencies::new()?];
    for turn in turns {
        for side in order([Side::Raw, Side::Library, Side::Fred], turn) {
            match side {
                Side::Raw => {
                    let names = prepared_anew(limit)?;
                    raw.merge(&raw::single(limit, &names, args.turn())?)?;
                }
                Side::Library => {
                    host.empty()?;
                    let single =
                        fleet::single(host, args.turn(), args.concurrency, Duration::ZERO).await?;
                    library.merge(&single.result)?;
                }
                Side::Fred => {
                    let names = prepared_anew(&mut through)?;
                    fred.merge(&raw::through_fred(&through, &names, args.turn()).await?)?;
                }
            }
        }
    }
    rounds.latency.push(Pair {
        raw: raw.percentiles(),
        library: library.percentiles(),
    });
    rounds.through_fred.push(fred.percentiles());
    Ok(())
}

fn raw_rate(host: &mut Host, names: &Names, part: Part, time: Duration) -> Result<Rate> {
    match part {
        Part::Enqueue => raw::enqueue(host, names, time),
        Part::Forget => raw::life(host, names, time, false),
        _ => raw::life(host, names, time, true),
    }
}

async fn library_rate(host: &mut Host, part: Part, args: &RatioArgs) -> Result<Rate> {
    let time = args.turn();
    let shape = Shape {
        producers: args.producers,
        chunk: args.chunk,
        concurrency: args.concurrency,
    };
    match part {
        Part::Enqueue => fleet::enqueue(host, time, shape).await,
        Part::Forget => fleet::forget(host, time, shape).await,
        _ => fleet::tracked(host, time, shape).await,
    }
}

fn shares(pairs: &[Pair<Rate>]) -> Vec<f64> {
    pairs
        .iter()
        .map(|pair| pair.library.per_second() / pair.raw.per_second())
        .collect()
}

impl Rounds {
    fn ratio(&self) -> Ratio {
        let tracked = shares(&self.tracked);
        Ratio {
            tracked: median(tracked.iter().copied()),
            forget: median(shares(&self.forget)),
            enqueue: median(shares(&self.enqueue)),
            server_cpu: median(
                self.tracked
                    .iter()
                    .map(|pair| pair.library.server_us() / pair.raw.server_us()),
            ),
            latency: median(
                self.latency
                    .iter()
                    .map(|pair| pair.library.p50 / pair.raw.p50),
            ),
            rounds: tracked.len(),
            spread: spread(&tracked),
            raw_util: median(self.tracked.iter().map(|pair| pair.raw.busy_share())),
        }
    }
}

impl Ratio {
    fn line(&self) -> String {
        format!(
            "ratio tracked={:.2} forget={:.2} enqueue={:.2} server_cpu={:.2} latency={:.2} rounds={} spread={:.2} \
             raw_util={:.2}",
            self.tracked,
            self.forget,
            self.enqueue,
            self.server_cpu,
            self.latency,
            self.rounds,
            self.spread,
            self.raw_util,
        )
    }
}

impl Report {
    fn print(&self) {
        show::print([&self.rounds.server]);
        let head = [
            "",
            "raw/s",
            "library/s",
            "share",
            "spread",
            "raw us",
            "library us",
            "own us",
            "raw util",
            "library util",
            "commands/task",
        ];
        let mut table = Table::new(&head);
        let rounds = &self.rounds;
        for (name, pairs) in [
            ("tracked", &rounds.tracked),
            ("forget", &rounds.forget),
            ("enqueue", &rounds.enqueue),
        ] {
            if pairs.is_empty() {
                continue;
            }
            let of = |side: fn(&Pair<Rate>) -> f64| median(pairs.iter().map(side));
            table.row([
                name.to_owned(),
                thousands(of(|pair| pair.raw.per_second())),
                thousands(of(|pair| pair.library.per_second())),
                format!("{:.2}", median(shares(pairs))),
                format!("{:.2}", spread(&shares(pairs))),
                format!("{:.1}", of(|pair| pair.raw.server_us())),
                format!("{:.1}", of(|pair| pair.library.server_us())),
                format!("{:.1}", of(|pair| pair.library.own_us())),
                format!("{:.2}", of(|pair| pair.raw.busy_share())),
                format!("{:.2}", of(|pair| pair.library.busy_share())),
                format!("{:.3}", of(|pair| pair.library.commands)),
            ]);
        }
        show::print(table.lines());
        if !rounds.latency.is_empty() {
            let of = |side: fn(&Pair<Percentiles>) -> f64| median(rounds.latency.iter().map(side));
            let fred = median(rounds.through_fred.iter().map(|fred| fred.p50));
            let shares = rounds.through_fred.iter().zip(&rounds.latency);
            let share = median(shares.map(|(fred, pair)| fred.p50 / pair.raw.p50));
            show::print([
                format!(
                    "one at a time: raw p50 {:.3} ms, p99 {:.3}; library p50 {:.3} ms, p99 {:.3}",
                    of(|pair| pair.raw.p50),
                    of(|pair| pair.raw.p99),
                    of(|pair| pair.library.p50),
                    of(|pair| pair.library.p99),
                ),
                format!(
                    "the same through fred, without the library: p50 {fred:.3} ms, {share:.2} of raw"
                ),
            ]);
        }
        show::print([self.strength.line()]);
    }
}

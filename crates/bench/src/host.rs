//! The private server of one run, and what it says about itself.

use std::process::Command;
use std::time::Instant;

use streamfleet::testing::{AofMode, TestServer};

use crate::Result;
use crate::cores;
use crate::own;
use crate::rate::Rate;
use crate::wire::{Wire, command};

/// A server of our own that nothing else uses. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Host {
    server: TestServer,
    wire: Wire,
}

impl Host {
    pub(crate) async fn start(aof: AofMode) -> Result<Self> {
        let server = TestServer::options().aof(aof).start().await?;
        server.unchecked("the runs check what they need");
        if let Some(pid) = server.pid() {
            cores::give_server_its_own(pid);
        }
        let wire = Wire::connect(server.port())?;
        Ok(Self { server, wire })
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn version(&self) -> String {
        format!("{} {}", self.server.kind(), self.server.version())
    }

    pub(crate) fn info(&mut self, section: &str) -> Result<String> {
        command(&mut self.wire.out, &[b"INFO", section.as_bytes()]);
        self.wire.send()?;
        let text = self.wire.string()?;
        Ok(String::from_utf8_lossy(self.wire.bytes(&text)).into_owned())
    }

    /// Seconds of processor time the server used so far, in all its threads.
    pub(crate) fn cpu(&mut self) -> Result<f64> {
        let info = self.info("cpu")?;
        Ok(number(&info, "used_cpu_user")? + number(&info, "used_cpu_sys")?)
    }

    /// Begins to measure.
    pub(crate) fn meter(&mut self) -> Result<Meter> {
        self.wire.run(&[b"CONFIG", b"RESETSTAT"])?;
        Ok(Meter {
            cpu: self.cpu()?,
            own: own::cpu_seconds()?,
            began: Instant::now(),
        })
    }

    pub(crate) fn memory(&mut self) -> Result<u64> {
        Ok(number(&self.info("memory")?, "used_memory")? as u64)
    }

    /// How many commands came from outside since the last reset, our own questions not counted.
    ///
    /// Redis counts what scripts call among the others, so only the kinds that the library sends as
    /// such are summed; its scripts call none of them.
    pub(crate) fn received(&mut self) -> Result<u64> {
        let info = self.info("commandstats")?;
        let calls = |name: &str| {
            let line = info
                .lines()
                .find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")))?;
            line.split(',').next()?.parse::<u64>().ok()
        };
        Ok(RECEIVED.iter().filter_map(|name| calls(name)).sum())
    }

    /// Removes everything but the scripts.
    pub(crate) fn empty(&mut self) -> Result<()> {
        self.wire.run(&[b"FLUSHALL"])
    }

    /// How many entries a stream has.
    pub(crate) fn length(&mut self, key: &[u8]) -> Result<u64> {
        command(&mut self.wire.out, &[b"XLEN", key]);
        self.wire.send()?;
        match self.wire.token()? {
            crate::wire::Token::Int(length) => Ok(length.unsigned_abs()),
            other => Err(format!("XLEN answered {other:?}").into()),
        }
    }

    /// The value of the first entry of a stream.
    #[cfg(test)]
    pub(crate) fn first_value(&mut self, key: &[u8]) -> Result<Vec<u8>> {
        command(
            &mut self.wire.out,
            &[b"XREAD", b"COUNT", b"1", b"STREAMS", key, b"0"],
        );
        self.wire.send()?;
        let mut found = Vec::new();
        self.wire.entries(&mut found)?;
        let (_, value) = found.first().ok_or("the stream is empty")?;
        Ok(self.wire.bytes(value).to_vec())
    }
}

/// What a server had used when a measurement began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    cpu: f64,
    own: f64,
    began: Instant,
}

impl Meter {
    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    /// What it was for so many tasks, until now.
    pub(crate) fn rate(&self, host: &mut Host, tasks: u64) -> Result<Rate> {
        let seconds = self.began.elapsed().as_secs_f64();
        Ok(Rate {
            tasks,
            seconds,
            server_seconds: host.cpu()? - self.cpu,
            own_seconds: own::cpu_seconds()? - self.own,
            commands: host.received()? as f64 / tasks as f64,
        })
    }
}

/// Commands of the library that are no calls of scripts.
const RECEIVED: &[&str] = &[
    "eval",
    "evalsha",
    "xreadgroup",
    "xread",
    "xtrim",
    "sadd",
    "set",
    "script|load",
    "ping",
    "subscribe",
    "auth",
    "client|setname",
    "client|unblock",
    "client|id",
    "client|kill",
    "client|list",
    "hello",
    "select",
    "role",
];

/// A field of an INFO reply.
fn number(info: &str, name: &str) -> Result<f64> {
    let found = info
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(found
        .ok_or_else(|| format!("INFO has no {name}"))?
        .trim()
        .parse()?)
}

/// XADD per second by `redis-benchmark` with these connections and this depth, if it is installed.
pub(crate) fn redis_benchmark(
    port: u16,
    connections: u32,
    depth: u32,
    calls: u32,
    value_bytes: usize,
) -> Option<f64> {
    let benchmark = ["valkey-benchmark", "redis-benchmark"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok())?;
    let (port, connections, depth) = (port.to_string(), connections.to_string(), depth.to_string());
    let (calls, value) = (calls.to_string(), ".".repeat(value_bytes));
    let args = [
        "-p",
        &port,
        "-c",
        &connections,
        "-P",
        &depth,
        "-n",
        &calls,
        "--csv",
        "XADD",
        "plain",
        "*",
        "t",
        &value,
    ];
    let output = Command::new(benchmark).args(args).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "command","rps","avg_latency_ms",…; the command itself may hold anything, so from the end.
    let line = text.lines().rfind(|line| line.contains("XADD"))?;
    let fields: Vec<&str> = line.rsplitn(8, ',').collect();
    fields.get(6)?.trim_matches('"').parse().ok()
}

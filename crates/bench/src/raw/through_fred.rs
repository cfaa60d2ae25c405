//! One task at a time as in `single`, but through fred, the library's Redis client, on tokio.
//!
//! Information beside the ratio: what the client library alone makes of the limit. The same three
//! parties, scripts and bytes; nothing of streamfleet is involved.

use std::time::{Duration, Instant};

use bytes::Bytes;
use fred::clients::Client;
use fred::interfaces::{ClientLike, Resp3Frame};
use fred::types::config::{Config, PerformanceConfig, ServerConfig};
use fred::types::{ClusterHash, CustomCommand, RespVersion, Value};
use tokio::sync::mpsc;

use super::enqueuer::Enqueuer;
use super::settler::Settler;
use super::{BLOCK_MS, client_id, waiting_read};
use crate::Result;
use crate::host::Host;
use crate::layout;
use crate::scripts::Names;
use crate::stats::Latencies;

/// What the library gives a command.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Times from just before the enqueue to the outcome.
pub(crate) async fn through_fred(host: &Host, names: &Names, time: Duration) -> Result<Latencies> {
    let (told, outcomes) = mpsc::unbounded_channel();
    let worker = tokio::spawn(work(connect(host).await?, names.clone()));
    let receiver = tokio::spawn(receive(connect(host).await?, connect(host).await?, told));
    let client = connect(host).await?;
    let enqueuer = Enqueuer::new(names, 0, 1, &client_id(0), true);
    let produced = tokio::spawn(produce(client, enqueuer, time, outcomes)).await?;
    for party in [worker, receiver] {
        if party.is_finished() {
            party.await??;
        } else {
            party.abort();
        }
    }
    produced
}

async fn connect(host: &Host) -> Result<Client> {
    let config = Config {
        server: ServerConfig::new_centralized("127.0.0.1", host.port()),
        version: RespVersion::RESP2,
        ..Config::default()
    };
    let performance = PerformanceConfig {
        default_command_timeout: TIMEOUT,
        ..PerformanceConfig::default()
    };
    let client = Client::new(config, Some(performance), None, None);
    client.init().await?;
    Ok(client)
}

async fn produce(
    client: Client,
    mut enqueuer: Enqueuer,
    time: Duration,
    mut outcomes: mpsc::UnboundedReceiver<Instant>,
) -> Result<Latencies> {
    let mut latencies = Latencies::new()?;
    let began = Instant::now();
    while began.elapsed() < time {
        let sent = Instant::now();
        let mut call = Vec::new();
        enqueuer.next(&mut call);
        send(&client, &call).await?;
        let ended = tokio::time::timeout(TIMEOUT, outcomes.recv()).await?;
        let ended = ended.ok_or("the receiver ended")?;
        latencies.add(ended.saturating_duration_since(sent));
    }
    Ok(latencies)
}

async fn work(client: Client, names: Names) -> Result<()> {
    let mut settler = Settler::new(&names);
    let stream = layout::key("s");
    loop {
        let found = entries(wait(&client, "XREADGROUP", &waiting_read(&stream)).await?)?;
        for (id, envelope) in &found {
            settler.take_one(id, envelope);
        }
        let mut call = Vec::new();
        if settler.settle(&mut call) > 0 {
            send(&client, &call).await?;
        }
    }
}

async fn receive(
    client: Client,
    trimmer: Client,
    told: mpsc::UnboundedSender<Instant>,
) -> Result<()> {
    let receiver = layout::receiver(&client_id(0));
    let mut last = b"0-0".to_vec();
    loop {
        let read: &[&[u8]] = &[
            b"COUNT", b"1000", b"BLOCK", BLOCK_MS, b"STREAMS", &receiver, &last,
        ];
        let found = entries(wait(&client, "XREAD", read).await?)?;
        let now = Instant::now();
        let Some((id, _)) = found.last() else {
            continue;
        };
        last = id.to_vec();
        for _ in &found {
            // The producer may have ended.
            let _ = told.send(now);
        }
        let first_kept = super::life::after(&last);
        let trim = [&receiver[..], b"MINID", &first_kept].map(value).to_vec();
        call(&trimmer, "XTRIM", false, trim).await?;
    }
}

/// Sends what the raw generator would write to its socket: one call of a script.
async fn send(client: &Client, written: &[u8]) -> Result<()> {
    let mut words = words_of(written)?.into_iter();
    let name = words.next();
    debug_assert_eq!(
        name,
        Some(value(b"EVALSHA")),
        "the generator sends nothing else"
    );
    call(client, "EVALSHA", false, words.collect()).await?;
    Ok(())
}

/// The words of one command in RESP, lengths and bytes in turn.
fn words_of(written: &[u8]) -> Result<Vec<Value>> {
    let (_, mut rest) = line(written)?;
    let mut words = Vec::new();
    while !rest.is_empty() {
        let (header, bytes) = line(rest)?;
        let length: usize = std::str::from_utf8(&header[1..])?.parse()?;
        words.push(value(&bytes[..length]));
        rest = &bytes[length + 2..];
    }
    Ok(words)
}

/// The first line, and what follows it.
fn line(written: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = written.iter().position(|byte| *byte == b'\r');
    let end = end.ok_or("a command without a line end")?;
    Ok((&written[..end], &written[end + 2..]))
}

async fn wait(client: &Client, name: &'static str, args: &[&[u8]]) -> Result<Resp3Frame> {
    call(
        client,
        name,
        true,
        args.iter().copied().map(value).collect(),
    )
    .await
}

async fn call(
    client: &Client,
    name: &'static str,
    blocks: bool,
    args: Vec<Value>,
) -> Result<Resp3Frame> {
    let command = CustomCommand::new_static(name, ClusterHash::Random, blocks);
    match client.custom_raw(command, args).await? {
        Resp3Frame::SimpleError { data, .. } => Err(data.to_string().into()),
        frame => Ok(frame),
    }
}

fn value(bytes: &[u8]) -> Value {
    Value::Bytes(Bytes::copy_from_slice(bytes))
}

/// The entries of one stream: (id, value of the one field).
fn entries(reply: Resp3Frame) -> Result<Vec<(Bytes, Bytes)>> {
    let mut streams = list(reply)?.into_iter();
    let Some(stream) = streams.next() else {
        return Ok(Vec::new());
    };
    let [_, entries] = pair(list(stream)?)?;
    list(entries)?
        .into_iter()
        .map(|entry| {
            let [id, fields] = pair(list(entry)?)?;
            let [_, value] = pair(list(fields)?)?;
            Ok((bytes(id)?, bytes(value)?))
        })
        .collect()
}

fn list(frame: Resp3Frame) -> Result<Vec<Resp3Frame>> {
    match frame {
        Resp3Frame::Array { data, .. } => Ok(data),
        Resp3Frame::Null => Ok(Vec::new()),
        _ => Err("no array in a reply".into()),
    }
}

fn pair(items: Vec<Resp3Frame>) -> Result<[Resp3Frame; 2]> {
    <[Resp3Frame; 2]>::try_from(items).map_err(|_| "an array of another length".into())
}

fn bytes(frame: Resp3Frame) -> Result<Bytes> {
    match frame {
        Resp3Frame::BlobString { data, .. } => Ok(data),
        _ => Err("no bytes in an entry".into()),
    }
}

//! Whole task lives on four sockets, each of them producer, worker and receiver in one.
//!
//! A round of a socket is one write: settle what was read in the last round, enqueue a batch, read
//! as many, and read and trim the own receiver. While one socket's replies are read, Redis works
//! for the other three.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::enqueuer::Enqueuer;
use super::settler::Settler;
use super::{BATCH, client_id, on_sockets};
use crate::Result;
use crate::host::Host;
use crate::layout;
use crate::rate::Rate;
use crate::scripts::Names;
use crate::wire::{Token, Wire, command};

/// Tasks per second of whole lives. `told`: a notice goes to the producer's receiver.
///
/// # Errors
/// Also when a task was lost, doubled, or left behind.
pub(crate) fn life(host: &mut Host, names: &Names, time: Duration, told: bool) -> Result<Rate> {
    let names = names.clone();
    let rate = on_sockets(host, time, move |socket, wire, over| {
        let mut lives = Socket::new(socket, wire, &names, told);
        while !over.load(Ordering::Relaxed) {
            lives.round(true)?;
        }
        lives.drain()
    })?;
    let left = host.length(&layout::key("s"))?;
    if left > 0 {
        return Err(format!("{left} entries are left in the stream").into());
    }
    Ok(rate)
}

struct Socket {
    wire: Wire,
    enqueuer: Enqueuer,
    settler: Settler,
    told: bool,
    stream: Vec<u8>,
    receiver: Vec<u8>,
    consumer: String,
    /// Up to where the receiver was read.
    last: Vec<u8>,
    settled: u64,
    noticed: u64,
    entries: Vec<(Range<usize>, Range<usize>)>,
}

impl Socket {
    fn new(socket: u8, wire: Wire, names: &Names, told: bool) -> Self {
        let client = client_id(socket);
        let consumer = format!("server-{socket:016x}");
        Self {
            wire,
            enqueuer: Enqueuer::new(names, socket, BATCH, &client, told),
            settler: Settler::new(names),
            told,
            stream: layout::key("s"),
            receiver: layout::receiver(&client),
            consumer,
            last: b"0-0".to_vec(),
            settled: 0,
            noticed: 0,
            entries: Vec::with_capacity(BATCH),
        }
    }

    fn round(&mut self, enqueues: bool) -> Result<()> {
        let out = &mut self.wire.out;
        let settled = self.settler.settle(out);
        if enqueues {
            self.enqueuer.next(out);
        }
        let (consumer, stream) = (self.consumer.as_bytes(), &self.stream);
        let group = layout::GROUP;
        command(
            out,
            &[
                b"XREADGROUP",
                b"GROUP",
                group,
                consumer,
                b"COUNT",
                b"100",
                b"STREAMS",
                stream,
                b">",
            ],
        );
        if self.told {
            command(
                out,
                &[
                    b"XREAD",
                    b"COUNT",
                    b"1000",
                    b"STREAMS",
                    &self.receiver,
                    &self.last,
                ],
            );
            let first_kept = after(&self.last);
            command(out, &[b"XTRIM", &self.receiver, b"MINID", &first_kept]);
        }
        self.wire.send()?;

        if settled > 0 {
            self.wire.token().and_then(|reply| match reply {
                Token::Int(won) if won == settled as i64 => Ok(()),
                other => Err(format!("settle of {settled} answered {other:?}").into()),
            })?;
            self.settled += settled as u64;
        }
        if enqueues {
            self.wire.skip()?;
        }
        self.entries.clear();
        self.wire.entries(&mut self.entries)?;
        self.settler.take(&self.wire, &self.entries);
        if self.told {
            self.entries.clear();
            self.wire.entries(&mut self.entries)?;
            self.noticed += self.entries.len() as u64;
            if let Some((last, _)) = self.entries.last() {
                self.last = self.wire.bytes(last).to_vec();
            }
            self.wire.skip()?;
        }
        Ok(())
    }

    /// Ends what is left. What this socket enqueued may be in the hands of another one.
    fn drain(mut self) -> Result<u64> {
        let mut rounds = 0;
        loop {
            self.round(false)?;
            let told = !self.told || self.noticed == self.enqueuer.tasks();
            if told && self.settler.is_empty() {
                break;
            }
            rounds += 1;
            if rounds > 10_000 {
                return Err(format!(
                    "{} of {} outcomes arrived",
                    self.noticed,
                    self.enqueuer.tasks()
                )
                .into());
            }
            if rounds > 10 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(if self.told {
            self.noticed
        } else {
            self.settled
        })
    }
}

/// The first id that a trim keeps when all up to `last` was read.
pub(super) fn after(last: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(last);
    let (time, sequence) = text.split_once('-').unwrap_or((&text, "0"));
    let next = sequence.parse::<u64>().unwrap_or(0) + 1;
    format!("{time}-{next}").into_bytes()
}

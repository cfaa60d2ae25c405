//! The limit: what one Redis core can do of our work when the client costs next to nothing.
//!
//! Raw RESP over four blocking sockets, each with a thread, commands pipelined by hand; the scripts
//! are the library's own, the stored bytes are those the library stores.
//!
//! - `enqueuer` `settler`: the calls of the two scripts
//! - `life`: whole task lives, with and without a notice at the end
//! - `fill`: enqueues only; and plain XADD, as information
//! - `single`: one task at a time, by three threads that block; `through_fred`: the same through fred

mod enqueuer;
mod fill;
mod life;
mod settler;
mod single;
mod through_fred;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

pub(crate) use fill::{enqueue, plain_bytes, plain_xadd};
pub(crate) use life::life;
pub(crate) use single::single;
pub(crate) use through_fred::through_fred;

use crate::Result;
use crate::host::Host;
use crate::layout;
use crate::rate::Rate;
use crate::scripts::Names;
use crate::wire::{Wire, word};

/// How many sockets, each with its thread.
const SOCKETS: u8 = 4;
/// How long a blocked read waits before it looks whether all is over.
const BLOCK_MS: &[u8] = b"200";
/// How many tasks one batch has.
pub(crate) const BATCH: usize = 100;

/// A server with the queue made and the scripts loaded.
pub(crate) fn prepare(host: &Host) -> Result<Names> {
    let mut wire = Wire::connect(host.port())?;
    let names = Names::load(&mut wire)?;
    let keys = [layout::key("s"), layout::key("cfg")];
    layout::evalsha(&mut wire.out, &names.ensure, &keys, 4);
    for arg in [&b"epoch-of-the-bench"[..], b"1", b"", b""] {
        word(&mut wire.out, arg);
    }
    wire.send()?;
    wire.skip()?;
    Ok(names)
}

/// Runs one thread for each socket until the time is over, and sums what they did.
fn on_sockets<W>(host: &mut Host, time: Duration, work: W) -> Result<Rate>
where
    W: Fn(u8, Wire, &AtomicBool) -> Result<u64> + Send + Sync + 'static,
{
    let work = Arc::new(work);
    let over = Arc::new(AtomicBool::new(false));
    let start = Arc::new(Barrier::new(usize::from(SOCKETS) + 1));
    let mut threads = Vec::new();
    for socket in 0..SOCKETS {
        let wire = Wire::connect(host.port())?;
        let (work, over, start) = (Arc::clone(&work), Arc::clone(&over), Arc::clone(&start));
        threads.push(std::thread::spawn(move || {
            start.wait();
            work(socket, wire, &over)
        }));
    }
    let meter = host.meter()?;
    start.wait();
    std::thread::sleep(time);
    over.store(true, Ordering::Relaxed);
    let mut tasks = 0;
    for thread in threads {
        tasks += thread
            .join()
            .map_err(|_| "a thread of the generator panicked")??;
    }
    meter.rate(host, tasks)
}

/// What follows XREADGROUP when one worker waits for tasks.
fn waiting_read(stream: &[u8]) -> [&[u8]; 10] {
    [
        b"GROUP",
        layout::GROUP,
        b"server-0",
        b"COUNT",
        b"100",
        b"BLOCK",
        BLOCK_MS,
        b"STREAMS",
        stream,
        b">",
    ]
}

/// The client id of a socket, as long as those of the library.
fn client_id(socket: u8) -> String {
    format!("{socket:014x}")
}

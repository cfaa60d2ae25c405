//! One task at a time: producer, worker and receiver block on their sockets, each on a thread.
//!
//! The clock stops when the receiver has the outcome in hand; the next task starts after that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::enqueuer::Enqueuer;
use super::settler::Settler;
use super::{BLOCK_MS, client_id, waiting_read};
use crate::Result;
use crate::host::Host;
use crate::layout;
use crate::scripts::Names;
use crate::stats::Latencies;
use crate::wire::{Wire, command};

/// Times from just before the enqueue to the outcome.
pub(crate) fn single(host: &Host, names: &Names, time: Duration) -> Result<Latencies> {
    let over = Arc::new(AtomicBool::new(false));
    let (told, outcomes) = mpsc::channel();
    let worker = {
        let (wire, over, names) = (
            Wire::connect(host.port())?,
            Arc::clone(&over),
            names.clone(),
        );
        std::thread::spawn(move || work(wire, &names, &over))
    };
    let receiver = {
        let (wire, over) = (Wire::connect(host.port())?, Arc::clone(&over));
        std::thread::spawn(move || receive(wire, &over, &told))
    };
    let produced = produce(Wire::connect(host.port())?, names, time, &outcomes);
    over.store(true, Ordering::Relaxed);
    for thread in [worker, receiver] {
        thread
            .join()
            .map_err(|_| "a thread of the generator panicked")??;
    }
    produced
}

fn produce(
    mut wire: Wire,
    names: &Names,
    time: Duration,
    outcomes: &mpsc::Receiver<Instant>,
) -> Result<Latencies> {
    let mut enqueuer = Enqueuer::new(names, 0, 1, &client_id(0), true);
    let mut latencies = Latencies::new()?;
    let began = Instant::now();
    while began.elapsed() < time {
        let sent = Instant::now();
        enqueuer.next(&mut wire.out);
        wire.send()?;
        wire.skip()?;
        let ended = outcomes.recv_timeout(Duration::from_secs(5))?;
        latencies.add(ended.saturating_duration_since(sent));
    }
    Ok(latencies)
}

fn work(mut wire: Wire, names: &Names, over: &AtomicBool) -> Result<()> {
    let mut settler = Settler::new(names);
    let stream = layout::key("s");
    let mut read: Vec<&[u8]> = vec![b"XREADGROUP"];
    read.extend(waiting_read(&stream));
    let mut entries = Vec::new();
    while !over.load(Ordering::Relaxed) {
        command(&mut wire.out, &read);
        wire.send()?;
        entries.clear();
        wire.entries(&mut entries)?;
        settler.take(&wire, &entries);
        if settler.settle(&mut wire.out) > 0 {
            wire.send()?;
            wire.skip()?;
        }
    }
    Ok(())
}

fn receive(mut wire: Wire, over: &AtomicBool, told: &mpsc::Sender<Instant>) -> Result<()> {
    let receiver = layout::receiver(&client_id(0));
    let mut last = b"0-0".to_vec();
    let mut entries = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let read: &[&[u8]] = &[
            b"XREAD", b"COUNT", b"1000", b"BLOCK", BLOCK_MS, b"STREAMS", &receiver, &last,
        ];
        command(&mut wire.out, read);
        wire.send()?;
        entries.clear();
        wire.entries(&mut entries)?;
        let now = Instant::now();
        let Some((id, _)) = entries.last() else {
            continue;
        };
        last = wire.bytes(id).to_vec();
        for _ in &entries {
            // The producer may have given up.
            let _ = told.send(now);
        }
        let first_kept = super::life::after(&last);
        wire.run(&[b"XTRIM", &receiver, b"MINID", &first_kept])?;
    }
    Ok(())
}

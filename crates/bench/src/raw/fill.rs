//! Enqueues only, on four sockets; and plain XADD of the same entry, for comparison.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::enqueuer::Enqueuer;
use super::{BATCH, client_id, on_sockets};
use crate::Result;
use crate::host::Host;
use crate::layout;
use crate::rate::Rate;
use crate::scripts::Names;
use crate::wire::{Wire, command};

/// Tasks per second by the script `enqueue`, a batch of 100 a call, one call in flight a socket.
pub(crate) fn enqueue(host: &mut Host, names: &Names, time: Duration) -> Result<Rate> {
    let names = names.clone();
    let rate = on_sockets(host, time, move |socket, wire, over| {
        let mut enqueuer = Enqueuer::new(&names, socket, BATCH, &client_id(socket), true);
        let replies = 1;
        repeat(wire, over, replies, |out| enqueuer.next(out))?;
        Ok(enqueuer.tasks())
    })?;
    expect_length(host, &layout::key("s"), rate.tasks)?;
    Ok(rate)
}

/// XADD per second of an entry as large as a stored task, 100 in a write.
pub(crate) fn plain_xadd(host: &mut Host, time: Duration) -> Result<Rate> {
    let rate = on_sockets(host, time, move |_, wire, over| {
        let value = vec![b'.'; plain_bytes()];
        let mut batch = Vec::new();
        for _ in 0..BATCH {
            command(&mut batch, &[b"XADD", b"plain", b"*", b"t", &value]);
        }
        let writes = repeat(wire, over, BATCH, |out| out.extend_from_slice(&batch))?;
        Ok(writes * BATCH as u64)
    })?;
    expect_length(host, b"plain", rate.tasks)?;
    Ok(rate)
}

/// How large a stored task is.
pub(crate) fn plain_bytes() -> usize {
    let id = layout::task_id(0, 0);
    layout::envelope(&id, Some(&client_id(0)), &layout::payload(0)).len()
}

/// Sends the next batch as soon as the last one was answered. Answers how many were sent.
fn repeat(
    mut wire: Wire,
    over: &AtomicBool,
    replies: usize,
    mut next: impl FnMut(&mut Vec<u8>),
) -> Result<u64> {
    let mut sent = 0;
    while !over.load(Ordering::Relaxed) {
        next(&mut wire.out);
        wire.send()?;
        for _ in 0..replies {
            wire.skip()?;
        }
        sent += 1;
    }
    Ok(sent)
}

fn expect_length(host: &mut Host, key: &[u8], wanted: u64) -> Result<()> {
    let found = host.length(key)?;
    if found == wanted {
        return Ok(());
    }
    Err(format!("{found} entries in the stream, {wanted} were acknowledged").into())
}

//! One socket's producer: a batch as one script call, made once and then only overwritten in place.

use crate::layout::{self, ID_AT, ID_BYTES};
use crate::scripts::Names;
use crate::wire::word;

/// Digits of a batch number; the script reads it as a number.
const NUMBER_DIGITS: usize = 10;

/// The call of `enqueue` for batches of one size.
#[derive(Debug)]
pub(crate) struct Enqueuer {
    socket: u8,
    call: Vec<u8>,
    number_at: usize,
    first_id_at: usize,
    ids_at: Vec<usize>,
    batches: u64,
    tasks: u64,
}

impl Enqueuer {
    /// `client` is told of each end, or nobody is.
    pub(crate) fn new(names: &Names, socket: u8, batch: usize, client: &str, told: bool) -> Self {
        let mut call = Vec::with_capacity(batch * 256);
        let id = layout::task_id(socket, 0);
        layout::evalsha(
            &mut call,
            &names.enqueue,
            &layout::enqueue_keys(),
            1 + batch,
        );
        let zeros = "0".repeat(NUMBER_DIGITS);
        let (first_id, told_digit) = (layout::id_text(&id), u8::from(told));
        let head = format!("{client} {zeros} {first_id} 0 {told_digit} 0 epoch-of-the-bench");
        let number_at = word(&mut call, head.as_bytes()) + client.len() + 1;
        let first_id_at = number_at + NUMBER_DIGITS + 1;
        let told = told.then_some(client);
        let ids_at = (0..batch)
            .map(|number| {
                let payload = layout::payload(number as u64);
                word(&mut call, &layout::envelope(&id, told, &payload)) + ID_AT
            })
            .collect();
        Self {
            socket,
            call,
            number_at,
            first_id_at,
            ids_at,
            batches: 0,
            tasks: 0,
        }
    }

    /// Appends the next batch.
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) {
        self.batches += 1;
        let number = format!("{:0width$}", self.batches, width = NUMBER_DIGITS);
        self.call[self.number_at..][..NUMBER_DIGITS].copy_from_slice(number.as_bytes());
        for (place, at) in self.ids_at.iter().enumerate() {
            self.tasks += 1;
            let id = layout::task_id(self.socket, self.tasks);
            self.call[*at..][..ID_BYTES].copy_from_slice(&id);
            if place == 0 {
                let text = layout::id_text(&id);
                self.call[self.first_id_at..][..text.len()].copy_from_slice(text.as_bytes());
            }
        }
        out.extend_from_slice(&self.call);
    }

    pub(crate) fn tasks(&self) -> u64 {
        self.tasks
    }
}

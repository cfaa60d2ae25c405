//! A client's sign of life in a queue, and its farewell.
//!
//! Layer 2, called by `client`. Scripts: `scripts/client_beat.lua`, `scripts/client_close.lua`.

use super::Store;
use super::arg;
use super::script::script;
use crate::error::BackendError;
use crate::id::{ClientId, Millis, QueueName};

script!(CLIENT_BEAT, "client_beat", allow_oom, ["look", "clock"]);
script!(CLIENT_CLOSE, "client_close", allow_oom, ["look"]);

/// What a sign of life is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClientBeat {
    /// Whether the queue knew the client without a gap. If not, outcomes may not have been written
    /// for it: it was swept, or this is its first sign.
    pub(crate) known: bool,
    /// Another one than before: Redis lost data.
    pub(crate) epoch: String,
    pub(crate) now: Millis,
    /// Whether anything was ever written to the client's receiver, and it is still there.
    pub(crate) receiver_exists: bool,
}

impl Store {
    /// Gives a sign of life.
    pub(crate) async fn client_beat(
        &self,
        q: &QueueName,
        client: &ClientId,
    ) -> Result<ClientBeat, BackendError> {
        let keys = self.keys().queue(q);
        let reply = self
            .conn()
            .run(
                &CLIENT_BEAT,
                vec![
                    keys.stream(),
                    keys.clients(),
                    keys.producers(),
                    keys.cfg(),
                    keys.receiver(client),
                ],
                vec![arg::text(client.as_str())],
            )
            .await?;
        let [known, epoch, now, receiver] = reply.into_parts()?;
        Ok(ClientBeat {
            known: known.int()? == 1,
            epoch: epoch.text()?.to_owned(),
            now: Millis(now.u64()?),
            receiver_exists: receiver.int()? == 1,
        })
    }

    /// Removes the client's receiver and everything else it has in the queue.
    pub(crate) async fn client_close(
        &self,
        q: &QueueName,
        client: &ClientId,
    ) -> Result<(), BackendError> {
        let keys = self.keys().queue(q);
        self.conn()
            .run(
                &CLIENT_CLOSE,
                vec![
                    keys.stream(),
                    keys.clients(),
                    keys.producers(),
                    keys.receiver(client),
                ],
                vec![arg::text(client.as_str())],
            )
            .await?;
        Ok(())
    }
}

//! Removes what a client has read from its receiver.
//!
//! Layer 2, called by the client's receiver loop after each read.

use bytes::Bytes;

use super::Store;
use crate::error::BackendError;
use crate::id::EntryId;

impl Store {
    /// Removes the entries up to and including `last`.
    pub(crate) async fn trim_receiver(
        &self,
        key: &Bytes,
        last: EntryId,
    ) -> Result<(), BackendError> {
        let first_kept = EntryId {
            sequence: last.sequence.saturating_add(1),
            ..last
        };
        let from = Bytes::from(first_kept.to_string());
        let args = vec![key.clone(), Bytes::from_static(b"MINID"), from];
        self.conn().command("XTRIM", Some(key), args).await?;
        Ok(())
    }
}

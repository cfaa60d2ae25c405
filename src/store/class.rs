//! Says of every error of Redis, and of the way to it, what can be done about it.
//!
//! Layer 2, called by the connections. Error replies and errors of the client are told apart: only
//! a reply to *this* command, or a command that was never queued, can prove "not executed".

use fred::error::{Error, ErrorKind};

use crate::error::{BackendError, BackendKind, shown};

/// The class of an error reply, by its first word.
pub(super) fn reply_kind(text: &str) -> BackendKind {
    match text.split_whitespace().next().unwrap_or("") {
        "READONLY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "OOM" | "MISCONF"
        | "NOREPLICAS" | "BUSY" | "MOVED" | "ASK" => BackendKind::NotExecuted,
        "NOGROUP" => BackendKind::Group,
        "NOSCRIPT" => BackendKind::Script,
        // A deleted stream wakes its blocked readers with the same word as CLIENT UNBLOCK.
        "UNBLOCKED" if text.contains("no longer exists") => BackendKind::Group,
        "UNBLOCKED" => BackendKind::Unblocked,
        "WRONGTYPE" => BackendKind::WrongType,
        "ERR" if text.contains("max number of clients") => BackendKind::NotExecuted,
        _ => BackendKind::Fatal,
    }
}

/// The class of an error that is not a reply to the command.
///
/// Some of them carry the text of a reply (`CLUSTERDOWN`, `LOADING`), but one that another command
/// or a new connection got: for this command they prove nothing.
pub(super) fn client_kind(error: &Error) -> BackendKind {
    match error.kind() {
        ErrorKind::Backpressure => BackendKind::NotExecuted,
        // The client's own words for a command that its router never took.
        ErrorKind::Unknown
            if matches!(
                error.details(),
                "Client is not initialized." | "Failed to send command to router."
            ) =>
        {
            BackendKind::NotExecuted
        }
        ErrorKind::Config
        | ErrorKind::Url
        | ErrorKind::InvalidArgument
        | ErrorKind::InvalidCommand => BackendKind::Fatal,
        _ => BackendKind::Ambiguous,
    }
}

/// The class of an error while the first connection was made: nothing was executed yet.
pub(super) fn connect_kind(error: &Error) -> BackendKind {
    match error.kind() {
        ErrorKind::Auth | ErrorKind::Config | ErrorKind::Url | ErrorKind::InvalidArgument => {
            BackendKind::Fatal
        }
        #[cfg(feature = "tls")]
        ErrorKind::Tls => BackendKind::Fatal,
        ErrorKind::Unknown => match reply_kind(error.details()) {
            BackendKind::Fatal if is_reply(error.details()) => BackendKind::Fatal,
            _ => BackendKind::NotExecuted,
        },
        _ => BackendKind::NotExecuted,
    }
}

/// Whether a text looks like an error reply: a first word in capitals.
fn is_reply(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or("");
    word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Builds the error that callers see. `secrets` are cut out of the text, which is escaped and cut.
pub(super) fn backend_error(kind: BackendKind, text: &str, secrets: &[&str]) -> BackendError {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        if text.contains(secret) {
            text = text.replace(secret, "***");
        }
    }
    BackendError::new(kind, shown(&text))
}

/// A reply of a shape that no version of the server sends: a bug, here or there.
pub(super) fn unexpected(wanted: &str, got: &str) -> BackendError {
    BackendError::new(
        BackendKind::Fatal,
        format!("unexpected reply: wanted {wanted}, got {got}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_told_apart_by_their_first_word() {
        for (text, kind) in [
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                BackendKind::NotExecuted,
            ),
            (
                "READONLY You can't write against a read only replica.",
                BackendKind::NotExecuted,
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                BackendKind::NotExecuted,
            ),
            (
                "NOGROUP No such key 'x' or consumer group 'g'",
                BackendKind::Group,
            ),
            (
                "UNBLOCKED the stream key no longer exists",
                BackendKind::Group,
            ),
            (
                "UNBLOCKED client unblocked via CLIENT UNBLOCK",
                BackendKind::Unblocked,
            ),
            ("NOSCRIPT No matching script.", BackendKind::Script),
            ("WRONGTYPE Operation against a key", BackendKind::WrongType),
            (
                "BUSYGROUP Consumer Group name already exists",
                BackendKind::Fatal,
            ),
            ("NOPERM this user has no permissions", BackendKind::Fatal),
            ("ERR unknown command", BackendKind::Fatal),
            (
                "ERR max number of clients reached",
                BackendKind::NotExecuted,
            ),
            ("", BackendKind::Fatal),
        ] {
            assert_eq!(reply_kind(text), kind, "{text}");
        }
    }

    #[test]
    fn an_error_of_the_client_never_proves_that_nothing_was_executed() {
        for (kind, text) in [
            (ErrorKind::Unknown, "READONLY seen by another command"),
            (ErrorKind::Cluster, "CLUSTERDOWN the cluster is down"),
            (ErrorKind::Timeout, "Request timed out."),
            (ErrorKind::IO, "Connection closed."),
            (ErrorKind::Canceled, "Canceled."),
            (ErrorKind::Unknown, "Too many failed write attempts."),
        ] {
            assert_eq!(
                client_kind(&Error::new(kind, text)),
                BackendKind::Ambiguous,
                "{text}"
            );
        }
        let full = Error::new(ErrorKind::Backpressure, "full");
        assert_eq!(client_kind(&full), BackendKind::NotExecuted);
    }

    #[test]
    fn a_first_connection_that_time_does_not_mend_is_fatal() {
        for (kind, text, class) in [
            (ErrorKind::Auth, "WRONGPASS invalid", BackendKind::Fatal),
            (
                ErrorKind::Unknown,
                "ERR DB index is out of range",
                BackendKind::Fatal,
            ),
            (
                ErrorKind::Unknown,
                "LOADING Redis is loading",
                BackendKind::NotExecuted,
            ),
            (ErrorKind::IO, "Os { code: 111 }", BackendKind::NotExecuted),
        ] {
            assert_eq!(connect_kind(&Error::new(kind, text)), class, "{text}");
        }
    }

    #[test]
    fn secrets_do_not_leave_in_an_error() {
        let error = backend_error(BackendKind::Fatal, "bad hunter2!", &["", "hunter2"]);
        assert_eq!(error.to_string(), "bad ***!");
    }
}

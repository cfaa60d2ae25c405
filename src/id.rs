//! Names and identities: what may be part of a Redis key, and what the library makes up itself.
//!
//! Layer 0. Randomness is passed in; only the layers above ask the operating system for it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::error::InvalidName;

/// The longest queue name, prefix, task name, label or task id, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// Checks one name against the alphabet `[A-Za-z0-9._-]{1,128}`.
///
/// The alphabet has no brace, colon, star, space or control character, so a name can stand in a
/// Redis key, a hash tag, an ACL pattern and a log line without being escaped.
pub(crate) fn check_name(kind: &'static str, name: &str) -> Result<(), InvalidName> {
    let fits = (1..=MAX_NAME_BYTES).contains(&name.len());
    if fits
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    {
        return Ok(());
    }
    Err(InvalidName::new(kind, name))
}

macro_rules! name_type {
    ($(#[$docs:meta])* $name:ident, $kind:literal) => {
        $(#[$docs])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and takes over a name.
            ///
            /// # Errors
            /// [`InvalidName`] unless the name is 1 to 128 bytes of `A-Z a-z 0-9 . _ -`.
            pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
                let name = name.as_ref();
                check_name($kind, name)?;
                Ok(Self(Arc::from(name)))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), &self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;
            fn from_str(name: &str) -> Result<Self, InvalidName> {
                Self::new(name)
            }
        }
    };
}

name_type!(
    /// The name of a queue.
    ///
    /// ```
    /// use streamfleet::QueueName;
    /// assert!(QueueName::new("mail.high").is_ok());
    /// assert!(QueueName::new("a}:{b").is_err());
    /// ```
    QueueName, "queue"
);
name_type!(
    /// The first part of every key, so that several fleets can share one Redis.
    ///
    /// ```
    /// use streamfleet::Prefix;
    /// assert_eq!(Prefix::default().as_str(), "streamfleet");
    /// ```
    Prefix, "prefix"
);
name_type!(
    /// One connected client: random for each connect, never configured.
    ///
    /// ```
    /// use streamfleet::ClientId;
    /// assert!(ClientId::new("3f2a9c0d4e5b61728394a5b6c7d8e9f0").is_ok());
    /// ```
    ClientId, "client id"
);
name_type!(
    /// One started server as Redis sees it: its label and a suffix that is random for each start.
    ///
    /// ```
    /// use streamfleet::ConsumerId;
    /// assert!(ConsumerId::new("web-7f-1f2e3d4c5b6a7988").is_ok());
    /// ```
    ConsumerId, "consumer"
);

impl Default for Prefix {
    fn default() -> Self {
        Self(Arc::from("streamfleet"))
    }
}

impl Default for QueueName {
    fn default() -> Self {
        Self(Arc::from("default"))
    }
}

#[cfg(feature = "testing")]
impl QueueName {
    /// A name of ours, known to be of the alphabet.
    pub(crate) fn literal(name: &'static str) -> Self {
        debug_assert!(check_name("queue", name).is_ok());
        Self(Arc::from(name))
    }
}

impl ClientId {
    /// A client id from random bits, 84 of which are used. Every awaited task carries it, so it is
    /// short; two clients that drew the same are told apart by `ClientIdClash`.
    pub(crate) fn from_random(random: Uuid) -> Self {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
        // The upper bits of a random UUID hold its version; the lower half and a part above are free.
        let (high, low) = random.as_u64_pair();
        let mut bits = u128::from(low & ((1 << 62) - 1)) | (u128::from(high >> 32) << 62);
        let mut name = String::with_capacity(14);
        for _ in 0..14 {
            name.push(char::from(ALPHABET[(bits & 63) as usize]));
            bits >>= 6;
        }
        Self(Arc::from(name.as_str()))
    }
}

impl ConsumerId {
    /// A consumer name from a label and 64 random bits. A long label is cut so that the whole fits.
    pub(crate) fn from_random(label: &str, random: u64) -> Self {
        let cut = label.len().min(MAX_NAME_BYTES - 17);
        Self(Arc::from(
            format!("{}-{random:016x}", &label[..cut]).as_str(),
        ))
    }
}

/// A task's identity. Ours are UUIDv7, so they sort by the time they were made.
///
/// ```
/// use streamfleet::TaskId;
/// let id: TaskId = "0190a8c4-5f9e-7c3a-9b1d-2e4f6a8c0b1d".parse()?;
/// assert_eq!(id.to_string(), "0190a8c4-5f9e-7c3a-9b1d-2e4f6a8c0b1d");
/// # Ok::<(), streamfleet::InvalidName>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(TaskIdKind);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum TaskIdKind {
    Uuid(Uuid),
    Name(Arc<str>),
}

impl TaskId {
    /// An id of our own.
    pub(crate) const fn from_uuid(uuid: Uuid) -> Self {
        Self(TaskIdKind::Uuid(uuid))
    }

    /// An id for a task whose envelope names none.
    pub(crate) fn of_entry(entry: EntryId) -> Self {
        Self(TaskIdKind::Name(Arc::from(
            format!("entry-{entry}").as_str(),
        )))
    }

    /// The UUID, unless the id is a name given by a user.
    #[must_use]
    pub const fn as_uuid(&self) -> Option<&Uuid> {
        match &self.0 {
            TaskIdKind::Uuid(uuid) => Some(uuid),
            TaskIdKind::Name(_) => None,
        }
    }

    /// An id given as text: a UUID in its usual form, or a name of the usual alphabet.
    ///
    /// # Errors
    /// [`InvalidName`] unless it is 1 to 128 bytes of `A-Z a-z 0-9 . _ -`.
    ///
    /// ```
    /// use streamfleet::TaskId;
    /// assert!(TaskId::new("invoice-2026-11").is_ok());
    /// assert!(TaskId::new("a b").is_err());
    /// ```
    pub fn new(id: impl AsRef<str>) -> Result<Self, InvalidName> {
        let id = id.as_ref();
        check_name("task id", id)?;
        // Only the canonical form is a UUID: text and id must map one to one, because Redis knows the text.
        match Uuid::parse_str(id) {
            Ok(uuid) if uuid.hyphenated().to_string() == id => Ok(Self::from_uuid(uuid)),
            _ => Ok(Self(TaskIdKind::Name(Arc::from(id)))),
        }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            TaskIdKind::Uuid(uuid) => {
                f.write_str(uuid.hyphenated().encode_lower(&mut [0; Hyphenated::LENGTH]))
            }
            TaskIdKind::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({self})")
    }
}

impl FromStr for TaskId {
    type Err = InvalidName;
    fn from_str(id: &str) -> Result<Self, InvalidName> {
        Self::new(id)
    }
}

/// The id of a stream entry: milliseconds of Redis time and a sequence number.
///
/// ```
/// use streamfleet::EntryId;
/// let id: EntryId = "1700000000000-3".parse()?;
/// assert_eq!((id.millis, id.sequence), (1_700_000_000_000, 3));
/// # Ok::<(), streamfleet::InvalidName>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct EntryId {
    /// Redis time when the entry was added, in milliseconds since 1970.
    pub millis: u64,
    /// Counts the entries of one millisecond.
    pub sequence: u64,
}

impl EntryId {
    /// Parses `millis-sequence` from the bytes of a reply.
    pub(crate) fn parse_bytes(bytes: &[u8]) -> Option<Self> {
        let dash = bytes.iter().position(|byte| *byte == b'-')?;
        Some(Self {
            millis: parse_u64(&bytes[..dash])?,
            sequence: parse_u64(&bytes[dash + 1..])?,
        })
    }
}

fn parse_u64(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.millis, self.sequence)
    }
}

impl FromStr for EntryId {
    type Err = InvalidName;
    fn from_str(id: &str) -> Result<Self, InvalidName> {
        Self::parse_bytes(id.as_bytes()).ok_or_else(|| InvalidName::new("entry id", id))
    }
}

/// A token that rises strictly over the runs of one task in one stream.
///
/// Give it to whatever your handler writes to, and let that refuse a token lower than one it has
/// seen: then a run that lost its lease cannot overwrite the run that took over.
///
/// ```
/// use streamfleet::Fence;
/// let first = Fence { entry: "5-0".parse()?, count: 1 };
/// let retried = Fence { entry: "9-0".parse()?, count: 1 };
/// assert!(retried > first);
/// # Ok::<(), streamfleet::InvalidName>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Fence {
    /// The entry that was delivered.
    pub entry: EntryId,
    /// How often it was delivered.
    pub count: u64,
}

/// A point of Redis time, in milliseconds since 1970.
///
/// Every time that decides anything is read from the clock of Redis, never from a host of ours.
///
/// ```
/// use std::time::Duration;
/// use streamfleet::Millis;
/// assert_eq!(Millis(1_000).after(Duration::from_secs(2)), Millis(3_000));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// This time and a duration later; at most the largest time there is.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(duration_ms(wait)))
    }

    /// How long after `earlier` this is; zero if it is not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A duration in whole milliseconds, rounded up so that nothing is ever early.
pub(crate) fn duration_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_the_alphabet_are_refused() {
        for bad in [
            "",
            "*",
            "a}:{b",
            "receiver:x",
            "a b",
            "a\n",
            "é",
            &"x".repeat(129),
        ] {
            assert!(QueueName::new(bad).is_err(), "{bad:?} was taken");
        }
        assert!(QueueName::new("x".repeat(128)).is_ok());
    }

    #[test]
    fn a_uuid_in_another_spelling_is_a_name() {
        let upper = "0190A8C4-5F9E-7C3A-9B1D-2E4F6A8C0B1D";
        assert_eq!(TaskId::new(upper).unwrap().as_uuid(), None);
        assert_eq!(TaskId::new(upper).unwrap().to_string(), upper);
    }

    #[test]
    fn entry_ids_that_are_not_two_numbers_are_refused() {
        for bad in [
            "",
            "-",
            "1-",
            "-1",
            "1",
            "1-x",
            "1--1",
            "18446744073709551616-0",
        ] {
            assert!(bad.parse::<EntryId>().is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn a_random_client_id_is_a_valid_name_of_14_characters() {
        let ids: std::collections::BTreeSet<_> = (0..1_000)
            .map(|_| ClientId::from_random(Uuid::new_v4()))
            .collect();
        assert_eq!(ids.len(), 1_000);
        for id in ids {
            assert_eq!(id.as_str().len(), 14);
            assert!(ClientId::new(id.as_str()).is_ok());
        }
    }

    #[test]
    fn a_long_label_still_makes_a_valid_consumer() {
        let consumer = ConsumerId::from_random(&"l".repeat(128), 7);
        assert!(ConsumerId::new(consumer.as_str()).is_ok());
    }

    #[test]
    fn durations_round_up() {
        assert_eq!(duration_ms(Duration::from_nanos(1)), 1);
        assert_eq!(duration_ms(Duration::MAX), u64::MAX);
    }
}

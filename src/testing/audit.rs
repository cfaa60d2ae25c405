//! The walk over all keys: which have an owner, and which were left behind.
//!
//! Knows the data layout from its documentation, not from the store, so that a key which the store
//! makes and the documentation does not name is found. Part of `testing`; called by `leaks`.

use std::collections::HashSet;

use super::TestError;
use super::leaks::{Leak, LeakFound, databases};
use super::wire::{Reply, Wire};

/// The one consumer group of a task stream.
const GROUP: &str = "servers";
/// The consumer that holds handed-back entries; it belongs to every server.
const RELEASED: &str = "~released";
/// How long a client or a server that is gone may still be named.
const OWNER_KEPT_MS: i64 = 24 * 60 * 60 * 1000;
/// How many names a finding shows.
const SHOWN: usize = 5;

/// Everything on this server that has no owner.
pub(crate) fn keys(wire: &mut Wire, prefixes: &[String]) -> Result<Vec<LeakFound>, TestError> {
    let time = wire.call(&["TIME"])?.texts();
    let seconds: i64 = time.first().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut audit = Audit {
        now: seconds * 1000,
        found: Vec::new(),
        wire,
    };
    for database in databases(audit.wire)? {
        // A cluster has one database and refuses to select another.
        if database != "0" {
            audit.wire.call(&["SELECT", &database])?;
        }
        for key in audit.scan()? {
            audit.look_at(&key, prefixes)?;
        }
    }
    Ok(audit.found)
}

struct Audit<'a> {
    wire: &'a mut Wire,
    now: i64,
    found: Vec<LeakFound>,
}

impl Audit<'_> {
    fn scan(&mut self) -> Result<Vec<Vec<u8>>, TestError> {
        let mut keys = HashSet::new();
        let mut cursor = "0".to_owned();
        loop {
            let reply = self.wire.call(&["SCAN", &cursor, "COUNT", "1000"])?;
            let [next, page] = reply.items() else {
                return Err(TestError::Protocol("SCAN answered no page".into()));
            };
            keys.extend(
                page.items()
                    .iter()
                    .filter_map(Reply::bytes)
                    .map(<[u8]>::to_vec),
            );
            cursor = next.text().unwrap_or_default();
            if cursor == "0" {
                let mut keys: Vec<_> = keys.into_iter().collect();
                keys.sort_unstable();
                return Ok(keys);
            }
        }
    }

    fn look_at(&mut self, key: &[u8], prefixes: &[String]) -> Result<(), TestError> {
        let shown = String::from_utf8_lossy(key).into_owned();
        let Some(rest) = prefixes
            .iter()
            .find_map(|prefix| shown.strip_prefix(prefix.as_str())?.strip_prefix(':'))
        else {
            self.report(Leak::ForeignKey, format!("key {shown}"));
            return Ok(());
        };
        match rest
            .strip_prefix('{')
            .and_then(|rest| rest.split_once("}:"))
        {
            Some((_, kind)) => {
                let base = &shown[..shown.len() - kind.len()];
                self.look_at_queue_key(base, kind)
            }
            None => self.look_at_global_key(&shown, rest),
        }
    }

    fn look_at_global_key(&mut self, key: &str, rest: &str) -> Result<(), TestError> {
        match rest {
            "queues" => self.has_type(key, "set").map(drop),
            "schedules" => self.has_type(key, "hash").map(drop),
            "servers" => self.left(Leak::ServerInfo, key),
            _ if rest.starts_with("server:") => self.left(Leak::ServerInfo, key),
            _ => self.left(Leak::UnknownKey, key),
        }
    }

    fn look_at_queue_key(&mut self, base: &str, kind: &str) -> Result<(), TestError> {
        let key = &format!("{base}{kind}");
        let family = kind.split_once(':').map_or(kind, |(family, _)| family);
        match (kind, family) {
            ("s", _) => self.look_at_stream(base, key),
            ("cfg" | "n", _) => self.has_type(key, "hash").map(drop),
            (_, "n") => self.look_at_counters(key),
            ("clients" | "servers", _) => self.look_at_owners(key),
            ("producers", _) => self.look_at_producers(base, key),
            ("tasks", _) => self.look_at_records(base, key),
            (_, "r") => self.left(Leak::Receiver, key),
            ("scheduled", _) => self.left(Leak::Scheduled, key),
            ("retry", _) => self.left(Leak::Retry, key),
            ("archived", _) => self.left(Leak::Archived, key),
            ("completed", _) => self.left(Leak::Completed, key),
            (_, "unknown") => self.left(Leak::Parked, key),
            ("cancel", _) => self.left(Leak::Cancel, key),
            ("crashes", _) => self.left(Leak::Crashes, key),
            (_, "u") => self.left(Leak::UniqueLock, key),
            ("groups", _) | (_, "g") => self.left(Leak::Group, key),
            _ => self.left(Leak::UnknownKey, key),
        }
    }

    fn look_at_stream(&mut self, base: &str, key: &str) -> Result<(), TestError> {
        if !self.has_type(key, "stream")? {
            return Ok(());
        }
        let length = self.wire.call(&["XLEN", key])?.int().unwrap_or(-1);
        if length != 0 {
            let page = self.wire.call(&["XRANGE", key, "-", "+", "COUNT", "5"])?;
            let ids: Vec<_> = page
                .items()
                .iter()
                .filter_map(|entry| entry.items().first()?.text())
                .collect();
            self.report(
                Leak::Entries,
                format!("{length} entries in {key}: {}", ids.join(" ")),
            );
        }
        for group in self.wire.call(&["XINFO", "GROUPS", key])?.items() {
            let name = field(group, "name").unwrap_or_default();
            if name != GROUP {
                self.report(
                    Leak::Pending,
                    format!("group {name} of {key}, only {GROUP} is ours"),
                );
            }
            if field(group, "pending").as_deref() != Some("0") {
                let pending = self.wire.call(&["XPENDING", key, &name, "-", "+", "5"])?;
                let entries: Vec<_> = pending.items().iter().map(describe_pending).collect();
                self.report(
                    Leak::Pending,
                    format!("pending in group {name} of {key}: {}", entries.join("; ")),
                );
            }
            self.look_at_consumers(base, key, &name)?;
        }
        Ok(())
    }

    fn look_at_consumers(&mut self, base: &str, key: &str, group: &str) -> Result<(), TestError> {
        for consumer in self.wire.call(&["XINFO", "CONSUMERS", key, group])?.items() {
            let name = field(consumer, "name").unwrap_or_default();
            // A wrong type is told where that key itself is looked at.
            let score = self
                .wire
                .call(&["ZSCORE", &format!("{base}servers"), &name]);
            if name != RELEASED && matches!(score, Ok(Reply::Nil)) {
                self.report(
                    Leak::Consumer,
                    format!("consumer {name} of {key} is no server of {base}servers"),
                );
            }
        }
        Ok(())
    }

    fn look_at_owners(&mut self, key: &str) -> Result<(), TestError> {
        if !self.has_type(key, "zset")? {
            return Ok(());
        }
        let limit = (self.now - OWNER_KEPT_MS).to_string();
        let stale = self
            .wire
            .call(&["ZRANGEBYSCORE", key, "-inf", &limit])?
            .texts();
        if !stale.is_empty() {
            let what = format!("{key} names, after more than a day: {}", some_of(&stale));
            self.report(Leak::StaleOwner, what);
        }
        Ok(())
    }

    /// A producer belongs to a client that is known, or its state says when that gave its last sign:
    /// the state is words, the third one that time.
    fn look_at_producers(&mut self, base: &str, key: &str) -> Result<(), TestError> {
        if !self.has_type(key, "hash")? {
            return Ok(());
        }
        let clients = self.names(&["ZRANGE", &format!("{base}clients"), "0", "-1"]);
        let states = self.wire.call(&["HGETALL", key])?.texts();
        let orphans: Vec<_> = states
            .chunks_exact(2)
            .filter(|pair| {
                let sign = pair[1].split(' ').nth(2).and_then(|sign| sign.parse().ok());
                !clients.contains(&pair[0])
                    && sign.is_none_or(|sign: i64| sign <= self.now - OWNER_KEPT_MS)
            })
            .map(|pair| pair[0].clone())
            .collect();
        if !orphans.is_empty() {
            let what = format!(
                "{key} names clients of no known sign of life: {}",
                some_of(&orphans)
            );
            self.report(Leak::StaleOwner, what);
        }
        Ok(())
    }

    /// The counters of an hour or a day go away by themselves.
    fn look_at_counters(&mut self, key: &str) -> Result<(), TestError> {
        if self.has_type(key, "hash")? && self.wire.call(&["PTTL", key])?.int() == Some(-1) {
            self.report(Leak::NoExpiry, format!("key {key} stays for ever"));
        }
        Ok(())
    }

    /// The names that a command answers; none if it fails, as on a key of the wrong type, which is
    /// told where that key itself is looked at.
    fn names(&mut self, command: &[&str]) -> HashSet<String> {
        let reply = self.wire.call(command);
        reply
            .map(|reply| reply.texts().into_iter().collect())
            .unwrap_or_default()
    }

    /// A record of a set that is looked at for itself has an owner there.
    fn look_at_records(&mut self, base: &str, key: &str) -> Result<(), TestError> {
        if !self.has_type(key, "hash")? {
            return Ok(());
        }
        let mut sets: Vec<String> = ["scheduled", "retry", "archived", "completed"]
            .iter()
            .map(|kind| format!("{base}{kind}"))
            .collect();
        let parked = self.names(&["SMEMBERS", &format!("{base}unknown")]);
        sets.extend(parked.iter().map(|name| format!("{base}unknown:{name}")));
        let mut owned = HashSet::new();
        for set in sets {
            owned.extend(self.names(&["ZRANGE", &set, "0", "-1"]));
        }
        let records = self.wire.call(&["HKEYS", key])?.texts();
        let orphans: Vec<_> = records
            .into_iter()
            .filter(|id| !owned.contains(id))
            .collect();
        if !orphans.is_empty() {
            let what = format!(
                "{key} holds {} records without a set: {}",
                orphans.len(),
                some_of(&orphans)
            );
            self.report(Leak::Record, what);
        }
        Ok(())
    }

    fn has_type(&mut self, key: &str, expected: &str) -> Result<bool, TestError> {
        let found = self.wire.call(&["TYPE", key])?.text().unwrap_or_default();
        // It may have expired since the scan.
        if found != expected && found != "none" {
            self.report(
                Leak::WrongType,
                format!("key {key} is a {found}, but should be a {expected}"),
            );
        }
        Ok(found == expected)
    }

    /// Reports a key that should not be there, with its type, size and time to live.
    fn left(&mut self, leak: Leak, key: &str) -> Result<(), TestError> {
        let kind = self.wire.call(&["TYPE", key])?.text().unwrap_or_default();
        let size = match kind.as_str() {
            "none" => return Ok(()),
            "stream" => "XLEN",
            "zset" => "ZCARD",
            "hash" => "HLEN",
            "set" => "SCARD",
            "list" => "LLEN",
            _ => "STRLEN",
        };
        let size = self
            .wire
            .call(&[size, key])
            .ok()
            .and_then(|reply| reply.int())
            .unwrap_or(-1);
        let ttl = match self.wire.call(&["PTTL", key])?.int() {
            Some(ttl) if ttl >= 0 => format!("{ttl} ms to live"),
            _ => "no expiry".to_owned(),
        };
        self.report(leak, format!("key {key} ({kind} of {size}, {ttl})"));
        Ok(())
    }

    fn report(&mut self, leak: Leak, what: String) {
        self.found.push(LeakFound { leak, what });
    }
}

/// One field of a flat list of names and values, as XINFO answers.
fn field(pairs: &Reply, name: &str) -> Option<String> {
    let [_, value] = pairs.items().chunks_exact(2).find_map(|pair| {
        <&[Reply; 2]>::try_from(pair)
            .ok()
            .filter(|pair| pair[0].text().as_deref() == Some(name))
    })?;
    value
        .int()
        .map(|number| number.to_string())
        .or_else(|| value.text())
}

fn describe_pending(entry: &Reply) -> String {
    let part = |index: usize| entry.items().get(index);
    let text = |index| part(index).and_then(Reply::text).unwrap_or_default();
    let number = |index| part(index).and_then(Reply::int).unwrap_or_default();
    format!(
        "{} of {} (idle for {} ms, delivered {} times)",
        text(0),
        text(1),
        number(2),
        number(3)
    )
}

fn some_of(names: &[String]) -> String {
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(" ");
    if more == 0 {
        shown
    } else {
        format!("{shown} and {more} more")
    }
}

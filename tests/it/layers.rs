//! The layers, as a test: who may name whom, and what must be absent where.
//!
//! The map is the one of docs/architecture.md. A new top-level module must be given its layer here first.

use std::collections::BTreeMap;
use std::io;

use crate::source::{Source, root, rust_files};

/// Every top-level module and its layer. A module may name its own layer below 4, and everything below.
const LAYERS: &[(&str, u8)] = &[
    ("task", 0),
    ("id", 0),
    ("state", 0),
    ("options", 0),
    ("error", 0),
    ("lifecycle", 1),
    ("schedule", 1),
    ("envelope", 1),
    ("store", 2),
    ("upkeep", 3),
    ("client", 4),
    ("server", 4),
    ("inspect", 4),
    ("testing", 5),
];

/// What users hold does not name each other, with these exceptions: a server is built from a client, and
/// `client.inspect()` makes an inspector.
const ACROSS: &[(&str, &str)] = &[("server", "client"), ("client", "inspect")];

/// Redis commands. As text they belong into `store`, where every call is.
const COMMANDS: &[&str] = &[
    "APPEND",
    "AUTH",
    "BLPOP",
    "CLIENT",
    "CLUSTER",
    "CONFIG",
    "DEL",
    "EVAL",
    "EVALSHA",
    "EXISTS",
    "EXPIRE",
    "FCALL",
    "FLUSHALL",
    "FLUSHDB",
    "GET",
    "HDEL",
    "HELLO",
    "HEXISTS",
    "HGET",
    "HGETALL",
    "HINCRBY",
    "HLEN",
    "HMGET",
    "HSCAN",
    "HSET",
    "HSETNX",
    "INCR",
    "INCRBY",
    "INFO",
    "KEYS",
    "LPOP",
    "LPUSH",
    "MEMORY",
    "MGET",
    "MULTI",
    "PERSIST",
    "PEXPIRE",
    "PING",
    "PSETEX",
    "PTTL",
    "PUBLISH",
    "ROLE",
    "RPUSH",
    "SADD",
    "SCAN",
    "SCARD",
    "SCRIPT",
    "SELECT",
    "SET",
    "SISMEMBER",
    "SMEMBERS",
    "SREM",
    "SSCAN",
    "SUBSCRIBE",
    "TIME",
    "TTL",
    "TYPE",
    "UNLINK",
    "WAIT",
    "XACK",
    "XADD",
    "XAUTOCLAIM",
    "XCLAIM",
    "XDEL",
    "XGROUP",
    "XINFO",
    "XLEN",
    "XPENDING",
    "XRANGE",
    "XREAD",
    "XREADGROUP",
    "XREVRANGE",
    "XTRIM",
    "ZADD",
    "ZCARD",
    "ZCOUNT",
    "ZPOPMIN",
    "ZRANGE",
    "ZRANGEBYSCORE",
    "ZREM",
    "ZREMRANGEBYSCORE",
    "ZSCAN",
    "ZSCORE",
];

/// Kinds of keys that are no ordinary word of the code elsewhere, and the braces of every key.
const KEY_KINDS: &[&str] = &[
    "~released",
    "producers",
    "crashes",
    "cfg",
    "u:",
    "r:",
    "g:",
    "n:d:",
    "unknown:",
    ":s",
];

#[test]
fn every_module_has_a_layer() -> io::Result<()> {
    let unknown: Vec<_> = modules()?
        .into_iter()
        .filter(|file| layer(file.module()).is_none())
        .map(|file| {
            format!(
                "{}: give `{}` its layer in tests/it/layers.rs",
                file.path,
                file.module()
            )
        })
        .collect();
    none(&unknown);
    Ok(())
}

#[test]
fn the_map_in_the_docs_names_every_module() -> io::Result<()> {
    let map = std::fs::read_to_string(root().join("docs/architecture.md"))?;
    let missing: Vec<_> = modules()?
        .iter()
        .map(|file| format!("| `{}` |", file.module()))
        .filter(|row| !map.contains(row))
        .collect();
    none(&missing);
    Ok(())
}

#[test]
fn modules_name_only_what_lies_below_them() -> io::Result<()> {
    let exports = root_exports()?;
    let mut wrong = Vec::new();
    for file in modules()? {
        for (line, named) in named_modules(&file, &exports) {
            if !may_name(file.module(), &named) {
                wrong.push(format!(
                    "{}:{line}: `{}` must not use `{named}`",
                    file.path,
                    file.module()
                ));
            }
        }
    }
    none(&wrong);
    Ok(())
}

#[test]
fn only_the_store_names_the_redis_client() -> io::Result<()> {
    let outside = |file: &Source| file.module() != "store";
    none(&words_in_code(&["fred"], outside)?);
    Ok(())
}

#[test]
fn the_pure_layers_name_no_runtime_clock_or_chance() -> io::Result<()> {
    let pure = |file: &Source| layer(file.module()).is_some_and(|layer| layer < 2);
    let absent = [
        "tokio",
        "fred",
        "futures_util",
        "tokio_util",
        "Instant",
        "fastrand",
        "now_v7",
        "new_v4",
    ];
    none(&words_in_code(&absent, pure)?);
    let clocks: Vec<_> = modules()?
        .iter()
        .filter(|file| pure(file))
        .flat_map(|file| {
            file.lines()
                .filter(|(_, line)| line.contains("SystemTime::now"))
                .map(|(n, _)| at(file, n))
        })
        .collect();
    none(&clocks);
    Ok(())
}

#[test]
fn redis_commands_and_keys_are_written_only_in_the_store() -> io::Result<()> {
    let mut wrong = Vec::new();
    for file in modules()?
        .iter()
        .filter(|file| !["store", "testing"].contains(&file.module()))
    {
        for (line, literal) in &file.literals {
            let first = literal.split_whitespace().next().unwrap_or_default();
            let key = KEY_KINDS.contains(&literal.as_str())
                || literal.contains(":{{")
                || literal.contains("}}:");
            if COMMANDS.contains(&first) || key {
                wrong.push(format!(
                    "{}: \"{literal}\" belongs into src/store",
                    at(file, *line)
                ));
            }
        }
    }
    none(&wrong);
    Ok(())
}

#[test]
fn lib_holds_only_docs_modules_and_exports() -> io::Result<()> {
    let lib = library()?;
    let items = [
        "fn ", "struct ", "enum ", "trait ", "impl ", "impl<", "const ", "static ",
    ];
    let wrong: Vec<_> = lib
        .lines()
        .filter(|(_, line)| {
            let line = line
                .trim_start()
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("pub ");
            // `struct Readme` carries the README's examples into the doc tests.
            items.iter().any(|item| line.starts_with(item)) && !line.contains("Readme")
        })
        .map(|(line, _)| at(&lib, line))
        .collect();
    none(&wrong);
    Ok(())
}

#[test]
fn paths_are_found_in_every_form_of_use() {
    let text = "use crate::{id::TaskId, store::{self, keys::{Keys, A}}, Failure};\nfn f() { super::super::client::go(); crate::server::x() }\npub(crate) fn g() {}";
    let file = Source::new("src/upkeep/promote.rs".to_owned(), text.to_owned());
    let exports = BTreeMap::from([("Failure".to_owned(), "task".to_owned())]);
    let mut found: Vec<_> = named_modules(&file, &exports)
        .into_iter()
        .map(|(_, name)| name)
        .collect();
    found.sort();
    assert_eq!(found, ["client", "id", "server", "store", "task"]);
    assert!(may_name("upkeep", "store") && !may_name("store", "upkeep"));
    assert!(
        may_name("server", "client")
            && !may_name("client", "server")
            && !may_name("inspect", "client")
    );
}

fn layer(module: &str) -> Option<u8> {
    LAYERS
        .iter()
        .find(|(name, _)| *name == module)
        .map(|(_, layer)| *layer)
}

fn may_name(from: &str, to: &str) -> bool {
    match (layer(from), layer(to)) {
        _ if from == to || ACROSS.contains(&(from, to)) => true,
        (Some(from), Some(to)) => to < from || (to == from && from < 4),
        _ => false,
    }
}

/// The files of the library but `lib.rs`, which names everything.
fn modules() -> io::Result<Vec<Source>> {
    let mut files = rust_files("src")?;
    files.retain(|file| file.path != "src/lib.rs" && !file.path.starts_with("src/bin/"));
    Ok(files)
}

fn library() -> io::Result<Source> {
    Ok(Source::new(
        "src/lib.rs".to_owned(),
        std::fs::read_to_string(root().join("src/lib.rs"))?,
    ))
}

/// What `lib.rs` exports at the root, and the module it comes from: `crate::Failure` is really `crate::task::Failure`.
fn root_exports() -> io::Result<BTreeMap<String, String>> {
    let lib = library()?;
    let mut exports = BTreeMap::new();
    for statement in lib.code.split(';') {
        let Some((_, path)) = statement.split_once("use ") else {
            continue;
        };
        let path = path
            .trim()
            .trim_start_matches("crate::")
            .trim_start_matches("self::");
        let Some((module, names)) = path.split_once("::") else {
            continue;
        };
        if layer(module).is_some() {
            for name in names
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .filter(|name| !name.is_empty())
            {
                exports.insert(name.to_owned(), module.to_owned());
            }
        }
    }
    Ok(exports)
}

/// The top-level modules that a file names by `crate::…` or by enough `super::…`, with the line of each.
fn named_modules(file: &Source, exports: &BTreeMap<String, String>) -> Vec<(usize, String)> {
    let to_the_root = format!("{}::", vec!["super"; file.depth()].join("::"));
    let mut found = Vec::new();
    for prefix in ["crate::", to_the_root.as_str()] {
        for (start, _) in file.code.match_indices(prefix) {
            let inside_a_word =
                file.code[..start].ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c));
            if inside_a_word {
                continue;
            }
            let line = 1 + file.code[..start].matches('\n').count();
            for name in first_elements(&file.code[start + prefix.len()..]) {
                let module = exports.get(&name).cloned().unwrap_or(name);
                if layer(&module).is_some() {
                    found.push((line, module));
                }
            }
        }
    }
    found
}

/// The first path element here, or those of each branch of a `{…}` group.
fn first_elements(rest: &str) -> Vec<String> {
    let word = |text: &str| {
        text.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    let Some(group) = rest.trim_start().strip_prefix('{') else {
        return vec![word(rest.trim_start())];
    };
    let (mut depth, mut start, mut found) = (0_usize, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                found.push(word(group[start..at].trim_start()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

/// Where files that `chosen` picks use one of the words as a word of code.
fn words_in_code(words: &[&str], chosen: impl Fn(&Source) -> bool) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for file in modules()?.iter().filter(|file| chosen(file)) {
        for (number, line) in file.lines() {
            let mut names = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(word) = names.find(|name| words.contains(name)) {
                found.push(format!("{}: `{word}` has no place here", at(file, number)));
            }
        }
    }
    Ok(found)
}

fn at(file: &Source, line: usize) -> String {
    format!("{}:{line}", file.path)
}

#[track_caller]
fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

//! House rules that a machine can check, so that no reviewer has to.

use std::io;

use crate::source::{Source, files, root, rust_files};

const MOST_LINES: usize = 500;
const README_LINES: usize = 150;

/// Words that say nothing about what a thing is.
const EMPTY_WORDS: &[&str] = &["manager", "util", "utils", "helper", "helpers"];
/// Verbs that say nothing about what a function does.
const EMPTY_VERBS: &[&str] = &["handle_", "do_", "process_"];

#[test]
fn no_file_is_longer_than_a_reader_can_hold() -> io::Result<()> {
    let mut all = ours()?
        .into_iter()
        .map(|file| (file.path, file.text))
        .collect::<Vec<_>>();
    all.extend(files("src", "lua")?);
    none(
        all.iter()
            .filter(|(_, text)| text.lines().count() > MOST_LINES)
            .map(|(path, text)| {
                format!(
                    "{path}: {} lines, at most {MOST_LINES}",
                    text.lines().count()
                )
            }),
    );
    Ok(())
}

#[test]
fn every_file_says_what_it_is() -> io::Result<()> {
    none(
        ours()?
            .iter()
            .filter(|file| !file.text.starts_with("//! "))
            .map(|file| format!("{}: starts without a `//!` header", file.path)),
    );
    Ok(())
}

#[test]
fn lints_are_expected_with_a_reason_and_never_allowed() -> io::Result<()> {
    none(code_with(&["#[allow(", "#![allow("])?);
    Ok(())
}

#[test]
fn nothing_is_unfinished_or_unwrapped() -> io::Result<()> {
    none(code_with(&[
        "todo!",
        "unimplemented!",
        "dbg!",
        ".unwrap()",
        ".unwrap_err()",
    ])?);
    Ok(())
}

#[test]
fn names_say_what_things_are() -> io::Result<()> {
    let mut wrong = Vec::new();
    for file in ours()? {
        let stem = file
            .path
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .trim_end_matches(".rs");
        let mut names = vec![(1, stem.to_owned())];
        names.extend(defined_names(&file));
        for (line, name) in names {
            let lower = name.to_lowercase();
            let empty = lower.split('_').any(|word| EMPTY_WORDS.contains(&word))
                || ["manager", "helper"]
                    .iter()
                    .any(|word| lower.ends_with(word));
            if empty || EMPTY_VERBS.iter().any(|verb| lower.starts_with(verb)) {
                wrong.push(format!(
                    "{}:{line}: `{name}` does not say what it is",
                    file.path
                ));
            }
        }
    }
    none(wrong);
    Ok(())
}

#[test]
fn each_script_says_what_it_takes_answers_costs_and_why_it_is_atomic() -> io::Result<()> {
    let mut wrong = Vec::new();
    // Parts that scripts share have no KEYS of their own; they say in a comment what they are.
    for (path, text) in files("src/store/scripts", "lua")? {
        let header: String = text
            .lines()
            .take_while(|line| line.starts_with("--"))
            .map(str::to_lowercase)
            .collect();
        let needed: &[&str] = if path.contains("/parts/") {
            &[]
        } else {
            &["keys", "argv", "reply", "cost", "atomic"]
        };
        let missing: Vec<_> = needed
            .iter()
            .filter(|word| !header.contains(**word))
            .collect();
        if header.is_empty() || !missing.is_empty() {
            wrong.push(format!("{path}: its header does not name {missing:?}"));
        }
    }
    none(wrong);
    Ok(())
}

#[test]
fn the_readme_is_short() -> io::Result<()> {
    let lines = std::fs::read_to_string(root().join("README.md"))?
        .lines()
        .count();
    assert!(
        lines < README_LINES,
        "README.md has {lines} lines, fewer than {README_LINES} are wanted"
    );
    Ok(())
}

#[test]
fn unsafe_code_is_forbidden_everywhere() -> io::Result<()> {
    none(ours()?.iter().flat_map(|file| {
        file.lines()
            .filter(|(_, line)| {
                line.split(|c: char| !c.is_alphanumeric() && c != '_')
                    .any(|word| word == "unsafe")
            })
            .map(|(line, _)| format!("{}:{line}: unsafe", file.path))
            .collect::<Vec<_>>()
    }));
    Ok(())
}

/// The sources of every crate of the workspace; tests and examples are not held to these rules.
fn ours() -> io::Result<Vec<Source>> {
    let mut all = rust_files("src")?;
    all.extend(
        rust_files("crates")?
            .into_iter()
            .filter(|file| file.path.contains("/src/")),
    );
    Ok(all)
}

fn code_with(needles: &[&str]) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for file in ours()? {
        for (number, line) in file.lines() {
            // `.unwrap()` may stand on a line of its own or follow other calls; spaces inside do not occur, rustfmt
            // sees to that.
            if let Some(needle) = needles.iter().find(|needle| line.contains(**needle)) {
                found.push(format!("{}:{number}: {needle}", file.path));
            }
        }
    }
    Ok(found)
}

/// What a file defines by name, with the line.
fn defined_names(file: &Source) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    for (number, line) in file.lines() {
        let words: Vec<_> = line
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words.windows(2) {
            if ["fn", "mod", "struct", "enum", "trait", "type"].contains(&pair[0]) {
                names.push((number, pair[1].to_owned()));
            }
        }
    }
    names
}

#[track_caller]
fn none(wrong: impl IntoIterator<Item = String>) {
    let wrong: Vec<_> = wrong.into_iter().collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

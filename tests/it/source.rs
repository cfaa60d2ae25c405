//! Our own sources as the tests about them see them: without comments, literals apart, unit tests left out.
//!
//! Used by `layers` and `tidy`. A small reader of Rust's tokens, not a parser: it knows comments, every kind of
//! string, characters and lifetimes, and that is enough to tell code from text.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// One file of ours.
pub(crate) struct Source {
    /// Relative to the root of the repository, with `/`.
    pub(crate) path: String,
    /// As it is stored.
    pub(crate) text: String,
    /// The code outside unit tests: comments and what literals hold are blanked, lines stay where they are.
    pub(crate) code: String,
    /// The string literals outside unit tests: line number and what is between the quotes.
    pub(crate) literals: Vec<(usize, String)>,
}

impl Source {
    pub(crate) fn new(path: String, text: String) -> Self {
        let (mut code, mut literals) = split(&text);
        let in_tests = blank_unit_tests(&mut code, &path);
        literals.retain(|(at, _)| !in_tests.iter().any(|range| range.contains(at)));
        let line = |at: usize| 1 + code.bytes().take(at).filter(|byte| *byte == b'\n').count();
        let literals = literals
            .into_iter()
            .map(|(at, literal)| (line(at), literal))
            .collect();
        Self {
            path,
            text,
            code,
            literals,
        }
    }

    /// The lines of code, numbered from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.code.lines())
    }

    /// The first path element below `src/`, without `.rs`: the top-level module.
    pub(crate) fn module(&self) -> &str {
        let below = self.path.strip_prefix("src/").unwrap_or(&self.path);
        below.split(['/', '.']).next().unwrap_or(below)
    }

    /// How many modules deep the file's own module is; 1 for `src/x.rs` and `src/x/mod.rs`.
    pub(crate) fn depth(&self) -> usize {
        let elements = self.path.split('/').count() - 1;
        if self.path.ends_with("/mod.rs") {
            elements - 1
        } else {
            elements
        }
    }
}

/// Every Rust file below a folder of the repository, in order.
pub(crate) fn rust_files(folder: &str) -> io::Result<Vec<Source>> {
    Ok(files(folder, "rs")?
        .into_iter()
        .map(|(path, text)| Source::new(path, text))
        .collect())
}

/// Path and text of every file below a folder with this ending, in order. A folder that is missing has none.
pub(crate) fn files(folder: &str, ending: &str) -> io::Result<Vec<(String, String)>> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop().filter(|folder| folder.is_dir()) {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                found.push((relative(&root, &path), fs::read_to_string(&path)?));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn relative(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.to_string_lossy().replace('\\', "/")
}

/// Code with comments and literals blanked, and the literals with the offset they start at.
fn split(text: &str) -> (String, Vec<(usize, String)>) {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut literals = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = if rest.starts_with(b"//") {
            at + rest
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            at + block_comment(rest)
        } else if let Some((inner, length)) =
            string(rest, at.checked_sub(1).map(|before| bytes[before]))
        {
            literals.push((at, String::from_utf8_lossy(&rest[inner]).into_owned()));
            at + length
        } else if let Some(length) = character(rest) {
            at + length
        } else {
            at += 1;
            continue;
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    (String::from_utf8_lossy(&code).into_owned(), literals)
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// If a string such as `"…"`, `b"…"` or `r#"…"#` starts here: what is between its quotes, and the length of all of it.
fn string(rest: &[u8], before: Option<u8>) -> Option<(Range<usize>, usize)> {
    let letters = rest
        .iter()
        .take(2)
        .take_while(|byte| b"brc".contains(byte))
        .count();
    let inside_a_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if letters > 0 && inside_a_word {
        return None;
    }
    let raw = rest[..letters].contains(&b'r');
    let hashes = if raw {
        rest[letters..]
            .iter()
            .take_while(|byte| **byte == b'#')
            .count()
    } else {
        0
    };
    let open = letters + hashes + 1;
    if rest.get(open - 1) != Some(&b'"') {
        return None;
    }
    let mut at = open;
    while at < rest.len() {
        if !raw && rest[at] == b'\\' {
            at += 2;
        } else if rest[at] == b'"'
            && rest[at + 1..]
                .iter()
                .take(hashes)
                .filter(|b| **b == b'#')
                .count()
                == hashes
        {
            return Some((open..at, at + 1 + hashes));
        } else {
            at += 1;
        }
    }
    Some((open..rest.len(), rest.len()))
}

/// The length of the character literal that starts here; none for a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if !rest.starts_with(b"'") {
        return None;
    }
    if rest.get(1) == Some(&b'\\') {
        return rest
            .iter()
            .skip(3)
            .position(|byte| *byte == b'\'')
            .map(|found| found + 4);
    }
    let text = String::from_utf8_lossy(&rest[1..rest.len().min(6)]);
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(first), Some('\'')) => Some(2 + first.len_utf8()),
        _ => None,
    }
}

/// Blanks each `#[cfg(test)]` item that has a body, and the whole of a file that is a test module; answers the
/// blanked ranges.
fn blank_unit_tests(code: &mut String, path: &str) -> Vec<Range<usize>> {
    const MARK: &str = "#[cfg(test)]";
    if ["/tests.rs", "_tests.rs", "/tests/", "_tests/", "/tests_"]
        .iter()
        .any(|part| path.contains(part))
    {
        let all = 0..code.len();
        *code = blank(code, &all);
        return vec![all];
    }
    let mut blanked = Vec::new();
    let mut from = 0;
    while let Some(found) = code[from..].find(MARK) {
        let start = from + found;
        let end = item_end(code, start + MARK.len());
        *code = blank(code, &(start..end));
        blanked.push(start..end);
        from = end;
    }
    blanked
}

/// Where the item that starts here ends: at its `;`, or behind its braces.
fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return at + 1,
            b'}' => depth -= 1,
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn blank(code: &str, range: &Range<usize>) -> String {
    let blanked = |(at, byte): (usize, u8)| {
        if range.contains(&at) && byte != b'\n' {
            b' '
        } else {
            byte
        }
    };
    String::from_utf8_lossy(&code.bytes().enumerate().map(blanked).collect::<Vec<_>>()).into_owned()
}

#[test]
fn comments_strings_and_unit_tests_are_told_from_code() {
    let text = r##"let a = "x // y"; // "z"
let b = r#"q "u" o"#; /* c /* d */ "e" */ let c = '"'; let d: &'static str = b"w\"";
#[cfg(test)]
mod tests { fn f() { g("t") } }
fn last() {}
"##;
    let source = Source::new("src/x.rs".to_owned(), text.to_owned());
    let literals: Vec<_> = source
        .literals
        .iter()
        .map(|(line, text)| (*line, text.as_str()))
        .collect();
    assert_eq!(literals, [(1, "x // y"), (2, r#"q "u" o"#), (2, r#"w\""#)]);
    assert!(source.code.contains("&'static str"));
    assert!(source.code.contains("fn last"));
    assert!(!source.code.contains("fn f"));
    assert_eq!(source.code.lines().count(), text.lines().count());
}

#[test]
fn a_file_knows_its_module_and_depth() {
    let of = |path: &str| Source::new(path.to_owned(), String::new());
    assert_eq!(
        (of("src/id.rs").module(), of("src/id.rs").depth()),
        ("id", 1)
    );
    assert_eq!(
        (
            of("src/store/mod.rs").module(),
            of("src/store/mod.rs").depth()
        ),
        ("store", 1)
    );
    assert_eq!(
        (
            of("src/store/conn.rs").module(),
            of("src/store/conn.rs").depth()
        ),
        ("store", 2)
    );
}

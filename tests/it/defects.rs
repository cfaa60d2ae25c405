//! Every defect of `docs/defects.md` has a test, and the test is there.

use std::collections::BTreeSet;

use crate::source::root;

const DEFECTS: u32 = 46;

/// The rows of the table: the number and the last column.
fn rows() -> Vec<(u32, String)> {
    let text = std::fs::read_to_string(root().join("docs/defects.md")).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("| B")?.split_once(" | "))
        .map(|(number, rest)| {
            let last = rest.trim_end_matches(" |").rsplit(" | ").next();
            (number.parse().unwrap(), last.unwrap().to_owned())
        })
        .collect()
}

/// The paths in backticks.
fn paths(cell: &str) -> Vec<&str> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| code.contains("::"))
        .collect()
}

#[test]
fn every_defect_is_there_once_and_has_a_test_or_a_reason() {
    let rows = rows();
    let numbers: Vec<u32> = rows.iter().map(|(number, _)| *number).collect();
    assert!(numbers.iter().copied().eq(1..=DEFECTS), "{numbers:?}");
    for (number, cell) in rows {
        let reason = cell.split_whitespace().count() >= 5 && cell.ends_with('.');
        assert!(!paths(&cell).is_empty() || reason, "B{number}: {cell}");
    }
}

#[test]
fn every_test_that_is_named_exists_and_is_not_ignored() {
    let rows = rows();
    let named: BTreeSet<&str> = rows.iter().flat_map(|(_, cell)| paths(cell)).collect();
    let wrong: Vec<String> = named
        .into_iter()
        .filter_map(|path| missing(path).map(|why| format!("{path}: {why}")))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What is wrong with a name, if anything.
fn missing(path: &str) -> Option<String> {
    let (module, name) = path.rsplit_once("::")?;
    let Some(text) = file_of(module) else {
        return Some(format!("there is no file of module {module}"));
    };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let begins = |line: &str, prefix: &str| {
        line.strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    let place = lines.iter().position(|line| {
        let line = line.trim_start_matches("pub(super) ");
        begins(line, &format!("fn {name}")) || begins(line, &format!("async fn {name}"))
    });
    let Some(place) = place else {
        return Some("there is no such function".to_owned());
    };
    let above = lines[..place].iter().rev();
    let attributes: Vec<&&str> = above
        .take_while(|line| line.starts_with('#') || line.starts_with("//"))
        .collect();
    if attributes.iter().any(|line| line.starts_with("#[ignore")) {
        return Some("it is ignored".to_owned());
    }
    let is_test = |line: &&&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    if attributes.iter().any(is_test) {
        return None;
    }
    // A behaviour is run by the list that it stands in.
    let list = file_of("conformance").unwrap_or_default();
    let listed = list
        .lines()
        .any(|line| line.trim().trim_end_matches(';') == name);
    let is_listed = module.starts_with("conformance::") && listed;
    (!is_listed).then(|| "it is no test".to_owned())
}

/// The text of a module of the library or of this binary, of both if they have the same name; a
/// module `tests` may be within its parent.
fn file_of(module: &str) -> Option<String> {
    let inner = module.strip_suffix("::tests");
    let mut text = String::new();
    for module in [Some(module), inner].into_iter().flatten() {
        let file = module.replace("::", "/");
        for base in ["src", "tests/it"] {
            for path in [format!("{base}/{file}.rs"), format!("{base}/{file}/mod.rs")] {
                text += &std::fs::read_to_string(root().join(path)).unwrap_or_default();
            }
        }
    }
    (!text.is_empty()).then_some(text)
}

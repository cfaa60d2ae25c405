//! Tables, and the one line of progress on standard error.

use std::io::{IsTerminal, Write};

/// Columns of text, the first to the left and the others to the right.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|&word| word.to_owned()).collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(String::len)
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, &width))| match column {
                    0 => format!("{cell:width$}"),
                    _ => format!("{cell:>width$}"),
                });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

/// Prints lines of results.
#[expect(
    clippy::print_stdout,
    reason = "the results of a program that is run for them"
)]
pub(crate) fn print(lines: impl IntoIterator<Item = impl AsRef<str>>) {
    for line in lines {
        println!("{}", line.as_ref());
    }
}

/// Says what is being measured, where somebody looks; a terminal keeps one line of it.
pub(crate) fn progress(text: &str) {
    let mut error = std::io::stderr().lock();
    // Nobody to tell is no reason to stop.
    let _ = if error.is_terminal() {
        write!(error, "\r\x1b[2K{text}")
    } else {
        writeln!(error, "{text}")
    };
    let _ = error.flush();
}

/// Takes the progress line away.
pub(crate) fn progress_over() {
    let mut error = std::io::stderr().lock();
    if error.is_terminal() {
        let _ = write!(error, "\r\x1b[2K");
        let _ = error.flush();
    }
}

/// A number of tasks per second, such as `118.2k`.
pub(crate) fn thousands(rate: f64) -> String {
    if rate >= 1000.0 {
        format!("{:.1}k", rate / 1000.0)
    } else {
        format!("{rate:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_to_the_right() {
        let mut table = Table::new(&["what", "rate"]);
        table.row(["forget".to_owned(), thousands(118_234.0)]);
        table.row(["one".to_owned(), thousands(7.0)]);
        assert_eq!(
            table.lines(),
            ["what      rate", "forget  118.2k", "one          7"]
        );
    }
}

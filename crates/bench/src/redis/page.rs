//! Where tables go: to the terminal, and with `--write` into a page of the documentation between their markers.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

/// The page that has the figures.
const PERFORMANCE: &str = "performance.md";

/// The page that reckons with them.
pub(super) const SIZING: &str = "sizing.md";

/// Where the tables of a run go.
#[derive(Debug)]
pub(super) struct Page {
    is_written: bool,
}

impl Page {
    /// With `--write` among the words, which is taken out, the documentation is changed as well.
    pub(super) fn new(words: &mut Vec<&str>) -> Page {
        let before = words.len();
        words.retain(|word| *word != "--write");
        Page { is_written: words.len() < before }
    }

    /// Prints a table that is known by a name.
    pub(super) fn put(&self, name: &str, table: &str) -> Result<()> {
        self.put_on(PERFORMANCE, name, table)
    }

    /// The same, on another page.
    pub(super) fn put_on(&self, page: &str, name: &str, table: &str) -> Result<()> {
        println!("\n{table}");
        if !self.is_written {
            return Ok(());
        }
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
        let text = std::fs::read_to_string(&file)?;
        let (begin, end) = (format!("<!-- bench redis: {name} -->"), "<!-- end -->");
        let missing = || format!("docs/{page} has no {begin}");
        let from = text.find(&begin).with_context(missing)? + begin.len();
        let to = from + text[from..].find(end).with_context(missing)?;
        let mut written = String::new();
        write!(written, "{}\n{}\n{}", &text[..from], table.trim_end(), &text[to..])?;
        Ok(std::fs::write(file, written)?)
    }
}

/// Says on the terminal what is being done, apart from the tables.
#[expect(clippy::print_stderr, reason = "tables go to stdout")]
pub(super) fn progress(what: &str) {
    eprintln!("… {what}");
}

/// Thousands apart, as the tables have it.
pub(super) fn spaced(count: f64) -> String {
    let digits = format!("{count:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// As many digits as say something.
pub(super) fn short(figure: f64) -> String {
    match figure {
        figure if figure >= 100.0 => format!("{figure:.0}"),
        figure if figure >= 10.0 => format!("{figure:.1}"),
        figure if figure >= 0.1 => format!("{figure:.2}"),
        figure if figure >= 0.0005 => format!("{figure:.4}"),
        _ => "0".to_owned(),
    }
}

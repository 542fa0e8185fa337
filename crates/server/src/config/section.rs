//! One mapping of the file, read field by field.
//!
//! Reading a field says its name and its type once; what nobody read is unknown, and is reported
//! together with the names that would have been known. A field that is wrong is a problem and reads
//! as absent, so that checking goes on.

use std::ops::RangeInclusive;
use std::time::Duration;

use tollgate::Micros;

use super::problems::{Place, Problems};
use super::tree::{Field, Node, Tree};

/// A mapping being read.
#[derive(Debug)]
pub(super) struct Section<'p> {
    path: String,
    place: Place,
    left: Vec<(Field, Tree)>,
    known: Vec<&'static str>,
    read: Vec<&'static str>,
    problems: &'p mut Problems,
}

/// A value, its path and its place.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) path: String,
    pub(super) place: Place,
}

impl<'p> Section<'p> {
    /// Opens a mapping; anything else is a problem, and reads as an empty one.
    pub(super) fn open(path: &str, tree: Tree, problems: &'p mut Problems) -> Section<'p> {
        let left = match tree.node {
            Node::Map(fields) => fields,
            Node::Null => Vec::new(),
            _ => {
                let what = format!("must be a mapping of fields, and is {}", tree.kind());
                problems.add(tree.place, path, what);
                Vec::new()
            }
        };
        Section {
            path: path.to_owned(),
            place: tree.place,
            left,
            known: Vec::new(),
            read: Vec::new(),
            problems,
        }
    }

    /// Where problems go.
    pub(super) fn problems(&mut self) -> &mut Problems {
        self.problems
    }

    /// Where the mapping itself stands.
    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// The path of a field of this mapping.
    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Whether a field was there when it was read, right or wrong.
    pub(super) fn was_there(&self, name: &str) -> bool {
        self.read.contains(&name)
    }

    /// A text.
    pub(super) fn text(&mut self, name: &'static str) -> Option<At<String>> {
        let tree = self.take(name)?;
        match tree.node {
            Node::Text(value) => Some(self.at(name, tree.place, value)),
            Node::Whole(_) | Node::OtherNumber | Node::Bool(_) => {
                self.wrong(name, &tree, "text: put it in quotes")
            }
            _ => self.wrong(name, &tree, "text"),
        }
    }

    /// A whole number within bounds.
    pub(super) fn whole(&mut self, name: &'static str, bounds: RangeInclusive<u64>) -> Option<At<u64>> {
        let tree = self.take(name)?;
        match tree.node {
            Node::Whole(value) if bounds.contains(&value) => Some(self.at(name, tree.place, value)),
            _ => {
                let wanted = format!("a whole number from {} to {}", bounds.start(), bounds.end());
                self.wrong(name, &tree, &wanted)
            }
        }
    }

    /// True or false.
    pub(super) fn truth(&mut self, name: &'static str) -> Option<At<bool>> {
        let tree = self.take(name)?;
        match tree.node {
            Node::Bool(value) => Some(self.at(name, tree.place, value)),
            _ => self.wrong(name, &tree, "true or false"),
        }
    }

    /// A span of time within bounds, with its unit.
    pub(super) fn span(
        &mut self,
        name: &'static str,
        bounds: RangeInclusive<Duration>,
    ) -> Option<At<Duration>> {
        let tree = self.take(name)?;
        match &tree.node {
            Node::Text(text) => {
                let path = self.path_of(name);
                let value = self.problems.keep(tree.place, &path, parse_span(text, &bounds))?;
                Some(At { value, path, place: tree.place })
            }
            _ => self.wrong(name, &tree, "a time with its unit, such as 250ms or 5s"),
        }
    }

    /// One of a few words.
    pub(super) fn word<T>(
        &mut self,
        name: &'static str,
        allowed: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<At<T>> {
        let text = self.text(name)?;
        let Some(value) = parse(&text.value) else {
            let what = format!("\"{}\" is not known: use {allowed}", clip(&text.value));
            self.problems.add(text.place, &text.path, what);
            return None;
        };
        Some(At { value, path: text.path, place: text.place })
    }

    /// A mapping inside this one; an absent one reads as empty.
    pub(super) fn section(&mut self, name: &'static str) -> Section<'_> {
        let path = self.path_of(name);
        let place = self.place;
        let tree = self.take(name).unwrap_or(Tree { place, node: Node::Null });
        Section::open(&path, tree, self.problems)
    }

    /// A list inside this mapping.
    pub(super) fn list(&mut self, name: &'static str) -> Option<Vec<Tree>> {
        let tree = self.take(name)?;
        match tree.node {
            Node::List(items) => Some(items),
            _ => self.wrong(name, &tree, "a list"),
        }
    }

    /// Reports what nobody read.
    pub(super) fn close(self) {
        let Section { path, left, known, problems, .. } = self;
        for (Field { name, place }, _) in left {
            let shown = if path.is_empty() { clip(&name) } else { format!("{path}.{}", clip(&name)) };
            problems.add(place, &shown, format!("unknown field: use {}", known.join(", ")));
        }
    }

    fn take(&mut self, name: &'static str) -> Option<Tree> {
        self.known.push(name);
        let at = self.left.iter().position(|(field, _)| field.name == name)?;
        let (_, tree) = self.left.swap_remove(at);
        if matches!(tree.node, Node::Null) {
            return None;
        }
        self.read.push(name);
        Some(tree)
    }

    fn at<T>(&self, name: &str, place: Place, value: T) -> At<T> {
        At { value, path: self.path_of(name), place }
    }

    fn wrong<T>(&mut self, name: &str, tree: &Tree, wanted: &str) -> Option<T> {
        let path = self.path_of(name);
        let found = match &tree.node {
            Node::Whole(number) => format!("the number {number}"),
            _ => tree.kind().to_owned(),
        };
        self.problems.add(tree.place, &path, format!("must be {wanted}; found {found}"));
        None
    }
}

/// Reads `250ms`, `5s`, `10min`, `1h`, `7d`. A bare number is refused: nobody agrees on its unit.
pub(crate) fn parse_span(text: &str, bounds: &RangeInclusive<Duration>) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let micros_per_unit: u64 = match unit.trim() {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(format!("\"{}\" is not a time: write 250ms, 5s, 10min or 1h", clip(text))),
    };
    let micros = number.parse::<u64>().ok().and_then(|number| number.checked_mul(micros_per_unit));
    micros.map(Duration::from_micros).filter(|span| bounds.contains(span)).ok_or_else(|| {
        let (least, most) = (Micros::from(*bounds.start()), Micros::from(*bounds.end()));
        format!("\"{}\" is out of bounds: from {least} to {most}", clip(text))
    })
}

/// What was written, short enough to print, and without what upsets a terminal.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

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
    read: Vec<(&'static str, Place)>,
    is_absent: bool,
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
        let is_absent = matches!(tree.node, Node::Null);
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
            is_absent,
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
        let name = clip(name);
        if self.path.is_empty() { name } else { format!("{}.{name}", self.path) }
    }

    /// The path of this mapping.
    pub(super) fn path(&self) -> String {
        self.path.clone()
    }

    /// Whether there was nothing at all.
    pub(super) fn is_absent(&self) -> bool {
        self.is_absent
    }

    /// Whether a field was there when it was read, right or wrong.
    pub(super) fn was_there(&self, name: &str) -> bool {
        self.read.iter().any(|(read, _)| *read == name)
    }

    /// Whether a field is there and has not been read yet.
    pub(super) fn has(&self, name: &str) -> bool {
        self.waiting(name).is_some_and(|(_, tree)| !matches!(tree.node, Node::Null))
    }

    /// Whether a field is there and is a mapping.
    pub(super) fn is_mapping(&self, name: &str) -> bool {
        self.waiting(name).is_some_and(|(_, tree)| tree.is_map())
    }

    /// Where the value of a field stands, read or not.
    pub(super) fn place_of(&self, name: &str) -> Option<Place> {
        let read = self.read.iter().find(|(read, _)| *read == name).map(|(_, place)| *place);
        read.or_else(|| self.waiting(name).map(|(_, tree)| tree.place))
    }

    fn waiting(&self, name: &str) -> Option<&(Field, Tree)> {
        self.left.iter().find(|(field, _)| field.name == name)
    }

    /// Reports a field that should be there.
    pub(super) fn missing(&mut self, name: &str, what: &str) {
        let (place, path) = (self.place, self.path_of(name));
        self.problems.add(place, &path, what);
    }

    /// A field that exists but says nothing here; whatever it holds is dropped.
    pub(super) fn skip(&mut self, name: &'static str) {
        drop(self.take(name));
    }

    /// Every field that is left, for mappings whose names are the author's own.
    pub(super) fn fields(&mut self) -> Vec<(Field, Tree)> {
        std::mem::take(&mut self.left)
    }

    /// A text, or a list of texts.
    pub(super) fn texts(&mut self, name: &'static str) -> Option<Vec<At<String>>> {
        let tree = self.take(name)?;
        let path = self.path_of(name);
        Some(texts_of(&path, tree, self.problems))
    }

    /// Every field that is left, each a text or a list of texts.
    pub(super) fn texts_by_name(&mut self) -> Vec<(Field, Vec<At<String>>)> {
        let fields = self.fields();
        let read = |(field, tree): (Field, Tree)| {
            let path = self.path_of(&field.name);
            let texts = texts_of(&path, tree, self.problems);
            (field, texts)
        };
        fields.into_iter().map(read).collect()
    }

    /// Every field that is left, each a whole number within bounds.
    pub(super) fn wholes_by_name(&mut self, bounds: RangeInclusive<u64>) -> Vec<(String, u64)> {
        let mut wholes = Vec::new();
        for (field, tree) in self.fields() {
            match tree.node {
                Node::Whole(value) if bounds.contains(&value) => wholes.push((field.name, value)),
                _ => {
                    let wanted = format!("a whole number from {} to {}", bounds.start(), bounds.end());
                    self.wrong::<()>(&field.name, &tree, &wanted);
                }
            }
        }
        wholes
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

    /// A text, or a number or truth that is taken for one: whoever writes `value: 443` means "443".
    pub(super) fn scalar(&mut self, name: &'static str) -> Option<At<String>> {
        let tree = self.take(name)?;
        let value = match &tree.node {
            Node::Text(text) => text.clone(),
            Node::Whole(number) => number.to_string(),
            Node::Bool(truth) => truth.to_string(),
            _ => return self.wrong(name, &tree, "text"),
        };
        Some(self.at(name, tree.place, value))
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
        #[cfg(test)]
        record(&path, &known);
        for (Field { name, place }, _) in left {
            let shown = if path.is_empty() { clip(&name) } else { format!("{path}.{}", clip(&name)) };
            problems.add(place, &shown, format!("unknown field: use {}", known.join(", ")));
        }
    }

    fn take(&mut self, name: &'static str) -> Option<Tree> {
        self.known.push(name);
        let at = self.left.iter().position(|(field, _)| field.name == name)?;
        let (_, tree) = self.left.remove(at);
        if matches!(tree.node, Node::Null) {
            return None;
        }
        self.read.push((name, tree.place));
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

/// A text, or a list of texts. Numbers and truths are texts here: whoever compares a header with 2 means "2".
fn texts_of(path: &str, tree: Tree, problems: &mut Problems) -> Vec<At<String>> {
    let (is_list, trees) = match tree.node {
        Node::List(trees) => (true, trees),
        node => (false, vec![Tree { place: tree.place, node }]),
    };
    let mut texts = Vec::new();
    for (at, tree) in trees.into_iter().enumerate() {
        let path = if is_list { format!("{path}[{at}]") } else { path.to_owned() };
        let value = match tree.node {
            Node::Text(text) => text,
            Node::Whole(number) => number.to_string(),
            Node::Bool(truth) => truth.to_string(),
            _ => {
                problems.add(
                    tree.place,
                    &path,
                    format!("must be text, or a list of texts; found {}", tree.kind()),
                );
                continue;
            }
        };
        texts.push(At { value, path, place: tree.place });
    }
    texts
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

/// What every section knew when it was closed, by its path, while `work` ran; places in lists and names of
/// the author's own are left out.
#[cfg(test)]
pub(super) fn known_fields(
    work: impl FnOnce(),
) -> std::collections::BTreeMap<String, std::collections::BTreeSet<String>> {
    KNOWN.with_borrow_mut(|known| known.replace(std::collections::BTreeMap::default()));
    work();
    KNOWN.with_borrow_mut(Option::take).unwrap_or_default()
}

#[cfg(test)]
thread_local! {
    static KNOWN: std::cell::RefCell<Option<std::collections::BTreeMap<String, std::collections::BTreeSet<String>>>> =
        const { std::cell::RefCell::new(None) };
}

#[cfg(test)]
fn record(path: &str, known: &[&str]) {
    let mut place = String::new();
    for part in path.split('.') {
        let (name, index) = part.split_once('[').map_or((part, ""), |(name, _)| (name, "[]"));
        let name = if place == "plans" { "*" } else { name };
        place = if place.is_empty() { format!("{name}{index}") } else { format!("{place}.{name}{index}") };
    }
    KNOWN.with_borrow_mut(|all| {
        if let Some(all) = all {
            all.entry(place).or_default().extend(known.iter().map(|&name| name.to_owned()));
        }
    });
}

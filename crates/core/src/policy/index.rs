//! Finds the rules that may apply to a call without looking at all of them.
//!
//! Every rule is filed under one of its conditions: an exact value of some attribute, the literal
//! beginning of a path, or a range of addresses; of those it has, the one that the fewest rules share.
//! A call then looks up its own values. How many rules there are makes no difference; how many
//! different attributes they are filed under does. What has no such condition is looked at every time.

use std::collections::HashMap;

use super::Rule;
use super::names::NameHasher;
use super::pattern::SEGMENTS_MAX;
use super::when::Accepts;
use crate::address::{Cidr, fold};
use crate::attributes::{Attribute, Attributes};

/// The places of rules, in the policy.
type Places = Vec<u32>;

type ByText = HashMap<Box<str>, Places, NameHasher>;

/// Where the rules are filed.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Under no condition.
    always: Places,
    /// Under a whole path.
    whole_paths: ByText,
    /// Under the beginning of a path, which may be all of it.
    path_heads: ByText,
    /// How many segments such beginnings have.
    head_depths: Vec<usize>,
    /// Under the value of an attribute.
    values: Vec<(Attribute, ByText)>,
    /// Under a range of addresses, by its length.
    ranges: Vec<(RangeKind, HashMap<Cidr, Places>)>,
}

/// Whether a range is of v4 addresses, and its length.
type RangeKind = (bool, u8);

/// One place a rule can be filed under.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum File {
    WholePath(Box<str>),
    PathHead(Box<str>),
    Value(Attribute, Box<str>),
    Range(Cidr),
}

impl Index {
    /// Files every rule that can apply by itself.
    pub(super) fn new(rules: &[Rule]) -> Index {
        let mut index = Index::default();
        let choices: Vec<(u32, Vec<Vec<File>>)> = (0_u32..)
            .zip(rules)
            .filter(|(_, rule)| rule.key().is_some())
            .map(|(place, rule)| (place, choices(rule)))
            .collect();
        let mut crowds: HashMap<&File, usize> = HashMap::new();
        for file in choices.iter().flat_map(|(_, choices)| choices.iter().flatten()) {
            let crowd = crowds.entry(file).or_default();
            *crowd = crowd.saturating_add(1);
        }
        for (place, choices) in &choices {
            let crowd = |files: &Vec<File>| {
                files
                    .iter()
                    .filter_map(|file| crowds.get(file))
                    .fold(0_usize, |sum, n| sum.saturating_add(*n))
            };
            match choices.iter().min_by_key(|files| crowd(files)) {
                None => index.always.push(*place),
                Some(files) => files.iter().for_each(|file| index.file(file, *place)),
            }
        }
        index
    }

    fn file(&mut self, file: &File, place: u32) {
        match file {
            File::WholePath(path) => self.whole_paths.entry(path.clone()).or_default().push(place),
            File::PathHead(head) => {
                let depth = head.bytes().filter(|&byte| byte == b'/').count();
                if !self.head_depths.contains(&depth) {
                    self.head_depths.push(depth);
                    self.head_depths.sort_unstable();
                }
                self.path_heads.entry(head.clone()).or_default().push(place);
            }
            File::Value(attribute, value) => {
                let at = self.values.iter().position(|(known, _)| known == attribute);
                let at = at.unwrap_or_else(|| {
                    self.values.push((attribute.clone(), ByText::with_hasher(NameHasher)));
                    self.values.len().saturating_sub(1)
                });
                if let Some((_, by_value)) = self.values.get_mut(at) {
                    by_value.entry(value.clone()).or_default().push(place);
                }
            }
            File::Range(cidr) => {
                let kind = cidr.kind();
                let at = self.ranges.iter().position(|(known, _)| *known == kind);
                let at = at.unwrap_or_else(|| {
                    self.ranges.push((kind, HashMap::new()));
                    self.ranges.len().saturating_sub(1)
                });
                if let Some((_, ranges)) = self.ranges.get_mut(at) {
                    ranges.entry(*cidr).or_default().push(place);
                }
            }
        }
    }

    /// The rules that may apply, in the order written, each once.
    pub(super) fn candidates(&self, attributes: &dyn Attributes) -> Places {
        let mut found = self.always.clone();
        if !self.whole_paths.is_empty() || !self.path_heads.is_empty() {
            attributes.any(&Attribute::Path, &mut |path| {
                self.by_path(path, &mut found);
                false
            });
        }
        for (attribute, by_value) in &self.values {
            attributes.any(attribute, &mut |value| {
                found.extend(by_value.get(value).into_iter().flatten());
                false
            });
        }
        if !self.ranges.is_empty()
            && let Some(address) = attributes.address().map(fold)
        {
            for ((is_v4, prefix), ranges) in &self.ranges {
                if *is_v4 == address.is_ipv4() {
                    let places = ranges.get(&Cidr::around(address, *prefix));
                    found.extend(places.into_iter().flatten());
                }
            }
        }
        // A rule with two paths may be filed under two beginnings of one, and a call may have two values.
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found
    }

    fn by_path(&self, path: &str, found: &mut Places) {
        let path = path.strip_suffix('/').unwrap_or(path);
        found.extend(self.whole_paths.get(path).into_iter().flatten());
        let mut depths = self.head_depths.iter().copied().peekable();
        // The end of the head that has so many segments is where the next one begins.
        let ends = path.bytes().enumerate().filter(|&(at, byte)| at > 0 && byte == b'/').map(|(at, _)| at);
        let ends = ends.chain([path.len()]).take(SEGMENTS_MAX);
        for (depth, end) in (1_usize..).zip(ends) {
            match depths.peek() {
                None => break,
                Some(&wanted) if wanted == depth => {
                    depths.next();
                    let places = path.get(..end).and_then(|head| self.path_heads.get(head));
                    found.extend(places.into_iter().flatten());
                }
                Some(_) => {}
            }
        }
    }
}

/// The conditions a rule can be filed under, each with all the files it would need.
fn choices(rule: &Rule) -> Vec<Vec<File>> {
    let conditions = rule.when().conditions().iter();
    conditions
        .filter_map(|condition| match condition.accepts() {
            Accepts::Texts { globs, .. } if !globs.is_empty() => None,
            Accepts::Texts { exact, .. } => {
                let values = exact.iter().cloned();
                Some(values.map(|value| File::Value(condition.attribute().clone(), value)).collect())
            }
            Accepts::Paths(paths) => paths
                .iter()
                .map(|pattern| match pattern.literal() {
                    (path, true) => Some(File::WholePath(path.into())),
                    (head, false) if head.is_empty() => None,
                    (head, false) => Some(File::PathHead(head.into())),
                })
                .collect(),
            Accepts::Addresses { ranges, .. } => Some(ranges.iter().map(|cidr| File::Range(*cidr)).collect()),
        })
        .collect()
}

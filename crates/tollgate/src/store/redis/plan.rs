//! How the asks of a batch are put to `scripts/batch.lua`, and how its reply is read.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tollgate_core::algorithm::token_bucket::Left;
use tollgate_core::decision::Found;
use tollgate_core::store::StoreError;
use tollgate_core::units::Micros;

use super::batch::Told;
use super::part::{Argued, Asked, Packed, Part};
use super::reply::{bad, whole};
use super::request::head;
use super::scripts::Called;
use super::wire::{Reply, bulk, header};

/// Where the first argument after now and the plan stands.
const ARGUMENT_FIRST: usize = 3;

/// How the asks of a batch were put, and so how its reply is to be read.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// How many asks.
    asks: usize,
    /// In the order of the reply.
    groups: Vec<Group>,
    /// How many of the groups are single buckets; they come first.
    singles: usize,
    /// The group of each ask, where a group has several.
    group_of: Vec<usize>,
}

/// Asks that are answered together.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// Its number, in the order the groups were opened.
    number: usize,
    first_ask: usize,
    /// How many asks: several only if they ask the same of one bucket.
    times: u8,
    answered: Answered,
}

#[derive(Debug, Clone, Copy)]
enum Answered {
    /// As a bucket that is asked for so many units.
    Bucket { needed: u64 },
    /// With five numbers for each of so many checks.
    Checks { count: usize },
}

/// A group while the plan is made.
struct Draft<'a> {
    group: Group,
    part: &'a Part,
    /// Where its arguments stand.
    arguments: Vec<u8>,
    argument: u8,
    /// Whether it is the first with its key.
    is_first: bool,
}

impl Plan {
    /// Appends the call for these asks.
    pub(super) fn write<'a>(
        asks: impl Iterator<Item = &'a Part>,
        called: Called<'_>,
        now: Micros,
        out: &mut Vec<u8>,
    ) -> Plan {
        let mut arguments = Arguments::default();
        let mut keys: HashMap<&[u8], Key> = HashMap::with_capacity(asks.size_hint().0);
        let mut drafts: Vec<Draft<'_>> = Vec::with_capacity(asks.size_hint().0);
        let mut group_of = Vec::with_capacity(asks.size_hint().0);
        for (ask, part) in asks.enumerate() {
            let number = drafts.len();
            let group = |answered| Group { number, first_ask: ask, times: 1, answered };
            match &part.asked {
                Asked::Bucket { key, packed } => {
                    let argument = arguments.bucket(packed);
                    let mut is_first = true;
                    match keys.entry(key) {
                        Entry::Vacant(place) => drop(place.insert(Key::of(number))),
                        Entry::Occupied(mut known) => {
                            let last = &mut drafts[known.get().group];
                            // The same again, and nothing has come between.
                            if matches!(last.part.asked, Asked::Bucket { .. }) && last.argument == argument {
                                last.group.times += 1;
                                group_of.push(last.group.number);
                                continue;
                            }
                            known.get_mut().group = number;
                            is_first = false;
                        }
                    }
                    // A number that is none of ours cannot have been packed.
                    let needed = whole(packed.needed()).unwrap_or(u64::MAX);
                    let group = group(Answered::Bucket { needed });
                    drafts.push(Draft { group, part, arguments: Vec::new(), argument, is_first });
                }
                Asked::Checks(checks) => {
                    for check in checks {
                        keys.entry(&check.key).or_insert(Key::of(number)).group = number;
                    }
                    let group = group(Answered::Checks { count: checks.len() });
                    let arguments = checks.iter().map(|check| arguments.check(check)).collect();
                    drafts.push(Draft { group, part, arguments, argument: 0, is_first: false });
                }
            }
            group_of.push(number);
        }
        let asks = group_of.len();
        // Stable: those that are not single stay in the order they came.
        drafts.sort_by_key(|draft| (!draft.is_single(), if draft.is_single() { draft.argument } else { 0 }));
        let singles = drafts.iter().take_while(|draft| draft.is_single()).count();
        if drafts.len() == asks {
            group_of.clear();
        }

        let mut names: Vec<&[u8]> = Vec::with_capacity(keys.len());
        let mut plan = vec![narrow(singles)];
        for run in drafts[..singles].chunk_by(|a, b| a.argument == b.argument) {
            plan.extend([run[0].argument, narrow(run.len())]);
        }
        let mut number_of = |key: &'a [u8]| -> u8 {
            let known = keys.entry(key).or_insert(Key::of(0));
            *known.number.get_or_insert_with(|| {
                names.push(key);
                narrow(names.len())
            })
        };
        for draft in &drafts {
            match &draft.part.asked {
                Asked::Bucket { key, .. } if draft.is_single() => drop(number_of(key)),
                Asked::Bucket { key, .. } => {
                    plan.extend([0, number_of(key), draft.argument, draft.group.times]);
                }
                Asked::Checks(checks) => {
                    plan.push(narrow(checks.len()));
                    for (check, argument) in checks.iter().zip(&draft.arguments) {
                        plan.extend([number_of(&check.key), *argument]);
                    }
                }
            }
        }

        header(out, b'*', 3 + names.len() + 2 + arguments.count);
        head(out, called, names.len());
        for name in names {
            bulk(out, name);
        }
        bulk(out, itoa::Buffer::new().format(now.0).as_bytes());
        bulk(out, &plan);
        out.extend_from_slice(&arguments.bytes);
        Plan { asks, groups: drafts.iter().map(|draft| draft.group).collect(), singles, group_of }
    }

    /// What each ask is told, in the order they came.
    pub(super) fn read(&self, reply: &Reply) -> Result<Vec<Told>, StoreError> {
        let (bytes, errors) = match reply {
            Reply::Bulk(bytes) => (bytes, &[][..]),
            Reply::Array(items) => match items.split_first() {
                Some((Reply::Bulk(bytes), errors)) => (bytes, errors),
                _ => return Err(bad("an array that begins with no batch")),
            },
            _ => return Err(bad("not a batch")),
        };
        let mut numbers = Numbers { left: bytes, errors, now: 0 };
        numbers.now = numbers.next()?;
        let mut told: Vec<Option<Told>> = Vec::with_capacity(self.asks);
        told.resize_with(self.asks, || None);

        let (singles, others) = self.groups.split_at(self.singles);
        let mut unusual = Vec::new();
        for group in singles {
            let number = numbers.next()?;
            let answer = &mut told[group.first_ask];
            match number % 4 {
                3 if number == 3 => unusual.push(group.first_ask),
                3 => *answer = Some(numbers.error(number)?),
                code => *answer = Some(numbers.bucket(number / 4, code != 1, code != 2)),
            }
        }
        for ask in unusual {
            told[ask] = Some(numbers.checks(1)?);
        }
        for group in others {
            match group.answered {
                Answered::Checks { count } => told[group.first_ask] = Some(numbers.alone(count)?),
                Answered::Bucket { needed } => {
                    let asks = self.asks_of(group);
                    if numbers.peek()? % 4 == 3 {
                        for ask in asks {
                            told[ask] = Some(numbers.alone(1)?);
                        }
                        continue;
                    }
                    let (number, spent) = (numbers.next()?, numbers.next()?);
                    for (at, ask) in (1..).zip(asks) {
                        let after = spent.saturating_sub(at).saturating_mul(needed);
                        let is_found = at > 1 || number % 4 != 2;
                        told[ask] = Some(numbers.bucket(number / 4 + after, at <= spent, is_found));
                    }
                }
            }
        }
        if !numbers.left.is_empty() {
            return Err(bad("a batch that is too long"));
        }
        told.into_iter().map(|told| told.ok_or_else(|| bad("a batch without some answer"))).collect()
    }

    /// The asks of a group, in the order they came.
    fn asks_of(&self, group: &Group) -> Vec<usize> {
        if group.times == 1 {
            return vec![group.first_ask];
        }
        (0..self.asks).filter(|&ask| self.group_of.get(ask) == Some(&group.number)).collect()
    }
}

impl Draft<'_> {
    /// Whether it is one ask for a bucket that no ask before it was for.
    fn is_single(&self) -> bool {
        self.is_first && self.group.times == 1
    }
}

/// What is known of a key.
struct Key {
    /// The last group that is for it.
    group: usize,
    /// Its number in the call, once it has one.
    number: Option<u8>,
}

impl Key {
    fn of(group: usize) -> Key {
        Key { group, number: None }
    }
}

/// What is asked, each sent once.
#[derive(Default)]
struct Arguments<'a> {
    bytes: Vec<u8>,
    count: usize,
    /// Where they stand, and the time to live that goes with them.
    known: HashMap<&'a [u8], (u8, u64)>,
    /// The last, for the next is likely the same.
    last: Option<(&'a [u8], u8)>,
}

impl<'a> Arguments<'a> {
    fn bucket(&mut self, packed: &'a Packed) -> u8 {
        let packed = packed.as_slice();
        if let Some((_, at)) = self.last.filter(|(last, _)| *last == packed) {
            return at;
        }
        let known = self.known.get(packed).map(|(at, _)| *at);
        let at = known.unwrap_or_else(|| self.push(packed));
        self.known.insert(packed, (at, 0));
        self.last = Some((packed, at));
        at
    }

    fn check(&mut self, check: &'a Argued) -> u8 {
        let packed = check.packed.as_slice();
        if let Some((at, _)) = self.known.get(packed).filter(|(_, ttl_ms)| *ttl_ms == check.ttl_ms) {
            return *at;
        }
        let at = self.push(packed);
        self.push(itoa::Buffer::new().format(check.ttl_ms).as_bytes());
        self.known.insert(packed, (at, check.ttl_ms));
        at
    }

    fn push(&mut self, argument: &[u8]) -> u8 {
        bulk(&mut self.bytes, argument);
        self.count += 1;
        narrow(ARGUMENT_FIRST - 1 + self.count)
    }
}

/// A number of the plan; a batch has no room for one that takes more than a byte.
fn narrow(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// The numbers of a reply that are still to be read.
struct Numbers<'a> {
    left: &'a [u8],
    errors: &'a [Reply],
    now: u64,
}

impl Numbers<'_> {
    fn peek(&self) -> Result<u64, StoreError> {
        whole(self.left.get(..8).ok_or_else(|| bad("a batch that is too short"))?)
    }

    fn next(&mut self) -> Result<u64, StoreError> {
        let number = self.peek()?;
        self.left = &self.left[8..];
        Ok(number)
    }

    fn bucket(&self, units: u64, is_spent: bool, is_found: bool) -> Told {
        let found = if is_found { Found::State } else { Found::Nothing };
        Told::Bucket { left: Left { units, now: Micros(self.now) }, is_spent, found }
    }

    /// An ask that was answered by itself.
    fn alone(&mut self, checks: usize) -> Result<Told, StoreError> {
        match self.next()? {
            3 => self.checks(checks),
            number if number % 4 == 3 => self.error(number),
            _ => Err(bad("an answer of another kind")),
        }
    }

    fn checks(&mut self, count: usize) -> Result<Told, StoreError> {
        let mut numbers = Vec::with_capacity(1 + 5 * count);
        numbers.push(self.now);
        for _ in 0..5 * count {
            numbers.push(self.next()?);
        }
        Ok(Told::Numbers(numbers))
    }

    fn error(&self, number: u64) -> Result<Told, StoreError> {
        let at = usize::try_from(number / 4).unwrap_or(usize::MAX);
        match self.errors.get(at.saturating_sub(1)) {
            Some(Reply::Bulk(why)) => {
                Ok(Told::Reply(Reply::Error(String::from_utf8_lossy(why).into_owned())))
            }
            _ => Err(bad("an error without its text")),
        }
    }
}

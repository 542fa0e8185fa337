//! Commands that differ from an earlier one in nothing but their key, known by their bytes.
//!
//! A client writes one `CL.THROTTLE` over and over, and only the key changes. What stands before and behind
//! the key then means what it meant before: it is compared, and not read again. Those that follow each
//! other are a run, which the engine is asked for as one. Whatever differs in a single byte more is no part
//! of it, and is read and answered like everything else.
//!
//! Proved by: alike/tests.rs, against the reader

use std::sync::Arc;

use tollgate::core::check::Check;
use tollgate::{Cost, InlineLimit};

use super::command::Question;
use super::frame::{Limits, Words};
use super::throttle::Rounding;
use crate::telemetry::resp::Command;

/// The most forms a connection remembers: a gateway has a limit for an address, one for a token, and so on.
const FORMS_MAX: usize = 4;

/// The longest form: a name and five numbers are far shorter.
const FORM_BYTES_MAX: usize = 256;

/// The most commands of one run, so that what they are answered with stays small.
const RUN_MAX: usize = 64;

/// The most digits of a key's length: a longer key is none.
const DIGITS_MAX: usize = 4;

/// What a connection remembers of its commands.
#[derive(Debug, Default)]
pub(super) struct Alike {
    forms: Vec<Form>,
    /// The form that the next new one takes the place of.
    oldest: usize,
    /// The keys of the last run: kept for its room.
    keys: Vec<Place>,
}

/// A command without its key.
#[derive(Debug)]
struct Form {
    /// All before the digits of the key's length.
    before: Vec<u8>,
    /// All behind the key, its line's end included.
    behind: Vec<u8>,
    command: Command,
    limit: Arc<InlineLimit>,
    cost: Cost,
    rounding: Rounding,
}

/// Where a key stands, and in which form.
#[derive(Debug, Clone, Copy)]
struct Place {
    form: usize,
    start: usize,
    end: usize,
}

/// Commands that follow each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    bytes: &'a [u8],
    forms: &'a [Form],
    keys: &'a [Place],
    length: usize,
}

impl Alike {
    /// Remembers a command's form, if it is one that a run can be made of: a spend under a limit that the
    /// caller brings along, written as an array.
    pub(super) fn learn(&mut self, command: Command, words: &Words<'_, '_>, question: &Question<'_>) {
        let Question::Throttle { limit, cost, rounding, .. } = question else { return };
        let Some((before, behind)) = words.around(1) else { return };
        // Between the sign and the key there are only the digits of its length and a line's end.
        let sign = before.iter().rposition(|&byte| byte == b'$');
        let Some(before) = sign.and_then(|sign| before.get(..=sign)) else { return };
        if before.first() != Some(&b'*') || before.len() + behind.len() > FORM_BYTES_MAX {
            return;
        }
        if self.forms.iter().any(|form| form.before == before && form.behind == behind) {
            return;
        }
        let form = Form {
            before: before.to_vec(),
            behind: behind.to_vec(),
            command,
            limit: Arc::clone(limit),
            cost: *cost,
            rounding: *rounding,
        };
        if self.forms.len() < FORMS_MAX {
            self.forms.push(form);
        } else {
            self.forms[self.oldest] = form;
            self.oldest = (self.oldest + 1) % FORMS_MAX;
        }
    }

    /// The commands that `bytes` begin with, as far as they are whole and of forms that are known.
    ///
    /// hot path: a comparison each; no allocation once `keys` has grown.
    pub(super) fn run<'a>(&'a mut self, bytes: &'a [u8], limits: &Limits) -> Option<Run<'a>> {
        let Alike { forms, keys, .. } = self;
        keys.clear();
        let (mut length, mut last) = (0, 0);
        while keys.len() < RUN_MAX {
            let rest = bytes.get(length..).unwrap_or_default();
            // Beginning with the last one: it is nearly always the next.
            let find = |form: usize| Some((form, forms.get(form)?.find(rest, limits)?));
            let found = find(last).or_else(|| (0..forms.len()).find_map(find));
            let Some((form, (start, end, more))) = found else { break };
            keys.push(Place { form, start: length + start, end: length + end });
            (length, last) = (length + more, form);
        }
        (!keys.is_empty()).then_some(Run { bytes, forms, keys, length })
    }
}

impl Form {
    /// Where the key begins and ends in a command of this form, and how long the command is; `None` if
    /// `bytes` do not begin with one that is whole and may be asked.
    #[inline]
    fn find(&self, bytes: &[u8], limits: &Limits) -> Option<(usize, usize, usize)> {
        let rest = bytes.strip_prefix(&*self.before)?;
        let digits = rest.iter().take(DIGITS_MAX).take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = rest.split_at(digits);
        let number = number.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
        let rest = rest.strip_prefix(b"\r\n")?;
        let (key, rest) = rest.split_at_checked(number)?;
        if !rest.starts_with(&self.behind) || self.limit.check(key, self.cost).is_err() {
            return None;
        }
        let start = self.before.len() + digits + 2;
        let (end, length) = (start + number, start + number + self.behind.len());
        (number <= limits.word_bytes && length <= limits.frame_bytes).then_some((start, end, length))
    }
}

impl<'a> Run<'a> {
    /// How many bytes it is.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// What they ask for, in order.
    pub(super) fn checks(&self) -> impl Iterator<Item = Check<'a>> + Clone + use<'a> {
        let Run { bytes, forms, keys, .. } = *self;
        keys.iter().filter_map(move |&Place { form, start, end }| {
            let Form { limit, cost, .. } = forms.get(form)?;
            limit.check(bytes.get(start..end)?, *cost).ok()
        })
    }

    /// Which commands they are and how their answers are rounded, in order.
    pub(super) fn forms(&self) -> impl Iterator<Item = (Command, Rounding)> + use<'a> {
        let Run { forms, keys, .. } = *self;
        keys.iter().filter_map(move |place| forms.get(place.form)).map(|form| (form.command, form.rounding))
    }
}

#[cfg(test)]
mod tests;

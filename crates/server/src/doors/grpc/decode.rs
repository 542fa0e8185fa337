//! `RateLimitRequest` from bytes. Everything that is wrong with it ends here or in `Request::check`, and
//! nothing is spent.
//!
//! hot path: keys and values are slices of the body; two allocations for a descriptor, for its lists.

use std::borrow::Cow;

use super::wire::{Malformed, Reader};
use crate::rls::{Carried, DESCRIPTORS_MAX, Descriptor, ENTRIES_MAX, Entry, Request, Unit};

/// Reads a request.
pub(super) fn request(bytes: &[u8]) -> Result<Request<'_>, Malformed> {
    let (mut domain, mut hits_addend) = ("", 0);
    let mut descriptors = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => domain = field.text()?,
            2 if descriptors.len() > DESCRIPTORS_MAX => {}
            2 => descriptors.push(descriptor(field.message()?)?),
            3 => hits_addend = small(field.number()?),
            _ => {}
        }
    }
    Ok(Request { domain: Cow::Borrowed(domain), descriptors: descriptors.into_iter().collect(), hits_addend })
}

fn descriptor(bytes: &[u8]) -> Result<Descriptor<'_>, Malformed> {
    let mut entries = Vec::new();
    let (mut carried, mut hits_addend, mut is_negative) = (None, None, false);
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 if entries.len() > ENTRIES_MAX => {}
            1 => entries.push(entry(field.message()?)?),
            2 => carried = Some(limit(field.message()?, carried)?),
            3 => hits_addend = Some(wrapped(field.message()?, hits_addend.unwrap_or(0))?),
            4 => is_negative = field.number()? != 0,
            _ => {}
        }
    }
    Ok(Descriptor { entries: entries.into_iter().collect(), carried, hits_addend, is_negative })
}

fn entry(bytes: &[u8]) -> Result<Entry<'_>, Malformed> {
    let (mut key, mut value) = ("", "");
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => key = field.text()?,
            2 => value = field.text()?,
            _ => {}
        }
    }
    Ok(Entry { key: Cow::Borrowed(key), value: Cow::Borrowed(value) })
}

/// A message that is written twice is one message.
fn limit(bytes: &[u8], before: Option<Carried>) -> Result<Carried, Malformed> {
    let mut carried = before.unwrap_or(Carried { requests_per_unit: 0, unit: None });
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => carried.requests_per_unit = small(field.number()?),
            2 => carried.unit = Unit::of_number(field.number()?),
            _ => {}
        }
    }
    Ok(carried)
}

fn wrapped(bytes: &[u8], before: u64) -> Result<u64, Malformed> {
    let mut value = before;
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        if number == 1 {
            value = field.number()?;
        }
    }
    Ok(value)
}

/// What a `uint32` makes of a longer number.
fn small(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

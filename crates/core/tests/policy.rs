//! The policy: which rules a call meets, under which key, at which cost, and what is settled without a
//! store.

#![allow(clippy::unwrap_used, reason = "what a test cannot set up it cannot test")]

#[path = "policy/matching.rs"]
mod matching;
#[path = "policy/model.rs"]
mod model;

use tollgate_core::algorithm::{Algorithm, Kind};
use tollgate_core::attributes::{Attribute, Known};
use tollgate_core::limit::Rate;
use tollgate_core::policy::{Condition, KeyTemplate, When};

/// A token bucket.
fn bucket(rate: &str) -> Algorithm {
    Algorithm::try_new(Kind::TokenBucket, Rate::parse(rate).unwrap(), None, 1000).unwrap()
}

fn attribute(name: &str) -> Attribute {
    Attribute::parse(name).unwrap()
}

fn key(template: &str) -> KeyTemplate {
    KeyTemplate::parse(template).unwrap()
}

fn condition(name: &str, values: &[&str]) -> Condition {
    Condition::new(attribute(name), values.iter().copied()).unwrap()
}

fn when(conditions: &[(&str, &[&str])]) -> When {
    When::new(conditions.iter().map(|(name, values)| condition(name, values)).collect(), Vec::new())
}

/// A call of which these things are known.
fn call(pairs: &[(&str, &str)]) -> Known {
    pairs.iter().fold(Known::default(), |known, (name, text)| known.with(attribute(name), text).unwrap())
}

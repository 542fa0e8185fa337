//! One limit applied to one ask: what a store is given to decide.

use crate::algorithm::Algorithm;
use crate::decision::Take;
use crate::key::Key;
use crate::units::Cost;

/// One limit applied to one ask.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    /// What is counted together.
    pub key: Key<'a>,
    /// How it is limited.
    pub algorithm: &'a Algorithm,
    /// How much is asked for.
    pub cost: Cost,
}

/// One earlier take to undo.
#[derive(Debug, Clone, Copy)]
pub struct Refund<'a> {
    /// The check that was taken, with the cost to give back.
    pub check: Check<'a>,
    /// Which take of it.
    pub take: Take,
}

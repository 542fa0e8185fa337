//! What a caller elsewhere is given: a token that says enough for any instance to know what to do with it.
//!
//! One letter and four numbers of 16 hexadecimal digits. It proves nothing and needs not: a probe's name cannot be guessed, and
//! what any other token can do, a report without one can do as well.

use std::fmt;

use tollgate::Micros;

/// Names one granted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    pub(super) of: Of,
    /// The instance that granted it.
    pub(super) instance: u64,
    /// The epoch it was granted in; zero if the fleet had not been heard of.
    pub(super) epoch: u64,
    /// Its own number: a probe's is the name of its lease.
    pub(super) serial: u64,
    /// When it ends, by the clock of the instance that granted it.
    pub(super) ends: Micros,
}

/// By what right a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Of {
    /// Calls flow.
    Call,
    /// It probes, with a lease of the fleet's.
    Probe,
    /// It probes, with a lease of the instance's own.
    OwnProbe,
}

const DIGITS: usize = 16;

impl Token {
    /// Reads one.
    pub(crate) fn parse(text: &str) -> Option<Token> {
        if !text.is_ascii() || text.len() != 1 + 4 * DIGITS {
            return None;
        }
        let of = match text.as_bytes().first()? {
            b'c' => Of::Call,
            b'p' => Of::Probe,
            b'o' => Of::OwnProbe,
            _ => return None,
        };
        let number = |at: usize| {
            let digits = text.get(1 + at * DIGITS..1 + (at + 1) * DIGITS)?;
            let is_plain = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            is_plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
        };
        let (instance, epoch, serial, ends) = (number(0)?, number(1)?, number(2)?, Micros(number(3)?));
        Some(Token { of, instance, epoch, serial, ends })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Token { of, instance, epoch, serial, ends: Micros(ends) } = self;
        let of = match of {
            Of::Call => 'c',
            Of::Probe => 'p',
            Of::OwnProbe => 'o',
        };
        write!(f, "{of}{instance:016x}{epoch:016x}{serial:016x}{ends:016x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_token_reads_as_it_was_written(numbers: [u64; 4], of in 0..3) {
            let of = [Of::Call, Of::Probe, Of::OwnProbe][usize::try_from(of).unwrap()];
            let [instance, epoch, serial, ends] = numbers;
            let token = Token { of, instance, epoch, serial, ends: Micros(ends) };
            prop_assert_eq!(Token::parse(&token.to_string()), Some(token));
        }

        #[test]
        fn anything_else_is_none(text in "\\PC{0,70}", tail in "[cpoC+ -][0-9a-fA-F+]{64}") {
            for text in [text, tail] {
                if let Some(token) = Token::parse(&text) {
                    prop_assert_eq!(token.to_string(), text);
                }
            }
        }
    }
}

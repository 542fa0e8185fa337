//! Answers to bytes, in the protocol the client chose.
//!
//! RESP2 knows texts, numbers and lists; RESP3 also maps, truths and a null of its own. A map is a flat
//! list of names and values in RESP2, a truth is 1 or 0, a null is the null string.

use std::fmt;

use tollgate::core::decision::{Outcome, Refunded, Returned};
use tollgate::core::policy::Role;
use tollgate::{Source, Verdict};

/// Which protocol a connection speaks: 2 until `HELLO 3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

impl Protocol {
    /// Its number.
    pub(super) fn number(self) -> i64 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// What is to be written to a client.
#[derive(Debug, Default)]
pub(super) struct Out {
    pub(super) bytes: Vec<u8>,
    pub(super) protocol: Protocol,
}

impl Out {
    /// Nothing yet.
    pub(super) fn new(protocol: Protocol) -> Out {
        Out { bytes: Vec::new(), protocol }
    }

    fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    #[inline]
    fn header(&mut self, kind: u8, number: i64) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn counted(&mut self, kind: u8, count: usize) {
        self.header(kind, i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A short text without line ends.
    pub(super) fn simple(&mut self, text: &str) {
        self.text("+");
        self.text(text);
        self.text("\r\n");
    }

    /// An error, with its code as its first word. Whatever a caller wrote into it cannot end its line.
    pub(super) fn error(&mut self, error: impl fmt::Display) {
        self.text("-");
        let words = error.to_string();
        self.bytes.extend(words.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
        self.text("\r\n");
    }

    /// A whole number.
    #[inline]
    pub(super) fn integer(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// Any bytes.
    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.counted(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.text("\r\n");
    }

    /// Nothing.
    pub(super) fn null(&mut self) {
        self.text(match self.protocol {
            Protocol::Resp2 => "$-1\r\n",
            Protocol::Resp3 => "_\r\n",
        });
    }

    /// True or false.
    pub(super) fn truth(&mut self, is_true: bool) {
        self.text(match (self.protocol, is_true) {
            (Protocol::Resp2, false) => ":0\r\n",
            (Protocol::Resp2, true) => ":1\r\n",
            (Protocol::Resp3, false) => "#f\r\n",
            (Protocol::Resp3, true) => "#t\r\n",
        });
    }

    /// A list of so many, which follow.
    pub(super) fn array(&mut self, count: usize) {
        self.counted(b'*', count);
    }

    /// A map of so many names and values, which follow.
    pub(super) fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.counted(b'*', count * 2),
            Protocol::Resp3 => self.counted(b'%', count),
        }
    }

    /// The answer to `CL.THROTTLE`.
    ///
    /// hot path: five numbers, put together in place and copied once.
    #[inline]
    pub(super) fn five(&mut self, numbers: [i64; 5]) {
        const HEAD: &[u8] = b"*5\r\n";
        // A sign and nineteen digits each, between a colon and a line's end.
        let mut line = [0; HEAD.len() + 5 * 23];
        line[..HEAD.len()].copy_from_slice(HEAD);
        let (mut at, mut digits) = (HEAD.len(), itoa::Buffer::new());
        for number in numbers {
            line[at] = b':';
            at += 1;
            match u8::try_from(number) {
                Ok(small @ 0..=9) => {
                    line[at] = b'0' + small;
                    at += 1;
                }
                Ok(small @ 10..=99) => {
                    line[at..at + 2].copy_from_slice(&[b'0' + small / 10, b'0' + small % 10]);
                    at += 2;
                }
                _ => {
                    let number = digits.format(number).as_bytes();
                    line[at..at + number.len()].copy_from_slice(number);
                    at += number.len();
                }
            }
            line[at..at + 2].copy_from_slice(b"\r\n");
            at += 2;
        }
        self.bytes.extend_from_slice(&line[..at]);
    }

    /// A word of ours, or of a caller's.
    pub(super) fn word(&mut self, word: &str) {
        self.bulk(word.as_bytes());
    }

    fn millis(&mut self, millis: u64) {
        self.integer(i64::try_from(millis).unwrap_or(i64::MAX));
    }

    /// The answer to a check or a peek of a rule: the same names in the same order, always.
    /// One that could not be understood is an error, and not for here.
    pub(super) fn verdict(&mut self, verdict: &Verdict, spends: bool) {
        let is_allowed = verdict.is_allowed();
        let binding = verdict.binding();
        let decision = binding.map(|judged| judged.decision);
        self.map(10);
        self.text("$7\r\nallowed\r\n");
        self.truth(is_allowed);
        self.text("$5\r\nlimit\r\n");
        self.or_null(decision.map(|decision| i64::from(decision.limit)));
        self.text("$9\r\nremaining\r\n");
        self.or_null(decision.map(|decision| i64::from(decision.remaining)));
        self.text("$14\r\nretry_after_ms\r\n");
        match decision.map(|decision| decision.outcome) {
            Some(Outcome::Denied { retry_after }) => self.millis(retry_after.as_millis_ceil()),
            Some(Outcome::Allowed | Outcome::Never) | None => self.null(),
        }
        self.text("$14\r\nreset_after_ms\r\n");
        match decision {
            Some(decision) => self.millis(decision.reset_after.as_millis_ceil()),
            None => self.null(),
        }
        self.text("$5\r\nnever\r\n");
        self.truth(matches!(decision.map(|decision| decision.outcome), Some(Outcome::Never)));
        self.text("$4\r\nrule\r\n");
        match verdict.rule() {
            Some(rule) => self.bulk(rule.name().as_bytes()),
            None => self.null(),
        }
        self.text("$6\r\nsource\r\n");
        self.word(verdict.source.name());
        self.text("$9\r\non_outage\r\n");
        match verdict.source {
            Source::Fallback(choice) => self.word(choice.name()),
            _ => self.null(),
        }
        self.text("$4\r\ntake\r\n");
        // Only a spend in the store can be undone there: what the fallback let pass it never saw.
        if spends && is_allowed && verdict.source == Source::Store {
            self.take(verdict);
        } else {
            self.null();
        }
    }

    fn take(&mut self, verdict: &Verdict) {
        let mut take = String::new();
        for judged in verdict.checks.iter().filter(|judged| judged.role == Role::Enforced) {
            if !take.is_empty() {
                take.push(',');
            }
            let mut digits = itoa::Buffer::new();
            take.push_str(digits.format(judged.decision.take.at.0));
            take.push('.');
            take.push_str(digits.format(judged.decision.take.entry));
        }
        self.bulk(take.as_bytes());
    }

    /// A time, if there is one.
    pub(super) fn millis_or_null(&mut self, millis: Option<u64>) {
        match millis {
            Some(millis) => self.millis(millis),
            None => self.null(),
        }
    }

    fn or_null(&mut self, number: Option<i64>) {
        match number {
            Some(number) => self.integer(number),
            None => self.null(),
        }
    }

    /// The answer to a refund: how much came back of all, and the least that is left.
    pub(super) fn refunded(&mut self, refunds: &[Refunded]) {
        let returned = Returned::of_several(refunds).name();
        let least = refunds.iter().min_by_key(|refund| refund.remaining);
        self.map(4);
        self.text("$8\r\nrefunded\r\n");
        self.word(returned);
        self.text("$5\r\nlimit\r\n");
        self.or_null(least.map(|refund| i64::from(refund.limit)));
        self.text("$9\r\nremaining\r\n");
        self.or_null(least.map(|refund| i64::from(refund.remaining)));
        self.text("$14\r\nreset_after_ms\r\n");
        match least {
            Some(refund) => self.millis(refund.reset_after.as_millis_ceil()),
            None => self.null(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Out)) -> String {
        let mut out = Out::new(protocol);
        write(&mut out);
        String::from_utf8(out.bytes).unwrap()
    }

    #[test]
    fn each_protocol_has_its_own_words() {
        let all = |out: &mut Out| {
            out.map(1);
            out.truth(true);
            out.null();
            out.integer(-7);
            out.bulk(b"a\r\n");
        };
        assert_eq!(written(Protocol::Resp2, all), "*2\r\n:1\r\n$-1\r\n:-7\r\n$3\r\na\r\n\r\n");
        assert_eq!(written(Protocol::Resp3, all), "%1\r\n#t\r\n_\r\n:-7\r\n$3\r\na\r\n\r\n");
    }

    #[test]
    fn no_error_ends_its_line_early() {
        let out = written(Protocol::Resp2, |out| out.error("ERR a\r\n+OK"));
        assert_eq!(out, "-ERR a  +OK\r\n");
    }

    #[test]
    fn five_numbers_are_five_numbers() {
        let out = written(Protocol::Resp3, |out| out.five([0, 16, 15, -1, 2]));
        assert_eq!(out, "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n");
        let (most, least) = (i64::MAX, i64::MIN);
        let out = written(Protocol::Resp2, |out| out.five([least; 5]));
        assert_eq!(out, format!("*5\r\n{}", format!(":{least}\r\n").repeat(5)));
        let out = written(Protocol::Resp2, |out| out.five([9, 10, most, 0, -1]));
        assert_eq!(out, format!("*5\r\n:9\r\n:10\r\n:{most}\r\n:0\r\n:-1\r\n"));
        for number in -300..300 {
            let out = written(Protocol::Resp2, |out| out.five([number; 5]));
            assert_eq!(out, format!("*5\r\n{}", format!(":{number}\r\n").repeat(5)));
        }
    }
}

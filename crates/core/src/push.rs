//! Pushes: short words that instances on one store call out to each other.
//!
//! A push reaches whoever listens at that moment, most within a millisecond, and nobody is told if it does not.
//! So nothing may rest on one: whatever a push would have ended must end by itself as well. What has to arrive
//! goes on the [board](crate::board).

/// The longest push, its two bytes in front included.
pub const PUSH_BYTES_MAX: usize = 4096;

/// The form that pushes are written in. Another one is passed over, so that two releases can share a store.
const VERSION: u8 = 1;

/// What a push is about, and so whose it is to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Keys that have more left than was last said of them: something was given back, or they were forgotten.
    Eased,
    /// A breaker that has changed, and how it stands now.
    Breaker,
}

impl Topic {
    /// Every topic.
    pub const ALL: [Topic; 2] = [Topic::Eased, Topic::Breaker];

    /// The byte it is known by.
    const fn byte(self) -> u8 {
        match self {
            Topic::Eased => b'e',
            Topic::Breaker => b'b',
        }
    }
}

/// One push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Push<'a> {
    /// What it is about.
    pub topic: Topic,
    /// What it says; at most [`PUSH_BYTES_MAX`] less two bytes.
    pub text: &'a [u8],
}

impl<'a> Push<'a> {
    /// As it travels; `None` if it is too long to.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let bytes = [&[VERSION, self.topic.byte()], self.text].concat();
        (bytes.len() <= PUSH_BYTES_MAX).then_some(bytes)
    }

    /// As it came; `None` if it was not written by this release or one that speaks like it.
    pub fn read(bytes: &'a [u8]) -> Option<Push<'a>> {
        let ([version, byte], text) = bytes.split_first_chunk::<2>()?;
        let topic = Topic::ALL.into_iter().find(|topic| topic.byte() == *byte)?;
        (*version == VERSION && bytes.len() <= PUSH_BYTES_MAX).then_some(Push { topic, text })
    }
}

/// What a listener is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard<'a> {
    /// A push, of this instance or another.
    Push(Push<'a>),
    /// From here on pushes are heard; before, some may have been missed.
    Gap,
}

/// Hears pushes. Must return at once: whoever calls it reads the connection they come by.
pub trait Listener: Send + Sync + 'static {
    /// Something was heard.
    fn heard(&self, heard: Heard<'_>);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_is_read_as_it_was_written() {
        for topic in Topic::ALL {
            for text in [&b""[..], b"\0\xff", &[7; PUSH_BYTES_MAX - 2]] {
                let push = Push { topic, text };
                assert_eq!(Push::read(&push.to_bytes().unwrap()), Some(push));
            }
        }
    }

    #[test]
    fn what_is_too_long_or_of_another_form_is_not() {
        assert_eq!(Push { topic: Topic::Eased, text: &[0; PUSH_BYTES_MAX - 1] }.to_bytes(), None);
        let mut long = vec![0; PUSH_BYTES_MAX + 1];
        long[..2].copy_from_slice(&[VERSION, Topic::Eased.byte()]);
        for bytes in [&b""[..], &[VERSION], &[VERSION, 0], &[0, b'e'], &[VERSION + 1, b'e', 1], &long] {
            assert_eq!(Push::read(bytes), None, "{bytes:?}");
        }
    }
}

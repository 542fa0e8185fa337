//! What URLs write as `%41`, undone.

/// A value of a query, where `+` is a space.
pub(crate) fn of_query(text: &str) -> Option<Vec<u8>> {
    undo(text, |byte| if byte == b'+' { b' ' } else { byte })
}

/// A segment of a path, where it is itself.
pub(crate) fn of_path(text: &str) -> Option<Vec<u8>> {
    undo(text, |byte| byte)
}

fn undo(text: &str, plain: impl Fn(u8) -> u8) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            other => plain(other),
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_hidden_is_shown_and_what_is_broken_is_nothing() {
        assert_eq!(of_query("a+%2B%00%ff").as_deref(), Some(&b"a +\0\xff"[..]));
        assert_eq!(of_path("a+%2f%20").as_deref(), Some(&b"a+/ "[..]));
        for broken in ["%", "%4", "%zz", "a%"] {
            assert_eq!((of_query(broken), of_path(broken)), (None, None), "{broken}");
        }
    }
}

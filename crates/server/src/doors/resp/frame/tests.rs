//! What is read, and what is refused.
#![allow(clippy::large_stack_arrays, reason = "a test may be wasteful, or coarse")]

use super::*;

/// Every command in the input, or the error that ends it, fed in pieces of that size.
fn fed(input: &[u8], step: usize, limits: &Limits) -> (Vec<Vec<Vec<u8>>>, Option<FrameError>) {
    let (mut reader, mut buffer, mut commands) = (Reader::new(), Vec::new(), Vec::new());
    for piece in input.chunks(step) {
        buffer.extend_from_slice(piece);
        loop {
            match reader.read(&mut buffer, limits) {
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Whole { length }) => {
                    let frame: Vec<u8> = buffer.drain(..length).collect();
                    commands.push(reader.words(&frame).from(0).map(<[u8]>::to_vec).collect());
                }
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

#[track_caller]
fn check(input: &[u8], commands: &[&[&[u8]]], error: Option<FrameError>) {
    let commands: Vec<Vec<Vec<u8>>> =
        commands.iter().map(|words| words.iter().map(|word| word.to_vec()).collect()).collect();
    for step in [input.len(), 1, 2, 3, 7] {
        assert_eq!(fed(input, step, &Limits::TRUSTED), (commands.clone(), error), "in pieces of {step}");
    }
}

#[test]
fn arrays_of_bulk_strings_are_commands() {
    check(b"*1\r\n$4\r\nPING\r\n", &[&[b"PING"]], None);
    check(
        b"*2\r\n$4\r\nECHO\r\n$4\r\na\r\nb\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\n",
        &[&[b"ECHO", b"a\r\nb"], &[], &[], &[b""]],
        None,
    );
}

#[test]
fn lines_are_commands_and_quotes_come_off() {
    check(b"PING\r\n\r\n\nPING  a\tb \n", &[&[b"PING"], &[], &[], &[b"PING", b"a", b"b"]], None);
    check(
        b"ECHO \"a b\\x41\\n\\\"\\q\" 'it\\'s \\n' c\"d e\"\r\n",
        &[&[b"ECHO", b"a bA\n\"q", b"it's \\n", b"cd e"]],
        None,
    );
}

#[test]
fn what_is_no_command_ends_the_connection() {
    for (input, error) in [
        (&b"*x\r\n"[..], FrameError::BadCount),
        (b"*\r\n", FrameError::BadCount),
        (b"*1\rx", FrameError::BadCount),
        (b"*65\r\n", FrameError::TooManyWords),
        (b"*1000000000\r\n", FrameError::TooManyWords),
        (b"*99999999999\r\n", FrameError::BadCount),
        (b"*1\r\n+OK\r\n", FrameError::NotABulk(b'+')),
        (b"*1\r\n*1\r\n", FrameError::NotABulk(b'*')),
        (b"*1\r\n$-1\r\n", FrameError::BadLength),
        (b"*1\r\n$65537\r\n", FrameError::BadLength),
        (b"*1\r\n$1\r\nab\r\n", FrameError::NoLineEnd),
        (b"ECHO \"a\r\n", FrameError::OpenQuote),
        (b"ECHO \"a\"b\r\n", FrameError::OpenQuote),
        (b"ECHO 'a\n", FrameError::OpenQuote),
    ] {
        check(input, &[], Some(error));
    }
    let long =
        [b"*3\r\n".as_slice(), &[b"$60000\r\n", vec![b'x'; 60_000].as_slice(), b"\r\n"].concat().repeat(3)]
            .concat();
    assert_eq!(fed(&long, 1000, &Limits::TRUSTED), (vec![], Some(FrameError::TooLong)));
    assert_eq!(fed(&vec![b'x'; 200_000], 1000, &Limits::TRUSTED), (vec![], Some(FrameError::LongLine)));
}

#[test]
fn the_longest_that_is_allowed_is_allowed() {
    let word = vec![b'x'; Limits::TRUSTED.word_bytes];
    let input = [format!("*1\r\n${}\r\n", word.len()).as_bytes(), &word, b"\r\n"].concat();
    assert_eq!(fed(&input, 4096, &Limits::TRUSTED), (vec![vec![word]], None));
    let many = [b"*64\r\n".as_slice(), &b"$1\r\na\r\n".repeat(64)].concat();
    assert_eq!(fed(&many, 5, &Limits::TRUSTED), (vec![vec![b"a".to_vec(); 64]], None));
    assert_eq!(fed(&many, 5, &Limits::STRANGER), (vec![], Some(FrameError::TooManyWords)));
}

#[test]
fn an_announced_length_reserves_nothing() {
    let mut reader = Reader::new();
    let mut bytes = b"*64\r\n$65536\r\n".to_vec();
    assert_eq!(reader.read(&mut bytes, &Limits::TRUSTED), Ok(Parsed::Incomplete));
    assert_eq!(reader.spans.capacity(), 0);
}

//! The reader against inputs nobody thought of: it never panics, keeps to its bounds, reads the same
//! commands however its input is cut, and reads back what was written.
//!
//! Runs on stable for `TOLLGATE_FUZZ_SECONDS` (one, unless set: `cargo xtask fuzz resp --seconds 60`), from
//! `TOLLGATE_FUZZ_SEED` if that is set. A failure prints the seed of its input, which by itself repeats it.

use std::time::Duration;

use tollgate::clock;

use super::frame::{FrameError, Limits, Parsed, Reader};

type Commands = Vec<Vec<Vec<u8>>>;

/// What an input came to: its commands, what was left of it, and the error that ended it.
#[derive(Debug, PartialEq)]
struct Seen {
    commands: Commands,
    left: usize,
    error: Option<FrameError>,
}

#[test]
fn any_input_is_read_alike_however_it_is_cut() {
    let (first, seconds) = (setting("TOLLGATE_FUZZ_SEED"), setting("TOLLGATE_FUZZ_SECONDS").unwrap_or(1));
    let started = clock::instant();
    let mut inputs: u64 = 0;
    let mut seed = first.unwrap_or_else(|| fastrand::u64(..));
    println!("fuzzing from TOLLGATE_FUZZ_SEED={seed} for {seconds} s");
    while inputs == 0 || started.elapsed() < Duration::from_secs(seconds) {
        let failed = std::panic::catch_unwind(|| one(seed)).is_err();
        assert!(!failed, "repeat it with TOLLGATE_FUZZ_SEED={seed}");
        (inputs, seed) = (inputs + 1, seed.wrapping_add(1));
    }
    println!("{inputs} inputs");
}

#[expect(clippy::disallowed_methods, reason = "how long to search is not a setting of the server")]
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

fn one(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let limits =
        if random.bool() { Limits::TRUSTED } else { Limits { words: 5, word_bytes: 20, frame_bytes: 64 } };
    let (input, written) = input(&mut random);
    let whole = read(&input, &limits, || usize::MAX);
    // At every byte for short inputs, and anywhere for long ones.
    if input.len() <= 64 {
        for at in 1..input.len() {
            let mut cuts = [at, usize::MAX].into_iter();
            assert_eq!(
                read(&input, &limits, || cuts.next().unwrap_or(usize::MAX)),
                whole,
                "cut at {at}: {input:?}"
            );
        }
    }
    assert_eq!(read(&input, &limits, || 1), whole, "byte by byte: {input:?}");
    let longest = random.usize(2..200);
    assert_eq!(read(&input, &limits, || random.usize(1..longest)), whole, "in pieces: {input:?}");
    // What was written as commands and left as it was is read as those commands.
    if let (Some(written), true) = (written, limits == Limits::TRUSTED) {
        assert_eq!((whole.commands, whole.error), (written, None), "{input:?}");
    }
}

/// Commands in the client's own form, or nearly, or nothing of the kind.
fn input(random: &mut fastrand::Rng) -> (Vec<u8>, Option<Commands>) {
    let (mut bytes, mut commands) = (Vec::new(), Vec::new());
    for _ in 0..random.usize(0..6) {
        let mut words = Vec::new();
        for _ in 0..random.usize(1..8) {
            let length = if random.u8(..) == 0 { random.usize(..40_000) / 8 } else { random.usize(..24) };
            words.push((0..length).map(|_| byte(random)).collect::<Vec<u8>>());
        }
        bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in &words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        commands.push(words);
    }
    if random.bool() {
        return (bytes, Some(commands));
    }
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..=bytes.len());
        match random.u8(0..6) {
            0 if at < bytes.len() => bytes[at] = byte(random),
            1 => bytes.insert(at, byte(random)),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            4 => {
                let words: [&[u8]; 7] = [
                    b"*1000000000\r\n",
                    b"$65537\r\n",
                    b"*-1\r\n",
                    b"$-1\r\n",
                    b"PING \"a\\x41\" 'b\\''\r\n",
                    b"*1\r\n*1\r\n",
                    b"\n",
                ];
                bytes.splice(at..at, words[random.usize(..words.len())].iter().copied());
            }
            _ => {
                let line: Vec<u8> = (0..random.usize(..40)).map(|_| byte(random)).collect();
                bytes.splice(at..at, line);
            }
        }
    }
    (bytes, None)
}

/// Mostly what means something.
fn byte(random: &mut fastrand::Rng) -> u8 {
    const MEANT: &[u8] = b"*$\r\n0123456789-+\"'\\x PINGa";
    if random.u8(0..4) == 0 { random.u8(..) } else { MEANT[random.usize(..MEANT.len())] }
}

/// Reads an input as a connection does, in pieces of these sizes.
fn read(input: &[u8], limits: &Limits, mut size: impl FnMut() -> usize) -> Seen {
    let (mut reader, mut buffer, mut commands) = (Reader::new(), Vec::new(), Vec::new());
    let mut rest = input;
    while !rest.is_empty() {
        let (piece, others) = rest.split_at(size().min(rest.len()));
        rest = others;
        buffer.extend_from_slice(piece);
        loop {
            match reader.read(&mut buffer, limits) {
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Whole { length }) => {
                    assert!(length > 0 && length <= buffer.len());
                    let frame: Vec<u8> = buffer.drain(..length).collect();
                    let words: Vec<Vec<u8>> = reader.words(&frame).from(0).map(<[u8]>::to_vec).collect();
                    assert!(words.len() <= limits.words);
                    assert!(words.iter().all(|word| word.len() <= limits.word_bytes));
                    assert!(reader.room() <= 2 * limits.words.max(4), "more room than words");
                    commands.push(words);
                }
                Err(error) => return Seen { commands, left: 0, error: Some(error) },
            }
        }
        // A command that goes on is within its bound, but for the line that says how far it would go on.
        assert!(buffer.len() <= limits.frame_bytes + 32, "kept {} bytes", buffer.len());
    }
    Seen { commands, left: buffer.len(), error: None }
}

//! Read alike or read word by word, a pipeline means the same.

use super::super::command;
use super::super::frame::{Parsed, Reader};
use super::super::remembered::Remembered;
use super::*;

/// How an input is read.
#[derive(Clone, Copy, PartialEq)]
enum How {
    /// As the door does.
    Alike,
    /// Every command by itself.
    OneByOne,
}

/// What an input comes to.
#[derive(Debug, PartialEq)]
struct Meant {
    commands: Vec<String>,
    left: usize,
}

fn spend(command: Command, check: &Check<'_>, rounding: Rounding) -> String {
    format!("{command:?} {check:?} {rounding:?}")
}

/// What all whole commands of an input mean, and how many of them were read alike.
fn meant(input: &[u8], limits: &Limits, how: How) -> (Meant, usize) {
    let (mut reader, mut remembered, mut alike) = (Reader::new(), Remembered::default(), Alike::default());
    let mut input = input.to_vec();
    let (mut commands, mut done, mut ran) = (Vec::new(), 0, 0);
    loop {
        if how == How::Alike
            && let Some(run) = alike.run(&input[done..], limits)
        {
            let each = run.checks().zip(run.forms());
            commands.extend(each.map(|(check, (command, rounding))| spend(command, &check, rounding)));
            (done, ran) = (done + run.length(), ran + run.keys.len());
            continue;
        }
        match reader.read(&mut input[done..], limits) {
            Ok(Parsed::Incomplete) => break,
            Ok(Parsed::Whole { length }) => {
                let words = reader.words(&input[done..done + length]);
                done += length;
                let Some(name) = words.get(0) else { continue };
                let named = command::named(name);
                let question = command::question(named, &words, &mut remembered, None);
                if let Ok(Some(question)) = &question {
                    alike.learn(named, &words, question);
                }
                commands.push(match &question {
                    Ok(Some(Question::Throttle { key, limit, cost, rounding })) => {
                        match limit.check(key, *cost) {
                            Ok(check) => spend(named, &check, *rounding),
                            Err(problem) => problem.to_string(),
                        }
                    }
                    other => format!("{other:?}"),
                });
            }
            Err(error) => {
                commands.push(error.to_string());
                break;
            }
        }
    }
    (Meant { commands, left: input.len() - done }, ran)
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A pipeline of few forms, and of what is nearly one of them.
fn pipeline(random: &mut fastrand::Rng) -> Vec<u8> {
    let forms: [&[&[u8]]; 8] = [
        &[b"CL.THROTTLE", b"", b"15", b"30", b"60"],
        &[b"CL.THROTTLE", b"", b"15", b"30", b"61"],
        &[b"cl.throttle", b"", b"15", b"30", b"60", b"2"],
        &[b"CL.THROTTLE", b"", b"15", b"30", b"60", b"0"],
        &[b"CL.THROTTLE", b"", b"15", b"30", b"x"],
        &[b"GCRA", b"", b"15", b"30", b"1.5"],
        &[b"GCRA", b"", b"15", b"30", b"60", b"TOKENS", b"3"],
        &[b"PING"],
    ];
    let usual = random.usize(..forms.len());
    let mut bytes = Vec::new();
    for _ in 0..random.usize(0..90) {
        let mut words = forms[if random.u8(..) < 230 { usual } else { random.usize(..forms.len()) }].to_vec();
        let length = match random.u8(..) {
            0..=8 => random.usize(1000..1100),
            9..=20 => 0,
            _ => random.usize(1..20),
        };
        let key: Vec<u8> = (0..length).map(|_| *random.choice(b"key$\r\n*5").unwrap_or(&0)).collect();
        if let Some(word) = words.get_mut(1) {
            *word = &key;
        }
        bytes.extend(command(&words));
    }
    // Now and then a byte that does not belong there, or an end that comes early.
    for _ in 0..random.u8(..).saturating_sub(252) {
        if !bytes.is_empty() {
            let at = random.usize(..bytes.len());
            bytes[at] = *random.choice(b"0123456789$*\r\nx").unwrap_or(&0);
        }
    }
    if random.u8(..) < 64 {
        bytes.truncate(random.usize(..=bytes.len()));
    }
    bytes
}

#[test]
fn a_pipeline_means_the_same_read_alike() {
    let mut all = 0;
    for seed in 0..3000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let input = pipeline(&mut random);
        let short_words = Limits { words: 6, word_bytes: 12, frame_bytes: 200 };
        let short_frames = Limits { words: 6, word_bytes: 20, frame_bytes: 62 };
        for limits in [Limits::TRUSTED, Limits::STRANGER, short_words, short_frames] {
            let (alike, ran) = meant(&input, &limits, How::Alike);
            assert_eq!(alike, meant(&input, &limits, How::OneByOne).0, "seed {seed}");
            all += ran;
        }
    }
    assert!(all > 100_000, "only {all} commands were read alike");
}

#[test]
fn forms_take_turns_and_are_few() {
    let mut input = Vec::new();
    for turn in 0..50 {
        for count in 0..FORMS_MAX {
            let (key, count) = (format!("key:{turn}"), (count + 1).to_string());
            input.extend(command(&[b"CL.THROTTLE", key.as_bytes(), b"15", count.as_bytes(), b"60"]));
        }
    }
    let (alike, ran) = meant(&input, &Limits::TRUSTED, How::Alike);
    assert_eq!(alike, meant(&input, &Limits::TRUSTED, How::OneByOne).0);
    assert_eq!(ran, 49 * FORMS_MAX, "all but the first of each form");

    let (mut reader, mut remembered, mut alike) = (Reader::new(), Remembered::default(), Alike::default());
    for count in 1..100 {
        let count = count.to_string();
        let mut frame = command(&[b"CL.THROTTLE", b"key", b"15", count.as_bytes(), b"60"]);
        reader.read(&mut frame, &Limits::TRUSTED).unwrap();
        let words = reader.words(&frame);
        let question = command::question(Command::Throttle, &words, &mut remembered, None).unwrap().unwrap();
        alike.learn(Command::Throttle, &words, &question);
    }
    assert_eq!(alike.forms.len(), FORMS_MAX);
}

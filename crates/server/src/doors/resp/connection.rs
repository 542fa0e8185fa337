//! One client, from its first byte to its last.
//!
//! Whatever one read brings is answered with one write. On memory each command is answered where it is
//! read, those that differ only in their key as one; on a shared store the commands of one read go out together and are answered in their order.
//! Nothing more is read while answers wait to be taken, so that a client that does not read fills its own
//! buffers and then ours, which is bounded, and not the process.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Interval, interval_at, timeout};
use tollgate::Policy;
use tollgate::core::store::AtOnce;
use tollgate::engine::together;

use super::alike::Alike;
use super::answer::answer;
use super::command::{self, Fault, Question};
use super::encode::Out;
use super::frame::{Parsed, Reader, Words};
use super::remembered::Remembered;
use super::session::{After, Session};
use super::throttle;
use super::{Pace, RespDoor};
use crate::facing::Facing;
use crate::net::open::Opening;
use crate::net::peer::Peer;
use crate::net::stream::{Socket, Stream};
use crate::shutdown::LifeView;
use crate::telemetry::resp::{Closed, Command, Counts, RespMetrics};

/// Room for input that every connection has.
const INPUT_BYTES: usize = 4 * 1024;
/// The most that is read at once.
const READ_BYTES_MAX: usize = 64 * 1024;
/// Answers that are written before more of them are made.
const OUTPUT_BYTES: usize = 64 * 1024;
/// Commands of one pipeline that are under way together.
const TOGETHER_MAX: usize = 64;
/// How long a connection that ends has to take its last answers.
const GOODBYE: Duration = Duration::from_millis(500);

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Serves one connection.
pub(super) async fn serve(
    door: Arc<RespDoor>,
    opening: Arc<Opening>,
    socket: Socket,
    peer: Peer,
    mut life: LifeView,
) {
    let greeted = tokio::select! {
        biased;
        greeted = opening.greet(socket, peer) => greeted,
        // Who has not finished a handshake has no command under way.
        () = life.closing() => return,
    };
    let (stream, peer) = match greeted {
        Ok((stream, peer, _)) => (stream, peer),
        Err(error) => return tracing::debug!(%error, ?peer, "a connection did not open"),
    };
    let _open = Open::new(&door.metrics);
    let mut client = Client {
        session: Session::new(NEXT_ID.fetch_add(1, Ordering::Relaxed), peer, &door.gate),
        reader: Reader::new(),
        input: Vec::with_capacity(INPUT_BYTES),
        out: Out::default(),
        remembered: Remembered::default(),
        alike: Alike::default(),
        counts: Counts::default(),
        was_filled: false,
        is_heard: false,
        stream,
    };
    match client.run(&door, life).await {
        Ok(Some(why)) => door.metrics.closed(why),
        Ok(None) => {}
        Err(error) => tracing::trace!(%error, "a connection ended early"),
    }
    door.metrics.answered(&mut client.counts);
    let _ = timeout(GOODBYE, client.say_goodbye()).await;
}

/// Counts a connection for as long as it is open, however it ends.
struct Open<'m>(&'m RespMetrics);

impl Open<'_> {
    fn new(metrics: &RespMetrics) -> Open<'_> {
        metrics.opened();
        Open(metrics)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.ended();
    }
}

struct Client {
    session: Session,
    reader: Reader,
    /// What was read and not yet answered; the command that is being read begins it.
    input: Vec<u8>,
    out: Out,
    remembered: Remembered,
    alike: Alike,
    counts: Counts,
    /// Whether the last read filled all the room there was.
    was_filled: bool,
    /// Whether the last read ended a command. Bytes that do not are no sign of life.
    is_heard: bool,
    stream: Stream,
}

impl Client {
    /// Reads and answers until the client leaves, or we have had enough of it, and says why then.
    async fn run(&mut self, door: &RespDoor, mut life: LifeView) -> io::Result<Option<Closed>> {
        let mut clock = Silence::new(door);
        let mut closing = pin!(life.closing());
        loop {
            self.make_room();
            let room = self.input.capacity() - self.input.len();
            let read = tokio::select! {
                biased;
                read = self.stream.read_buf(&mut self.input) => read?,
                _ = clock.ticks.tick() => {
                    if clock.is_over(self.reader.is_inside()) {
                        return Ok(Some(Closed::Idle));
                    }
                    self.shrink();
                    continue;
                }
                // What was read has been answered; what has not been read was not begun.
                () = closing.as_mut() => return Ok(None),
            };
            if read == 0 {
                return Ok(None);
            }
            self.was_filled = read == room;
            let after = match door.pace {
                Pace::AtOnce => {
                    let after = self.answer_at_once(door).await;
                    after_the_others().await;
                    after
                }
                Pace::Later => self.answer_together(door).await,
            };
            // Counted before it is sent: whoever has an answer finds it counted.
            door.metrics.answered(&mut self.counts);
            let sent = self.send(door.patience.within).await?;
            match (after?, sent) {
                (_, Sent::NotTaken) => return Ok(Some(Closed::SlowReader)),
                (Ended::Not, Sent::All) if self.is_heard => clock.heard(),
                (Ended::Not, Sent::All) => {}
                (Ended::Left, Sent::All) => return Ok(None),
                (Ended::Why(why), Sent::All) => return Ok(Some(why)),
            }
        }
    }

    /// Answers every whole command there is, one after the other.
    ///
    /// hot path: no allocation and no task for a command; the policy is looked up once for all of them, and
    /// not at all for those that are alike.
    async fn answer_at_once(&mut self, door: &RespDoor) -> io::Result<Ended> {
        let (mut policy, mut done) = (None, 0);
        let mut ended = Ended::Not;
        while ended == Ended::Not {
            let length = match self.answer_alike(door, done) {
                0 => {
                    let bytes = &mut self.input[done..];
                    match self.reader.read(bytes, self.session.limits()) {
                        Ok(Parsed::Incomplete) => break,
                        Ok(Parsed::Whole { length }) => {
                            let policy = policy.get_or_insert_with(|| door.engine.policy());
                            ended = self.answer_one(door, policy, done..done + length).await;
                            length
                        }
                        Err(error) => {
                            self.out.error(format_args!("ERR {error}"));
                            ended = Ended::Why(Closed::Protocol);
                            0
                        }
                    }
                }
                length => length,
            };
            done += length;
            if self.out.bytes.len() >= OUTPUT_BYTES {
                let sent = send(&mut self.stream, &mut self.out.bytes, door.patience.within).await?;
                if sent == Sent::NotTaken {
                    return Ok(Ended::Why(Closed::SlowReader));
                }
            }
        }
        self.input.drain(..done);
        self.is_heard = done > 0;
        Ok(ended)
    }

    /// Answers the commands from `done` on for as long as they are like earlier ones, and says how many
    /// bytes they were.
    fn answer_alike(&mut self, door: &RespDoor, done: usize) -> usize {
        let is_trusted = self.session.check_trust(Command::Throttle, &door.gate).is_ok();
        if !is_trusted || self.reader.is_inside() {
            return 0;
        }
        let Some(run) = self.alike.run(&self.input[done..], self.session.limits()) else { return 0 };
        let (out, counts, mut forms) = (&mut self.out, &mut self.counts, run.forms());
        let at_once = door.engine.take_each(run.checks(), |decision| {
            if let Some((command, rounding)) = forms.next() {
                out.five(throttle::five(decision, false, rounding));
                counts.count(command, false);
            }
        });
        match at_once {
            AtOnce::Done => run.length(),
            AtOnce::MustWait => 0,
        }
    }

    /// Answers the command that was read last, and stands there.
    #[inline]
    async fn answer_one(&mut self, door: &RespDoor, policy: &Arc<Policy>, place: Range<usize>) -> Ended {
        let words = self.reader.words(&self.input[place]);
        let Some(name) = words.get(0) else { return Ended::Not };
        let command = command::named(name);
        let mut ended = Ended::Not;
        let mut step = Step { door, policy, session: &mut self.session };
        let answered = match step.question(command, &words, &mut self.remembered) {
            Ok(Some(question)) => {
                self.alike.learn(command, &words, &question);
                answer(door, policy, question, &mut self.out).await
            }
            Ok(None) => step.session(command, &words, &mut self.out).map(|after| ended = after.into()),
            Err(fault) => Err(fault),
        };
        self.counts.count(command, answered.is_err());
        if let Err(fault) = answered {
            self.out.error(fault);
        }
        ended
    }

    /// Answers every whole command there is: so many at a time go to the store together.
    async fn answer_together(&mut self, door: &RespDoor) -> io::Result<Ended> {
        self.is_heard = false;
        loop {
            let (ended, done) = self.answer_some_together(door).await;
            self.input.drain(..done);
            self.is_heard |= done > 0;
            if ended != Ended::Not || done == 0 {
                return Ok(ended);
            }
            let sent = send(&mut self.stream, &mut self.out.bytes, door.patience.within).await?;
            if sent == Sent::NotTaken {
                return Ok(Ended::Why(Closed::SlowReader));
            }
        }
    }

    /// At most [`TOGETHER_MAX`] commands; says how many bytes they were.
    async fn answer_some_together(&mut self, door: &RespDoor) -> (Ended, usize) {
        let policy = door.engine.policy();
        let (mut done, mut ended) = (0, Ended::Not);
        let mut rest = self.input.as_mut_slice();
        let mut under_way: Vec<(Command, Out, Result<Option<Question<'_>>, Fault>)> = Vec::new();
        while under_way.len() < TOGETHER_MAX && ended == Ended::Not {
            let length = match self.reader.read(rest, self.session.limits()) {
                Ok(Parsed::Whole { length }) => length,
                Ok(Parsed::Incomplete) => break,
                Err(error) => {
                    let mut out = Out::new(self.out.protocol);
                    out.error(format_args!("ERR {error}"));
                    under_way.push((Command::Other, out, Ok(None)));
                    ended = Ended::Why(Closed::Protocol);
                    break;
                }
            };
            let (frame, others) = std::mem::take(&mut rest).split_at_mut(length);
            rest = others;
            done += length;
            let words = self.reader.words(frame);
            let Some(name) = words.get(0) else { continue };
            let command = command::named(name);
            let mut step = Step { door, policy: &policy, session: &mut self.session };
            let mut out = Out::new(self.out.protocol);
            let question = match step.question(command, &words, &mut self.remembered) {
                Ok(None) => {
                    let after = step.session(command, &words, &mut out);
                    self.out.protocol = out.protocol;
                    after.map(|after| {
                        ended = after.into();
                        None
                    })
                }
                question => question,
            };
            under_way.push((command, out, question));
        }
        let answers = under_way.into_iter().map(async |(command, mut out, question)| {
            let answered = match question {
                Ok(Some(question)) => answer(door, &policy, question, &mut out).await,
                Ok(None) => Ok(()),
                Err(fault) => Err(fault),
            };
            let is_error = answered.is_err();
            if let Err(fault) = answered {
                out.error(fault);
            }
            (command, is_error, out.bytes)
        });
        for (command, is_error, bytes) in together(answers).await {
            self.counts.count(command, is_error);
            self.out.bytes.extend_from_slice(&bytes);
        }
        (ended, done)
    }

    /// Writes what there is to write.
    async fn send(&mut self, patience: Duration) -> io::Result<Sent> {
        send(&mut self.stream, &mut self.out.bytes, patience).await
    }

    /// Room for a read: more after one that had too little, and for a command that goes on.
    fn make_room(&mut self) {
        let (used, capacity) = (self.input.len(), self.input.capacity());
        if self.was_filled || capacity - used < INPUT_BYTES / 4 {
            self.input.reserve((capacity * 2).clamp(INPUT_BYTES, READ_BYTES_MAX));
        }
    }

    /// Gives room back that a silent client does not need.
    fn shrink(&mut self) {
        if self.input.is_empty() {
            self.input.shrink_to(INPUT_BYTES);
            self.out.bytes.shrink_to(INPUT_BYTES);
        }
    }

    /// Ends the connection so that the last answer still arrives: what is closed with input unread is reset.
    async fn say_goodbye(&mut self) {
        if self.stream.shutdown().await.is_err() {
            return;
        }
        let mut unread = 0;
        while unread < READ_BYTES_MAX {
            self.input.clear();
            self.input.reserve(INPUT_BYTES);
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) | Err(_) => return,
                Ok(read) => unread += read,
            }
        }
    }
}

/// Whether, and why, a connection is over after what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Not,
    /// The client took its leave.
    Left,
    Why(Closed),
}

impl From<After> for Ended {
    fn from(after: After) -> Ended {
        match after {
            After::Open => Ended::Not,
            After::Left => Ended::Left,
            After::ThrownOut => Ended::Why(Closed::Passwords),
        }
    }
}

/// Whether a client took its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    All,
    NotTaken,
}

/// Lets every other connection that has something to read go first. Answers are then written one behind
/// the other: a client with many connections is woken once for all of them and not once for each.
async fn after_the_others() {
    let mut is_first = true;
    poll_fn(|context| {
        if mem::take(&mut is_first) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// hot path: a client that reads costs one write and no timer.
async fn send(stream: &mut Stream, bytes: &mut Vec<u8>, patience: Duration) -> io::Result<Sent> {
    if bytes.is_empty() {
        return Ok(Sent::All);
    }
    {
        let mut writing = pin!(async {
            stream.write_all(bytes).await?;
            stream.flush().await
        });
        match poll_fn(|context| Poll::Ready(writing.as_mut().poll(context))).await {
            Poll::Ready(written) => written?,
            Poll::Pending => match timeout(patience, writing).await {
                Ok(written) => written?,
                Err(_) => return Ok(Sent::NotTaken),
            },
        }
    }
    bytes.clear();
    Ok(Sent::All)
}

/// How long a client has been silent.
struct Silence {
    ticks: Interval,
    /// Ticks since it last said something.
    missed: u32,
    missed_max: u32,
}

impl Silence {
    fn new(door: &RespDoor) -> Silence {
        let every = door.patience.within.min(door.patience.between);
        let missed_max = door.patience.between.as_millis() / every.as_millis().max(1);
        let ticks = interval_at(tokio::time::Instant::now() + every, every);
        Silence { ticks, missed: 0, missed_max: u32::try_from(missed_max).unwrap_or(u32::MAX) }
    }

    fn heard(&mut self) {
        self.missed = 0;
    }

    /// A tick: whether that was the last one. One that begins a command is heard with its end: between two
    /// ticks there is time for any.
    fn is_over(&mut self, is_inside: bool) -> bool {
        self.missed += 1;
        self.missed > if is_inside { 1 } else { self.missed_max }
    }
}

/// What it takes to make something of a command.
struct Step<'a> {
    door: &'a RespDoor,
    policy: &'a Policy,
    session: &'a mut Session,
}

impl Step<'_> {
    /// What a command asks the engine, if it may.
    #[inline]
    fn question<'b>(
        &mut self,
        command: Command,
        words: &Words<'b, '_>,
        remembered: &mut Remembered,
    ) -> Result<Option<Question<'b>>, Fault> {
        match command {
            Command::Throttle
            | Command::Gcra
            | Command::Refund
            | Command::Forget
            | Command::Inspect
            | Command::Del
            | Command::Override
            | Command::Lift => self.session.check_trust(command, &self.door.gate)?,
            _ => {}
        }
        let identity = Facing::of(self.policy).map(|facing| &facing.identity);
        command::question(command, words, remembered, identity)
    }

    fn session(&mut self, command: Command, words: &Words<'_, '_>, out: &mut Out) -> Result<After, Fault> {
        self.session.answer(command, words, self.door, out)
    }
}

//! A child process that cannot outlive its test, and whose words can be waited for.
//!
//! Built on `std::process` and not on `tokio::process`: the child must die in `Drop`, also when the
//! runtime is already gone, and only a blocking `wait` promises that. Two threads read its output,
//! so a child never blocks on a full pipe.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read},
    net::{Ipv4Addr, TcpListener},
    process::{Child as Process, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{sync::watch, time};

use crate::eventually::{LOOK_EVERY, PATIENCE};

/// A running program. Killed, and reaped, on drop.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: Process,
    lines: watch::Receiver<Vec<Line>>,
    exit: Option<ExitStatus>,
}

/// Which of its two outputs a child wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

#[derive(Debug)]
struct Line {
    stream: Stream,
    text: String,
}

impl Child {
    /// Starts `command`, and panics when it cannot be started.
    pub fn spawn(command: &mut Command) -> Child {
        Child::try_spawn(command).unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
    }

    /// Starts `command` with its output captured and its input empty.
    pub fn try_spawn(command: &mut Command) -> io::Result<Child> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn()?;

        let (sender, lines) = watch::channel(Vec::new());
        let sender = Arc::new(sender);
        let stdout = process.stdout.take().expect("stdout was just piped");
        let stderr = process.stderr.take().expect("stderr was just piped");
        capture(stdout, Stream::Stdout, Arc::clone(&sender));
        capture(stderr, Stream::Stderr, sender);
        Ok(Child { name, process, lines, exit: None })
    }

    /// The process id; after the end, that of the ended process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits for a line, on either output, that satisfies `predicate`, and returns it. Lines already
    /// written count. Panics with the whole output when the child ends or `timeout` passes first.
    pub async fn wait_for_line(&self, mut predicate: impl FnMut(&str) -> bool, timeout: Duration) -> String {
        let mut lines = self.lines.clone();
        let mut found = None;
        let search = lines.wait_for(|lines| {
            found = lines.iter().find(|line| predicate(&line.text)).map(|line| line.text.clone());
            found.is_some()
        });
        let problem = match time::timeout(timeout, search).await {
            Ok(Ok(_)) => return found.expect("the search ended because a line was found"),
            Ok(Err(_)) => "ended its output".to_owned(),
            Err(_) => format!("ran for {timeout:?}"),
        };
        panic!("{} {problem} without the awaited line; it wrote:\n{}", self.name, self.output());
    }

    /// Everything written so far to both outputs, in order of arrival.
    pub fn output(&self) -> String {
        self.text_of(|_| true)
    }

    /// Everything written so far to one output.
    pub fn output_on(&self, stream: Stream) -> String {
        self.text_of(|line| line.stream == stream)
    }

    /// The processor time used so far, user and system, in steps of the kernel's tick (10 ms).
    pub fn cpu_time(&self) -> Duration {
        let stat = Stat::of(self.pid());
        let ticks = stat.number(14) + stat.number(15);
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    /// Freezes the process (SIGSTOP), and returns when it has stopped.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + PATIENCE;
        while Stat::of(self.pid()).field(3) != "T" {
            assert!(Instant::now() < deadline, "{} did not stop within {PATIENCE:?}", self.name);
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Lets a paused process go on (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks the process to end (SIGTERM). A paused process reads this only after [`Child::resume`].
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Tells the process that its terminal is gone (SIGHUP), which daemons take for "read your files again".
    pub fn hangup(&self) {
        self.signal(Signal::HUP);
    }

    /// Ends the process (SIGKILL) and reaps it. Does nothing to one that has ended.
    ///
    /// No SIGCONT comes first: SIGKILL ends a stopped process too, and a Redis that is woken up
    /// before its death would still execute what waits in its sockets.
    pub fn kill(&mut self) {
        if self.exit.is_none() {
            self.process.kill().expect("an unreaped child can always be signalled");
            let status = self.process.wait().expect("an unreaped child can always be waited for");
            self.exit = Some(status);
        }
    }

    /// The exit status, if the process has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.exit.is_none() {
            self.exit = self.process.try_wait().expect("our own child can always be waited for");
        }
        self.exit
    }

    /// Waits for the process to end by itself and for the rest of its output.
    pub async fn wait(&mut self) -> ExitStatus {
        let status = loop {
            if let Some(status) = self.try_wait() {
                break status;
            }
            time::sleep(LOOK_EVERY).await;
        };
        self.finish_output().await;
        status
    }

    /// Waits until both outputs are read to their end. Bounded, because a grandchild may have
    /// inherited the pipe and hold it open for ever.
    pub(crate) async fn finish_output(&mut self) {
        let closed = async { while self.lines.changed().await.is_ok() {} };
        let _ = time::timeout(Duration::from_secs(1), closed).await;
    }

    fn text_of(&self, is_wanted: impl Fn(&Line) -> bool) -> String {
        let lines = self.lines.borrow();
        lines.iter().filter(|line| is_wanted(line)).map(|line| line.text.clone() + "\n").collect()
    }

    fn signal(&self, signal: Signal) {
        // A reaped pid may by now belong to a stranger.
        assert!(self.exit.is_none(), "{} has ended and cannot be signalled", self.name);
        kill_process(Pid::from_child(&self.process), signal).expect("an unreaped child can be signalled");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A loopback port that was free a moment ago. Another process may take it first: the caller must be
/// ready to try again.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    listener.local_addr().expect("a bound listener has an address").port()
}

fn capture(output: impl Read + Send + 'static, stream: Stream, lines: Arc<watch::Sender<Vec<Line>>>) {
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut bytes = Vec::new();
        while output.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned();
            lines.send_modify(|lines| lines.push(Line { stream, text }));
            bytes.clear();
        }
    });
}

/// One reading of `/proc/PID/stat`, whose fields `man proc` counts from 1.
struct Stat {
    after_name: String,
}

impl Stat {
    fn of(pid: u32) -> Stat {
        let path = format!("/proc/{pid}/stat");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"));
        // The name, field 2, may contain spaces and brackets; only its last bracket is a landmark.
        let (_, after_name) = text.rsplit_once(") ").expect("a process name stands in brackets");
        Stat { after_name: after_name.to_owned() }
    }

    fn field(&self, number: usize) -> &str {
        self.after_name.split(' ').nth(number - 3).expect("the kernel writes some fifty fields")
    }

    fn number(&self, number: usize) -> u64 {
        self.field(number).parse().expect("times are numbers")
    }
}

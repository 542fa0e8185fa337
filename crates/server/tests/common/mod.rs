//! The built binary on free ports, and HTTP in plain bytes.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]
#![allow(dead_code, reason = "every test file is a crate of its own and uses its own part of this")]

pub(crate) mod resp;

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::NamedTempFile;
use testkit::Child;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// How long a healthy server may take to say anything; far beyond what it takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) resp: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// `tollgate` with these arguments, and without what the environment may say.
pub(crate) fn tollgate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.env_clear().args(arguments);
    command
}

/// A configuration in a file that lives as long as the value.
pub(crate) fn config(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// Starts `tollgate serve`, expecting it to refuse, and says how it ended and what it said.
pub(crate) async fn refused(arguments: &[&str]) -> (i32, String) {
    let mut child = Child::spawn(tollgate(&["serve"]).args(arguments));
    let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("it refuses at once");
    (status.code().unwrap(), child.output())
}

impl Server {
    /// A server with the built-in rules.
    pub(crate) async fn start() -> Server {
        Server::start_with(&[]).await
    }

    /// A server with this configuration and these arguments.
    pub(crate) async fn configured(text: &str, arguments: &[&str]) -> Server {
        // It is read once, at start.
        let file = config(text);
        Server::start_with(&[&["--config", file.path().to_str().unwrap()], arguments].concat()).await
    }

    /// A server with these arguments; all doors are on free ports unless they say otherwise. An address
    /// is 0.0.0.0:0 for a door that is closed or a unix socket.
    pub(crate) async fn start_with(arguments: &[&str]) -> Server {
        let mut command = tollgate(&["serve"]);
        for door in ["--http", "--grpc", "--resp", "--admin"] {
            if !arguments.contains(&door) {
                command.args([door, "127.0.0.1:0"]);
            }
        }
        let child = Child::spawn(command.args(arguments));
        let mut places = Vec::new();
        for door in ["http", "grpc", "resp", "admin"] {
            let prefix = format!("  {door}  ");
            let line = child.wait_for_line(|line| line.starts_with(&prefix), PATIENCE).await;
            let place = line.trim_start_matches(&prefix).trim().split(' ').next().unwrap();
            let place = place.split_once("://").map_or(place, |(_, place)| place);
            places.push(place.parse().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0))));
        }
        child.wait_for_line(|line| line.starts_with("  policy"), PATIENCE).await;
        Server { child, http: places[0], grpc: places[1], resp: places[2], admin: places[3] }
    }

    /// Posts a body to the HTTP door on a connection of its own.
    pub(crate) async fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.post_with(path, "", body).await
    }

    /// The same with more headers, each with its line end.
    pub(crate) async fn post_with(&self, path: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
        Client::connect(self.http).await.send("POST", path, headers, body.as_ref()).await
    }

    /// A check that must be answered.
    pub(crate) async fn check(&self, body: &str) -> Value {
        self.json("/v1/check", body).await
    }

    /// What a check would be answered.
    pub(crate) async fn peek(&self, body: &str) -> Value {
        self.json("/v1/peek", body).await
    }

    /// Posts a body that must be answered with 200 and JSON.
    pub(crate) async fn json(&self, path: &str, body: &str) -> Value {
        let answer = self.post(path, body).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"));
        answer.json()
    }

    /// Asks the admin door.
    pub(crate) async fn admin(&self, path: &str, headers: &str) -> Answer {
        Client::connect(self.admin).await.send("GET", path, headers, b"").await
    }

    /// The value of one series, by its whole name with labels.
    pub(crate) async fn metric(&self, series: &str) -> Option<f64> {
        let text = self.admin("/metrics", "").await.text();
        let line =
            text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned));
        line.map(|value| value.parse().unwrap())
    }
}

/// What `curl` was answered.
#[derive(Debug)]
pub(crate) struct Curled {
    /// 0 if there was no answer.
    pub(crate) status: u16,
    /// `1.1` or `2`.
    pub(crate) version: String,
    pub(crate) body: String,
}

/// Runs `curl` with these arguments: a client that is not ours.
pub(crate) fn curl(arguments: &[&str]) -> Curled {
    let mut command = Command::new("curl");
    command.args(["-s", "--max-time", "30", "-w", "\n%{http_code} %{http_version}"]).args(arguments);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, facts) = text.rsplit_once('\n').unwrap();
    let (status, version) = facts.split_once(' ').unwrap();
    Curled { status: status.parse().unwrap(), version: version.to_owned(), body: body.to_owned() }
}

impl Curled {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// One connection, kept open.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Client {
    /// Connects.
    pub(crate) async fn connect(address: SocketAddr) -> Client {
        Client { stream: TcpStream::connect(address).await.unwrap(), read: Vec::new() }
    }

    /// Connects from an address of this machine's, of which loopback has millions.
    pub(crate) async fn connect_from(source: IpAddr, address: SocketAddr) -> Client {
        Client::try_connect_from(source, address).await.unwrap()
    }

    /// The same where perhaps nobody listens yet.
    pub(crate) async fn try_connect_from(source: IpAddr, address: SocketAddr) -> io::Result<Client> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(source, 0))?;
        Ok(Client { stream: socket.connect(address).await?, read: Vec::new() })
    }

    /// One request and its answer.
    pub(crate) async fn send(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        self.send_to("test", method, path, headers, body).await
    }

    /// The same to a host of this name.
    pub(crate) async fn send_to(
        &mut self,
        host: &str,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Answer {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\n{headers}\r\n",
            body.len()
        );
        // One that is refused early may not be read to its end; the answer still comes.
        let _ = self.stream.write_all(&[head.as_bytes(), body].concat()).await;
        self.answer().await.expect("the connection ended without an answer")
    }

    /// Sends bytes as they are.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next answer, or `None` if the connection ends first.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let end = self.read_until(|read| read.windows(4).position(|w| w == b"\r\n\r\n")).await?;
        let head: Vec<u8> = self.read.drain(..end + 4).collect();
        let mut answer = Answer {
            status: std::str::from_utf8(&head[9..12]).unwrap().parse().unwrap(),
            head: String::from_utf8(head).unwrap(),
            body: Vec::new(),
        };
        let length: usize = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        self.read_until(|read| (read.len() >= length).then_some(0)).await?;
        answer.body = self.read.drain(..length).collect();
        Some(answer)
    }

    /// Sends bytes one by one, so slowly that they never end, until the server closes the connection.
    /// Says what came back.
    pub(crate) async fn dribble(mut self, bytes: impl Iterator<Item = u8>) -> Vec<u8> {
        let (mut from, mut to) = self.stream.into_split();
        let write = async {
            let mut beat = tokio::time::interval(Duration::from_millis(20));
            for byte in bytes {
                beat.tick().await;
                if to.write_all(&[byte]).await.is_err() {
                    // Closed: the reader will see it, too.
                    std::future::pending::<()>().await;
                }
            }
        };
        let read = async { while from.read_buf(&mut self.read).await.unwrap_or(0) > 0 {} };
        let closed = async {
            tokio::select! {
                () = write => panic!("all of it was taken"),
                () = read => {}
            }
        };
        tokio::time::timeout(PATIENCE, closed).await.expect("the server has had enough at some time");
        self.read
    }

    /// Waits until the server closes the connection.
    pub(crate) async fn closed(&mut self) {
        assert_eq!(self.read_until(|_| None).await, None);
    }

    async fn read_until(&mut self, done: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
        loop {
            if let Some(found) = done(&self.read) {
                return Some(found);
            }
            let reading = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.read)).await;
            // A reset is an end, too.
            if reading.expect("the server answers or closes").unwrap_or(0) == 0 {
                return None;
            }
        }
    }
}

impl Answer {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

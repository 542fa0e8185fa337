//! An engine on a clock of ours, and a client that speaks HTTP/1.1 over one connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tollgate::clock::Clock;
use tollgate::{Algorithm, Engine, KeyTemplate, Kind, MemoryStore, Micros, Policy, Rate, Rule};

/// An engine whose time stands still until its hand is moved.
pub(crate) fn engine(policy: Policy) -> (Engine<MemoryStore>, Arc<AtomicU64>) {
    let (clock, hand) = Clock::manual(Micros::from_secs(1_800_000_000));
    let store = MemoryStore::builder().max_keys(10_000).clock(clock).build();
    (Engine::builder(store).policy(policy).build(), hand)
}

/// One rule: `api`, so often, for each of those that the key tells apart.
pub(crate) fn api(rate: &str, burst: Option<u32>, key: &str) -> Policy {
    let rate = Rate::parse(rate).expect("a rate");
    let limit = Algorithm::try_new(Kind::TokenBucket, rate, burst, 1000).expect("a limit");
    let key = KeyTemplate::parse(key).expect("a key");
    let rule = Rule::builder("api").key(key).limits(vec![limit]).build().expect("a rule");
    Policy::try_new(1, vec![rule]).expect("a policy")
}

/// Waits until it is so, for half a minute at most.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// One connection, kept alive.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Answered {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        Some(self.headers.get(name)?.to_str().expect("headers of ours are ASCII"))
    }
}

impl Connection {
    pub(crate) async fn open(to: SocketAddr) -> Connection {
        Connection { stream: BufReader::new(TcpStream::connect(to).await.expect("the server listens")) }
    }

    /// `GET /` with these header lines.
    pub(crate) async fn get(&mut self, lines: &[&str]) -> Answered {
        let mut request = String::from("GET / HTTP/1.1\r\nhost: test\r\n");
        for line in lines {
            request.extend([line, "\r\n"]);
        }
        request.push_str("\r\n");
        self.stream.write_all(request.as_bytes()).await.expect("the server reads");
        let status = self.line().await;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let mut headers = http::HeaderMap::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(':') else { break };
            let name: http::HeaderName = name.parse().expect("a name");
            headers.append(name, value.trim().parse().expect("a value"));
        }
        let length = headers["content-length"].to_str().ok().and_then(|length| length.parse().ok());
        let mut body = vec![0; length.expect("a length")];
        self.stream.read_exact(&mut body).await.expect("a whole body");
        Answered { status, headers, body: String::from_utf8(body).expect("a text") }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.expect("a line");
        line.trim_end().to_owned()
    }
}

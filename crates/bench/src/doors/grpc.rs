//! Envoy's question over gRPC, and throttlecrab's: 8 connections with 32 streams each, keys drawn from 10 000.
//!
//! The client is h2 itself and writes its messages out beforehand, so that it does not stand in the way of
//! what it measures.

use std::cell::Cell;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use tempfile::{NamedTempFile, TempDir};
use tokio::net::TcpStream;

const CONNECTIONS: usize = 8;
const STREAMS: usize = 32;
const KEYS: usize = 10_000;

const ENVOY: &str = "http://bench/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const THROTTLECRAB: &str = "http://bench/throttlecrab.RateLimiter/Throttle";

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    /// Envoy's question.
    Envoy,
    /// The same of a server that takes its time.
    EnvoyOfPeer,
    /// throttlecrab's own.
    Throttlecrab,
}

impl Asked {
    /// How often in a round: nearly a second of the server's time, of which we read hundredths.
    fn times(self) -> u64 {
        match self {
            Asked::Envoy => 150_000,
            Asked::Throttlecrab => 75_000,
            Asked::EnvoyOfPeer => 15_000,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Asked::Envoy | Asked::EnvoyOfPeer => ENVOY,
            Asked::Throttlecrab => THROTTLECRAB,
        }
    }

    /// The question about one key, in gRPC's frame.
    fn message(self, key: usize) -> Bytes {
        let user = format!("user:{key}");
        match self {
            Asked::Envoy | Asked::EnvoyOfPeer => question("user", &user),
            // {key: "user:N", max_burst: 100, count_per_period: 100, period: 1, quantity: 1}
            Asked::Throttlecrab => {
                framed(&[&field(1, user.as_bytes())[..], &[16, 100, 24, 100, 32, 1, 40, 1]].concat())
            }
        }
    }

    /// What an answer has at least if a limit was met.
    fn answer_bytes(self) -> usize {
        match self {
            // A status with a limit has more than its codes.
            Asked::Envoy | Asked::EnvoyOfPeer => 16,
            // Behind the frame, a limit.
            Asked::Throttlecrab => 5 + 2,
        }
    }
}

/// Envoy's, in gRPC's frame: `{domain: "bench", descriptors: [{entries: [{key, value}]}]}`.
pub(crate) fn question(key: &str, value: &str) -> Bytes {
    let entry = [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
    framed(&[field(1, b"bench"), field(2, &field(1, &entry))].concat())
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).expect("everything here is short");
    [&[number << 3 | 2, length], bytes].concat()
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("everything here is short");
    Bytes::from([&[0][..], &length.to_be_bytes(), message].concat())
}

const FOLDER: &str = "ratelimit/config";

/// What the servers are configured with; gone with the value.
#[derive(Debug)]
pub(super) struct Files {
    rules: NamedTempFile,
    envoy: TempDir,
    /// The folder in it.
    limits: PathBuf,
}

impl Files {
    /// Writes them.
    pub(super) fn write() -> Result<Files> {
        let mut rules = NamedTempFile::new()?;
        rules.write_all(
            b"rules: [{name: user, when: {domain: bench}, key: '{descriptor.user}', limit: 100/s, burst: 200}]\n",
        )?;
        let envoy = TempDir::new()?;
        // Where envoyproxy/ratelimit looks for it.
        std::fs::create_dir_all(envoy.path().join(FOLDER))?;
        let limits =
            "domain: bench\ndescriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 100}}]\n";
        std::fs::write(envoy.path().join(FOLDER).join("bench.yaml"), limits)?;
        let limits = envoy.path().join(FOLDER);
        Ok(Files { rules, envoy, limits })
    }

    /// Where the folder of limits is.
    pub(super) fn root(&self) -> &Path {
        self.envoy.path()
    }

    /// The servers to measure, each by its name and arguments.
    pub(super) fn servers(&self) -> Vec<(&'static str, Vec<&str>)> {
        let rules = self.rules.path().to_str().unwrap_or_default();
        let envoy = self.limits.to_str().unwrap_or_default();
        vec![
            (
                "Tollgate `ShouldRateLimit`, memory, 1 worker, envoyproxy/ratelimit's YAML",
                vec!["--workers", "1", "--envoy-config", envoy],
            ),
            (
                "Tollgate `ShouldRateLimit`, memory, 1 worker, a rule of the policy",
                vec!["--workers", "1", "--config", rules],
            ),
        ]
    }
}

/// Asks for one round; says how many were answered.
pub(super) fn load(address: &str, asked: Asked) -> Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let messages: Rc<Vec<Bytes>> = Rc::new((0..KEYS).map(|key| asked.message(key)).collect());
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let left = Rc::new(Cell::new(asked.times()));
        let mut streams = Vec::new();
        for _ in 0..CONNECTIONS {
            let send = connect(address).await?;
            for _ in 0..STREAMS {
                let (send, messages, left) = (send.clone(), Rc::clone(&messages), Rc::clone(&left));
                streams.push(tokio::task::spawn_local(async move {
                    let mut send = send;
                    while left.get() > 0 {
                        left.set(left.get() - 1);
                        let at = usize::try_from(left.get()).unwrap_or(0) * 7919 % KEYS;
                        (send, _) = ask(send, asked, messages[at].clone()).await?;
                    }
                    anyhow::Ok(())
                }));
            }
        }
        for stream in streams {
            stream.await??;
        }
        Ok(asked.times())
    })
}

/// A connection that streams are opened on; it lives in the local set.
pub(crate) async fn connect(address: &str) -> Result<SendRequest<Bytes>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (send, connection) = h2::client::handshake(stream).await?;
    tokio::task::spawn_local(connection);
    Ok(send)
}

/// One call, to its trailers; and whether it said yes.
pub(crate) async fn ask(
    send: SendRequest<Bytes>,
    asked: Asked,
    message: Bytes,
) -> Result<(SendRequest<Bytes>, bool)> {
    let mut send = send.ready().await?;
    let request =
        Request::post(asked.path()).header("content-type", "application/grpc").header("te", "trailers");
    let (answer, mut stream) = send.send_request(request.body(())?, false)?;
    stream.send_data(message, true)?;
    let mut body = answer.await?.into_body();
    let (mut length, mut is_allowed) = (0, false);
    while let Some(piece) = body.data().await {
        let piece = piece?;
        // Behind the frame, the first field: Envoy's code is 1 for OK, throttlecrab's `allowed` is true.
        is_allowed |= length == 0 && piece.get(5..7) == Some(&[8, 1]);
        length += piece.len();
        body.flow_control().release_capacity(piece.len())?;
    }
    let trailers = body.trailers().await?.context("there are no trailers")?;
    ensure!(trailers.get("grpc-status").is_some_and(|status| status == "0"), "refused: {trailers:?}");
    ensure!(length >= asked.answer_bytes(), "no limit was met: {length} bytes");
    Ok((send, is_allowed))
}

//! Envoy's question over gRPC: 8 connections with 32 streams each, keys drawn from 10 000.
//!
//! The client is h2 itself and writes its messages out beforehand, so that it does not stand in the way of
//! what it measures.

use std::cell::Cell;
use std::io::Write as _;
use std::rc::Rc;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use tempfile::{NamedTempFile, TempDir};
use tokio::net::TcpStream;

const CONNECTIONS: usize = 8;
const STREAMS: usize = 32;
/// Per round: more than a second of the server's time, of which we read hundredths.
const REQUESTS: u64 = 300_000;
const KEYS: usize = 10_000;

const PATH: &str = "http://bench/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What the servers are configured with; gone with the value.
#[derive(Debug)]
pub(super) struct Files {
    rules: NamedTempFile,
    envoy: TempDir,
}

impl Files {
    /// Writes them.
    pub(super) fn write() -> Result<Files> {
        let mut rules = NamedTempFile::new()?;
        rules.write_all(
            b"rules: [{name: user, when: {domain: bench}, key: '{descriptor.user}', limit: 100/s, burst: 200}]\n",
        )?;
        let envoy = TempDir::new()?;
        let limits =
            "domain: bench\ndescriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 100}}]\n";
        std::fs::write(envoy.path().join("bench.yaml"), limits)?;
        Ok(Files { rules, envoy })
    }

    /// The servers to measure, each by its name and arguments.
    pub(super) fn servers(&self) -> Vec<(&'static str, Vec<&str>)> {
        let rules = self.rules.path().to_str().unwrap_or_default();
        let envoy = self.envoy.path().to_str().unwrap_or_default();
        vec![
            (
                "gRPC RLS, 8 connections × 32 streams, envoyproxy/ratelimit's YAML",
                vec!["--workers", "1", "--envoy-config", envoy],
            ),
            (
                "gRPC RLS, 8 connections × 32 streams, a rule of the policy",
                vec!["--workers", "1", "--config", rules],
            ),
        ]
    }
}

/// Asks for one round; says how many were answered.
pub(super) fn load(address: &str) -> Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let messages: Rc<Vec<Bytes>> = Rc::new((0..KEYS).map(message).collect());
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let left = Rc::new(Cell::new(REQUESTS));
        let mut streams = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (send, connection) = h2::client::handshake(stream).await?;
            tokio::task::spawn_local(connection);
            for _ in 0..STREAMS {
                let (send, messages, left) = (send.clone(), Rc::clone(&messages), Rc::clone(&left));
                streams.push(tokio::task::spawn_local(async move {
                    let mut send = send;
                    while left.get() > 0 {
                        left.set(left.get() - 1);
                        let at = usize::try_from(left.get()).unwrap_or(0) * 7919 % KEYS;
                        send = ask(send, messages[at].clone()).await?;
                    }
                    anyhow::Ok(())
                }));
            }
        }
        for stream in streams {
            stream.await??;
        }
        Ok(REQUESTS)
    })
}

/// One call, to its trailers.
async fn ask(send: SendRequest<Bytes>, message: Bytes) -> Result<SendRequest<Bytes>> {
    let mut send = send.ready().await?;
    let request = Request::post(PATH).header("content-type", "application/grpc").header("te", "trailers");
    let (answer, mut stream) = send.send_request(request.body(())?, false)?;
    stream.send_data(message, true)?;
    let mut body = answer.await?.into_body();
    let mut length = 0;
    while let Some(piece) = body.data().await {
        let piece = piece?;
        length += piece.len();
        body.flow_control().release_capacity(piece.len())?;
    }
    let trailers = body.trailers().await?.context("there are no trailers")?;
    ensure!(trailers.get("grpc-status").is_some_and(|status| status == "0"), "refused: {trailers:?}");
    // A status with a limit has more than its codes.
    ensure!(length > 15, "no limit was met");
    Ok(send)
}

/// `{domain: "bench", descriptors: [{entries: [{key: "user", value: "user:N"}]}]}`, in gRPC's frame.
fn message(key: usize) -> Bytes {
    let field = |number: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).expect("everything here is short");
        [&[number << 3 | 2, length], bytes].concat()
    };
    let entry = [field(1, b"user"), field(2, format!("user:{key}").as_bytes())].concat();
    let request = [field(1, b"bench"), field(2, &field(1, &entry))].concat();
    let length = u32::try_from(request.len()).expect("everything here is short");
    Bytes::from([&[0][..], &length.to_be_bytes(), &request].concat())
}

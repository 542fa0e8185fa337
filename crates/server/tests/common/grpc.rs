//! gRPC calls over a plain HTTP/2 client that is not the server's own.

use std::net::SocketAddr;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use hyper::Request;
use prost::Message;
use tokio::net::TcpStream;

use crate::common::PATIENCE;
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::DescriptorStatus;
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

/// Envoy's method.
pub(crate) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// One connection.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    send: SendRequest<Bytes>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// What a call came to.
#[derive(Debug)]
pub(crate) struct Called {
    /// HTTP's own.
    pub(crate) http: u16,
    /// gRPC's status, wherever it stood; `None` if there was none.
    pub(crate) code: Option<u16>,
    pub(crate) why: String,
    /// Whether the status came behind a message, and not in its place.
    pub(crate) has_trailers: bool,
    pub(crate) body: Vec<u8>,
}

impl Caller {
    /// Connects.
    pub(crate) async fn connect(at: SocketAddr) -> Caller {
        let stream = TcpStream::connect(at).await.unwrap();
        // A call is written in two pieces, and the second should not wait for an answer to the first.
        stream.set_nodelay(true).unwrap();
        let (send, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Caller { send, headers: Vec::new() }
    }

    /// How many calls may be under way at one time.
    pub(crate) fn streams_max(&self) -> usize {
        self.send.current_max_send_streams()
    }

    /// The same with one header more on each call.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Caller {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Sends bytes as they are, as a body of that kind.
    pub(crate) async fn send(&self, path: &str, kind: &str, body: Bytes) -> Called {
        tokio::time::timeout(PATIENCE, self.sent(path, kind, body)).await.expect("the server answers")
    }

    async fn sent(&self, path: &str, kind: &str, body: Bytes) -> Called {
        let mut request = Request::post(format!("http://test{path}"));
        if !kind.is_empty() {
            request = request.header("content-type", kind);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let mut send = self.send.clone().ready().await.unwrap();
        let (answer, mut stream) = send.send_request(request.body(()).unwrap(), false).unwrap();
        // One that is refused early may not be read to its end; the answer still comes.
        let _ = stream.send_data(body, true);
        let answer = answer.await.unwrap();
        let text = |headers: &hyper::HeaderMap, name: &str| {
            headers.get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        let (head, mut incoming) = answer.into_parts();
        let mut body = Vec::new();
        while let Some(piece) = incoming.data().await {
            let piece = piece.unwrap();
            let _ = incoming.flow_control().release_capacity(piece.len());
            body.extend_from_slice(&piece);
        }
        let trailers = incoming.trailers().await.unwrap();
        let status_in = trailers.as_ref().unwrap_or(&head.headers);
        Called {
            http: head.status.as_u16(),
            code: text(status_in, "grpc-status").map(|code| code.parse().unwrap()),
            why: text(status_in, "grpc-message").unwrap_or_default(),
            has_trailers: trailers.is_some(),
            body,
        }
    }

    /// Calls a method.
    pub(crate) async fn call(&self, path: &str, message: &impl Message) -> Called {
        self.send(path, "application/grpc", framed(message)).await
    }

    /// Calls a method that must answer.
    pub(crate) async fn answer<A: Message + Default>(&self, path: &str, message: &impl Message) -> A {
        let called = self.call(path, message).await;
        assert_eq!((called.code, called.has_trailers), (Some(0), true), "{called:?}");
        called.message()
    }

    /// Asks Envoy's question.
    pub(crate) async fn ask(&self, request: &RateLimitRequest) -> RateLimitResponse {
        self.answer(SHOULD_RATE_LIMIT, request).await
    }

    /// Asks about one descriptor.
    pub(crate) async fn one(&self, domain: &str, entries: &[(&str, &str)]) -> (i32, DescriptorStatus) {
        let response = self.ask(&request(domain, &[entries])).await;
        assert_eq!(response.statuses.len(), 1, "{response:?}");
        (response.overall_code, response.statuses[0].clone())
    }
}

impl Called {
    /// The message of the answer.
    pub(crate) fn message<A: Message + Default>(&self) -> A {
        assert!(self.body.len() >= 5, "{self:?}");
        A::decode(&self.body[5..]).unwrap()
    }
}

/// A message as gRPC sends it.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(0);
    out.put_u32(u32::try_from(message.encoded_len()).unwrap());
    message.encode(&mut out).unwrap();
    out.freeze()
}

/// One descriptor.
pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entries = entries.iter().map(|(key, value)| Entry { key: (*key).into(), value: (*value).into() });
    RateLimitDescriptor { entries: entries.collect(), ..RateLimitDescriptor::default() }
}

/// A request of these descriptors.
pub(crate) fn request(domain: &str, descriptors: &[&[(&str, &str)]]) -> RateLimitRequest {
    RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: descriptors.iter().map(|entries| descriptor(entries)).collect(),
        hits_addend: 0,
    }
}

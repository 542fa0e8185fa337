//! From a URL to a connection that has been greeted, and nothing kept in between.
//!
//! The name is resolved on every dial: a Redis that moved is found where it is now.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tollgate_core::store::StoreError;
use tollgate_core::units::Micros;

use super::classify::{answered, class_of};
use super::tls::Tls;
use super::url::{Endpoint, RedisUrl};
use super::wire::{self, Reply, take_reply};

/// How often the kernel asks a silent peer whether it is there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);

/// How long the kernel waits for sent bytes to be acknowledged.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(2);

/// A connection of any kind.
pub(super) enum Stream {
    /// Plain TCP.
    Tcp(TcpStream),
    /// A unix socket.
    Unix(UnixStream),
    /// TLS over TCP.
    #[cfg(feature = "redis-tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// What a greeting told us.
#[derive(Debug, Clone, Copy)]
pub(super) struct Greeting {
    /// Redis' clock when it answered, if we were to ask.
    pub time: Option<Micros>,
}

/// What is to be found out while greeting.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wants {
    /// The server's clock.
    pub time: bool,
    /// That it is a primary: a replica is no use.
    pub primary: bool,
}

/// Connects, authenticates, selects the database, and sees the server answer.
pub(super) async fn dial(
    url: &RedisUrl,
    tls: &Arc<Tls>,
    wants: Wants,
) -> Result<(Stream, Greeting), StoreError> {
    let mut stream = connect(&url.endpoint, tls).await.map_err(|error| unreachable(&error))?;
    let greeting = greet(&mut stream, url, wants).await?;
    Ok((stream, greeting))
}

/// Sends `bytes`, a pipeline of `count` commands, and waits for all replies. For a connection of one's own.
pub(super) async fn exchange(
    stream: &mut Stream,
    bytes: &[u8],
    count: usize,
) -> Result<Vec<Reply>, StoreError> {
    send(stream, bytes).await?;
    let mut buffer = BytesMut::new();
    let mut replies = Vec::with_capacity(count);
    for _ in 0..count {
        replies.push(read_reply(stream, &mut buffer).await?);
    }
    Ok(replies)
}

async fn send(stream: &mut Stream, bytes: &[u8]) -> Result<(), StoreError> {
    stream.write_all(bytes).await.map_err(|error| unreachable(&error))?;
    stream.flush().await.map_err(|error| unreachable(&error))
}

async fn connect(endpoint: &Endpoint, tls: &Arc<Tls>) -> io::Result<Stream> {
    match endpoint {
        Endpoint::Tcp { host, port } => Ok(Stream::Tcp(connect_tcp(host, *port).await?)),
        Endpoint::Unix { path } => Ok(Stream::Unix(UnixStream::connect(path).await?)),
        Endpoint::Tls { host, port } => tls.connect(connect_tcp(host, *port).await?, host).await,
        Endpoint::Sentinel(_) | Endpoint::Cluster { .. } => {
            Err(io::Error::other("several servers, of which none is named"))
        }
    }
}

async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(&stream);
    let keepalive =
        socket2::TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(Duration::from_secs(1));
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    Ok(stream)
}

/// What the replies to a greeting answer, in order.
enum Asked {
    Auth,
    Select,
    Role,
    Time,
    Ping,
}

async fn greet(stream: &mut Stream, url: &RedisUrl, wants: Wants) -> Result<Greeting, StoreError> {
    let mut out = Vec::new();
    let mut asked = Vec::new();
    if let Some(password) = &url.password {
        let words = ["AUTH", url.username.as_deref().unwrap_or("default"), password.reveal()];
        // Without a user, the older form: it also serves servers that only know `requirepass`.
        let words = if url.username.is_some() { words.to_vec() } else { vec!["AUTH", password.reveal()] };
        wire::command(&mut out, words.into_iter().map(str::as_bytes));
        asked.push(Asked::Auth);
    }
    if url.database != 0 {
        let database = url.database.to_string();
        wire::command(&mut out, ["SELECT", &database].into_iter().map(str::as_bytes));
        asked.push(Asked::Select);
    }
    if wants.primary {
        wire::command(&mut out, [&b"ROLE"[..]].into_iter());
        asked.push(Asked::Role);
    }
    wire::command(&mut out, [if wants.time { "TIME" } else { "PING" }].into_iter().map(str::as_bytes));
    asked.push(if wants.time { Asked::Time } else { Asked::Ping });

    send(stream, &out).await?;
    let mut buffer = BytesMut::new();
    let mut greeting = Greeting { time: None };
    for question in asked {
        let reply = read_reply(stream, &mut buffer).await?;
        match (question, reply) {
            // A user that may not PING is a user; the server is there. Nor is one that may not ask for its role
            // turned away: a replica refuses to write, which is as good.
            (Asked::Ping | Asked::Role, Reply::Error(message)) if class_of(&message).name() == "noperm" => {}
            (Asked::Auth, Reply::Error(message)) => return Err(answered(&without_password(message, url))),
            (_, Reply::Error(message)) => return Err(answered(&message)),
            (Asked::Time, Reply::Array(parts)) => greeting.time = time_of(&parts),
            (Asked::Role, Reply::Array(parts)) if parts.first() != Some(&Reply::Bulk(b"master".to_vec())) => {
                return Err(answered("READONLY It says that it is no primary."));
            }
            _ => {}
        }
    }
    Ok(greeting)
}

async fn read_reply(stream: &mut Stream, buffer: &mut BytesMut) -> Result<Reply, StoreError> {
    loop {
        if let Some(reply) = take_reply(buffer).map_err(|error| unreachable(&error))? {
            return Ok(reply);
        }
        if stream.read_buf(buffer).await.map_err(|error| unreachable(&error))? == 0 {
            return Err(unreachable(&"closed by the server while greeting"));
        }
    }
}

/// A server that does not know `AUTH` repeats what came with it.
fn without_password(message: String, url: &RedisUrl) -> String {
    match &url.password {
        Some(password) if !password.reveal().is_empty() => message.replace(password.reveal(), "***"),
        _ => message,
    }
}

/// Nothing of a caller's was sent, so nothing was spent.
fn unreachable(why: &dyn std::fmt::Display) -> StoreError {
    StoreError::Unreachable { why: why.to_string().into() }
}

/// The reply to `TIME`: seconds and microseconds.
pub(super) fn time_of(parts: &[Reply]) -> Option<Micros> {
    let [Reply::Bulk(seconds), Reply::Bulk(micros)] = parts else { return None };
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok();
    Some(Micros(number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)?))
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Stream::Tcp(_) => "Tcp",
            Stream::Unix(_) => "Unix",
            #[cfg(feature = "redis-tls")]
            Stream::Tls(_) => "Tls",
        })
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            #[cfg(feature = "redis-tls")]
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            #[cfg(feature = "redis-tls")]
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(context),
            #[cfg(feature = "redis-tls")]
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            #[cfg(feature = "redis-tls")]
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

//! The smallest client that can administer a Redis.
//!
//! Not a library's client, and above all not Tollgate's: what a test uses to look must not share a
//! bug with what it looks at.

use std::{io, net::SocketAddr, path::Path};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    net::{TcpStream, UnixStream},
};

use super::reply::{Reply, ReplyError, read_reply};

/// One connection, one command at a time, RESP2.
///
/// A command that is dropped before its reply leaves the reply in the connection, where the next
/// command would take it for its own: drop the client as well.
pub struct RedisClient {
    connection: BufReader<Box<dyn Connection>>,
}

trait Connection: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<C: AsyncRead + AsyncWrite + Unpin + Send + Sync> Connection for C {}

impl RedisClient {
    /// Connects by TCP.
    pub async fn connect(address: SocketAddr) -> io::Result<RedisClient> {
        let connection = TcpStream::connect(address).await?;
        connection.set_nodelay(true)?;
        Ok(RedisClient::over(connection))
    }

    /// Connects by Unix socket.
    pub async fn connect_unix(path: &Path) -> io::Result<RedisClient> {
        Ok(RedisClient::over(UnixStream::connect(path).await?))
    }

    /// Speaks over a connection that exists already, such as a TLS stream.
    pub fn over(connection: impl AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static) -> RedisClient {
        RedisClient { connection: BufReader::new(Box::new(connection)) }
    }

    /// Sends one command and reads its reply. For arguments that are not text, pass byte slices.
    pub async fn command<A: AsRef<[u8]> + Sync>(&mut self, arguments: &[A]) -> Result<Reply, ReplyError> {
        self.send(arguments).await?;
        self.receive().await
    }

    /// Sends one command without reading its reply.
    pub async fn send<A: AsRef<[u8]> + Sync>(&mut self, arguments: &[A]) -> io::Result<()> {
        self.connection.write_all(&encode(arguments)).await?;
        self.connection.flush().await
    }

    /// Reads the next reply, or the next message on a connection that subscribes or monitors.
    pub async fn receive(&mut self) -> Result<Reply, ReplyError> {
        match read_reply(&mut self.connection).await? {
            Reply::Error(message) => Err(ReplyError::Refused { message }),
            reply => Ok(reply),
        }
    }
}

impl std::fmt::Debug for RedisClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RedisClient").finish_non_exhaustive()
    }
}

fn encode<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

//! What Redis answers, and how an answer can fail to come.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// An answer, in the types of RESP2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status such as `OK`.
    Simple(String),
    /// A number.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// A list.
    Array(Vec<Reply>),
    /// Nothing: a missing string or list.
    Nil,
    /// An error inside a list, as `EXEC` answers it. An error by itself is a [`ReplyError`].
    Error(String),
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// Redis answered with an error, such as `NOPERM ...`. The connection is still good.
    #[error("redis refused: {message}")]
    Refused {
        /// The error as Redis wrote it, beginning with its code.
        message: String,
    },
    /// The connection failed or ended. The command may or may not have been executed.
    #[error("connection to redis failed")]
    Connection(#[from] io::Error),
    /// The bytes are not RESP2. The connection cannot be used any more.
    #[error("not a RESP2 reply: {line:?}")]
    Malformed {
        /// The line that made no sense.
        line: String,
    },
}

impl Reply {
    /// The text of a string or a status; a number in decimal. Panics on anything else.
    #[track_caller]
    pub fn text(&self) -> String {
        match self {
            Reply::Simple(text) => text.clone(),
            Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).expect("the reply is text"),
            Reply::Integer(number) => number.to_string(),
            Reply::Array(_) | Reply::Nil | Reply::Error(_) => panic!("expected text, got {self:?}"),
        }
    }

    /// The value of a number, or of a string that spells one. Panics on anything else.
    #[track_caller]
    pub fn integer(&self) -> i64 {
        match self {
            Reply::Integer(number) => *number,
            _ => self.text().parse().unwrap_or_else(|_| panic!("expected a number, got {self:?}")),
        }
    }

    /// The elements of a list. Panics on anything else.
    #[track_caller]
    pub fn array(&self) -> &[Reply] {
        match self {
            Reply::Array(elements) => elements,
            _ => panic!("expected a list, got {self:?}"),
        }
    }

    /// The answer to `TIME`, in microseconds since 1970.
    #[track_caller]
    pub fn time_us(&self) -> i64 {
        match self.array() {
            [seconds, micros] => seconds.integer() * 1_000_000 + micros.integer(),
            _ => panic!("expected seconds and microseconds, got {self:?}"),
        }
    }
}

impl ReplyError {
    /// The code of a refusal: `NOAUTH`, `NOPERM`, `LOADING`, `ERR`.
    pub fn code(&self) -> Option<&str> {
        match self {
            ReplyError::Refused { message } => message.split(' ').next(),
            ReplyError::Connection(_) | ReplyError::Malformed { .. } => None,
        }
    }
}

/// Reads one reply of any depth.
pub(super) async fn read_reply(
    connection: &mut (impl AsyncBufRead + Unpin + Send),
) -> Result<Reply, ReplyError> {
    let line = read_line(connection).await?;
    let malformed = || ReplyError::Malformed { line: line.clone() };
    let (kind, rest) = line.split_at_checked(1).ok_or_else(malformed)?;
    let number = || rest.parse::<i64>().map_err(|_| malformed());

    match kind {
        "+" => Ok(Reply::Simple(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => Ok(Reply::Integer(number()?)),
        "$" | "*" if number()? == -1 => Ok(Reply::Nil),
        "$" => {
            let length = usize::try_from(number()?).map_err(|_| malformed())?;
            let mut bytes = vec![0; length + 2];
            connection.read_exact(&mut bytes).await?;
            bytes.truncate(length);
            Ok(Reply::Bulk(bytes))
        }
        "*" => {
            let length = usize::try_from(number()?).map_err(|_| malformed())?;
            let mut elements = Vec::with_capacity(length);
            for _ in 0..length {
                elements.push(Box::pin(read_reply(connection)).await?);
            }
            Ok(Reply::Array(elements))
        }
        _ => Err(malformed()),
    }
}

async fn read_line(connection: &mut (impl AsyncBufRead + Unpin)) -> Result<String, ReplyError> {
    let mut bytes = Vec::new();
    connection.read_until(b'\n', &mut bytes).await?;
    let Some(line) = bytes.strip_suffix(b"\r\n") else {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    };
    Ok(String::from_utf8_lossy(line).into_owned())
}

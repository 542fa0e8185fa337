//! RESP in plain bytes: no client of anybody's between the test and the door.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::PATIENCE;

/// One connection.
#[derive(Debug)]
pub(crate) struct Resp {
    pub(crate) stream: TcpStream,
}

/// Words as clients send them.
pub(crate) fn command(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// `CL.THROTTLE`'s five numbers as bytes.
pub(crate) fn five(numbers: [i64; 5]) -> String {
    format!("*5\r\n:{}\r\n", numbers.map(|number| number.to_string()).join("\r\n:"))
}

impl Resp {
    /// Connects.
    pub(crate) async fn connect(address: SocketAddr) -> Resp {
        Resp { stream: TcpStream::connect(address).await.unwrap() }
    }

    /// Sends bytes as they are.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends a line, and says what comes back: exactly as many bytes as are expected.
    #[track_caller]
    pub(crate) fn expect<'a>(&'a mut self, line: &str, expected: &'a str) -> impl Future<Output = ()> + 'a {
        let (line, place) = (format!("{line}\r\n"), std::panic::Location::caller());
        async move {
            self.send(&line).await;
            let found = self.read(expected.len()).await;
            assert_eq!(found, expected, "to {line:?} at {place}");
        }
    }

    /// The next so many bytes, or all there are before the end.
    pub(crate) async fn read(&mut self, count: usize) -> String {
        let mut bytes = vec![0; count];
        let mut read = 0;
        while read < count {
            let reading = tokio::time::timeout(PATIENCE, self.stream.read(&mut bytes[read..])).await;
            match reading.unwrap_or_else(|_| panic!("only {:?}", String::from_utf8_lossy(&bytes[..read]))) {
                Ok(0) | Err(_) => break,
                Ok(more) => read += more,
            }
        }
        bytes.truncate(read);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Everything until the server closes the connection.
    pub(crate) async fn rest(&mut self) -> String {
        self.read(16 << 20).await
    }

    /// Sends words, and reads one answer, of any shape but a list in a list.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> Vec<String> {
        self.send(command(words)).await;
        let first = self.line().await;
        let count = match first.as_bytes()[0] {
            b'*' => first[1..].parse().unwrap(),
            b'%' => first[1..].parse::<usize>().unwrap() * 2,
            _ => return vec![self.value(first).await],
        };
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            let line = self.line().await;
            values.push(self.value(line).await);
        }
        values
    }

    async fn value(&mut self, line: String) -> String {
        match line.split_at(1) {
            ("$", "-1") | ("_", _) => "null".to_owned(),
            ("$", length) => {
                let text = self.read(length.parse::<usize>().unwrap() + 2).await;
                text[..text.len() - 2].to_owned()
            }
            (":", number) => number.to_owned(),
            _ => line,
        }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        while !line.ends_with("\r\n") {
            let byte = self.read(1).await;
            assert!(!byte.is_empty(), "the connection ended within {line:?}");
            line.push_str(&byte);
        }
        line.trim_end().to_owned()
    }
}

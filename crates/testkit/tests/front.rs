//! A front is the real program, serves what it was told to, and ends with its value.

use std::{net::SocketAddr, path::Path};

use testkit::{Front, FrontPlaces, FrontProgram};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// nginx comes from Debian, so nothing was fetched for it.
const NO_TOOLS: &str = "/nonexistent";

fn teapot(places: &FrontPlaces<'_>) -> Vec<(&'static str, String)> {
    let FrontPlaces { port, inner_port, .. } = places;
    let server = format!(
        "server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{inner_port}; return 418 'short and stout'; }}"
    );
    vec![("nginx.conf", server)]
}

/// What a plain request is answered, or nothing if nobody answers.
async fn answer(address: SocketAddr) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(address).await {
        let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await;
        let _ = stream.read_to_string(&mut text).await;
    }
    text
}

#[tokio::test]
async fn front_serves_what_it_was_configured_for_and_ends_with_its_value() {
    let is_ready = async |address| answer(address).await.contains("418");
    let front = Front::start(FrontProgram::Nginx, Path::new(NO_TOOLS), teapot, is_ready).await;
    let address = front.address();
    assert!(answer(address).await.ends_with("short and stout"), "{}", front.log());

    drop(front);

    assert_eq!(answer(address).await, "");
}

#[tokio::test]
#[should_panic(expected = "unknown directive \"serve\"")]
async fn broken_configuration_is_reported_in_the_words_of_the_program() {
    let broken = |_: &FrontPlaces<'_>| vec![("nginx.conf", "serve {}".to_owned())];
    Front::start(FrontProgram::Nginx, Path::new(NO_TOOLS), broken, async |_| false).await;
}

//! TLS: whom to trust, whom not, and who to be.

use std::time::Duration;

use testkit::{Certificates, RedisServer};
use tollgate::core::store::StoreError;
use tollgate::store::redis::{RedisConfig, RedisSetupError, RedisStore};

use crate::stand::{config, refusal, take, ten};

fn trusting(url: &str, certificates: &Certificates) -> RedisConfig {
    let mut config = config(url);
    config.tls_ca = Some(certificates.authority.path.clone());
    config
}

fn being(mut config: RedisConfig, certificates: &Certificates) -> RedisConfig {
    let client = &certificates.client;
    config.tls_client = Some((client.certificate.path.clone(), client.key.path.clone()));
    config
}

async fn works(config: RedisConfig) {
    let store = RedisStore::new(config).expect("the files are good");
    assert_eq!(take(&store, &ten()).await.remaining, 9);
}

/// Why the connection was not made.
async fn fails(config: RedisConfig) -> String {
    let store = RedisStore::new(config).expect("the files are good");
    match refusal(&store).await {
        StoreError::Unreachable { why } => why.into_owned(),
        error => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn our_own_authority_is_trusted_and_no_other() {
    let certificates = Certificates::new();
    let server = RedisServer::builder().tls(&certificates).start().await;
    works(trusting(&server.url(), &certificates)).await;
    works(trusting(&format!("rediss://localhost:{}", server.port()), &certificates)).await;

    // Of the same name, and with another key.
    let why = fails(trusting(&server.url(), &Certificates::new())).await;
    assert!(why.contains("invalid peer certificate"), "{why}");
    let why = fails(config(&server.url())).await;
    assert!(why.contains("UnknownIssuer"), "the public authorities vouch for it: {why}");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let certificates = Certificates::new();
    let server = RedisServer::builder().arg("bind", "127.0.0.1 127.0.0.2").tls(&certificates).start().await;
    works(trusting(&server.url(), &certificates)).await;
    let why = fails(trusting(&format!("rediss://127.0.0.2:{}", server.port()), &certificates)).await;
    assert!(why.contains("not valid for name"), "{why}");
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let certificates = Certificates::with_expired_server();
    let server = RedisServer::builder().tls(&certificates).start().await;
    let why = fails(trusting(&server.url(), &certificates)).await;
    assert!(why.contains("expired"), "{why}");
}

#[tokio::test]
async fn mutual_tls_needs_a_client_that_the_authority_knows() {
    let (certificates, strangers) = (Certificates::new(), Certificates::new());
    let server = RedisServer::builder().mutual_tls(&certificates).start().await;
    works(being(trusting(&server.url(), &certificates), &certificates)).await;
    fails(trusting(&server.url(), &certificates)).await;
    fails(being(trusting(&server.url(), &certificates), &strangers)).await;
}

#[tokio::test]
async fn tls_and_plain_do_not_mistake_each_other() {
    let certificates = Certificates::new();
    let server = RedisServer::builder().tls(&certificates).start().await;
    let plain = RedisServer::start().await;
    for mut config in [
        config(&format!("redis://{}", server.address())),
        trusting(&format!("rediss://{}", plain.address()), &certificates),
    ] {
        // One of the two waits for the rest of a greeting that it has not understood.
        config.dial_timeout = Duration::from_millis(500);
        fails(config).await;
    }
}

#[tokio::test]
async fn tls_with_a_password() {
    let certificates = Certificates::new();
    let server = RedisServer::builder().tls(&certificates).password("secret").start().await;
    works(trusting(&server.url(), &certificates)).await;
}

#[test]
fn a_file_that_will_not_do_is_named() {
    let certificates = Certificates::new();
    let url = "rediss://localhost:6379";
    let (authority, client) = (&certificates.authority.path, &certificates.client);
    let missing = authority.with_file_name("missing.crt");
    let mut absent = config(url);
    absent.tls_ca = Some(missing.clone());
    // A key is no authority: a file without a certificate would trust nobody.
    let mut no_certificate = config(url);
    no_certificate.tls_ca = Some(client.key.path.clone());
    let mut mixed_up = trusting(url, &certificates);
    mixed_up.tls_client = Some((client.certificate.path.clone(), client.certificate.path.clone()));
    let mut not_a_pair = trusting(url, &certificates);
    not_a_pair.tls_client = Some((client.certificate.path.clone(), certificates.server.key.path.clone()));
    for (config, named) in [
        (absent, &missing),
        (no_certificate, &client.key.path),
        (mixed_up, &client.certificate.path),
        (not_a_pair, &client.certificate.path),
    ] {
        let RedisSetupError::Tls { path, .. } = RedisStore::new(config).unwrap_err() else {
            panic!("another error");
        };
        assert_eq!(path, named.display().to_string());
    }
}

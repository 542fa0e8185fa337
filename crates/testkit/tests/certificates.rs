//! A Redis that speaks TLS accepts those it should, and nobody else.

use std::sync::Arc;

use testkit::{Certificates, RedisClient, RedisServer, certificates::Identity};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

async fn ping(
    redis: &RedisServer,
    trusted: &Certificates,
    name: &str,
    identity: Option<&Identity>,
) -> Result<String, String> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(trusted.authority.pem.as_bytes()).expect("the authority is PEM"))
        .expect("the authority is a certificate");
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let certificate =
                CertificateDer::from_pem_file(&certificate.path).expect("the certificate is PEM");
            let key = PrivateKeyDer::from_pem_file(&key.path).expect("the key is PEM");
            builder.with_client_auth_cert(vec![certificate], key).expect("key and certificate match")
        }
    };
    let tcp = TcpStream::connect(redis.address()).await.expect("redis accepts");
    let name = ServerName::try_from(name.to_owned()).expect("the name is valid");
    let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(|e| e.to_string())?;
    let reply = RedisClient::over(tls).command(&["PING"]).await;
    reply.map(|reply| reply.text()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn server_is_trusted_by_name_and_by_address() {
    let certificates = Certificates::new();
    let redis = RedisServer::builder().tls(&certificates).start().await;

    assert_eq!(redis.url(), format!("rediss://127.0.0.1:{}", redis.port()));
    assert_eq!(ping(&redis, &certificates, "localhost", None).await.unwrap(), "PONG");
    assert_eq!(ping(&redis, &certificates, "127.0.0.1", None).await.unwrap(), "PONG");
    assert_eq!(redis.command(&["PING"]).await.text(), "PONG");
}

#[tokio::test]
async fn plain_client_gets_no_answer_from_a_tls_port() {
    let redis = RedisServer::builder().tls(&Certificates::new()).start().await;

    let mut client = RedisClient::connect(redis.address()).await.unwrap();
    client.command(&["PING"]).await.unwrap_err();
}

#[tokio::test]
async fn stranger_and_wrong_name_are_not_trusted() {
    let certificates = Certificates::new();
    let redis = RedisServer::builder().tls(&certificates).start().await;

    let error = ping(&redis, &Certificates::new(), "localhost", None).await.unwrap_err();
    assert!(error.contains("invalid peer certificate"), "{error}");
    let error = ping(&redis, &certificates, "example.org", None).await.unwrap_err();
    assert!(error.contains("not valid for name"), "{error}");
}

#[tokio::test]
async fn expired_server_is_not_trusted() {
    let certificates = Certificates::with_expired_server();
    let redis = RedisServer::builder().tls(&certificates).start().await;

    let error = ping(&redis, &certificates, "localhost", None).await.unwrap_err();
    assert!(error.contains("expired"), "{error}");
}

#[tokio::test]
async fn mutual_tls_admits_only_clients_of_the_authority() {
    let certificates = Certificates::new();
    let stranger = Certificates::new();
    let redis = RedisServer::builder().mutual_tls(&certificates).start().await;

    let known = ping(&redis, &certificates, "localhost", Some(&certificates.client)).await;
    assert_eq!(known.unwrap(), "PONG");
    ping(&redis, &certificates, "localhost", Some(&stranger.client)).await.unwrap_err();
    ping(&redis, &certificates, "localhost", None).await.unwrap_err();
}

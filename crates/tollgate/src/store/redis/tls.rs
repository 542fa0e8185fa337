//! TLS to Redis: whom to trust, and whom to be.

use std::io;

use tokio::net::TcpStream;

use super::RedisSetupError;
use super::config::RedisConfig;
use super::dial::Stream;

/// What is needed to speak TLS, prepared once. Empty where the URL does not ask for it.
pub(super) struct Tls {
    #[cfg(feature = "redis-tls")]
    connector: Option<tokio_rustls::TlsConnector>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

#[cfg(not(feature = "redis-tls"))]
impl Tls {
    pub fn new(config: &RedisConfig) -> Result<Tls, RedisSetupError> {
        if config.url.is_tls() {
            return Err(RedisSetupError::Tls {
                path: "rediss://".to_owned(),
                why: "built without the feature redis-tls".to_owned(),
            });
        }
        Ok(Tls {})
    }

    pub async fn connect(&self, _: TcpStream, _: &str) -> io::Result<Stream> {
        Err(io::Error::other("built without the feature redis-tls"))
    }
}

#[cfg(feature = "redis-tls")]
impl Tls {
    /// Reads the files the configuration names, if its URL asks for TLS.
    pub(super) fn new(config: &RedisConfig) -> Result<Tls, RedisSetupError> {
        use std::sync::Arc;
        use tokio_rustls::rustls::pki_types::pem::PemObject;
        use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
        use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

        if !config.url.is_tls() {
            return Ok(Tls { connector: None });
        }
        let wrong = |path: &std::path::Path, why: &dyn std::fmt::Display| RedisSetupError::Tls {
            path: path.display().to_string(),
            why: why.to_string(),
        };
        let certificates = |path: &std::path::Path| -> Result<Vec<CertificateDer<'static>>, RedisSetupError> {
            let found: Vec<_> = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect)
                .map_err(|error| wrong(path, &error))?;
            // Trusting nobody would fail every dial, and blame the server.
            if found.is_empty() { Err(wrong(path, &"holds no certificate")) } else { Ok(found) }
        };

        let mut roots = RootCertStore::empty();
        match &config.tls_ca {
            Some(path) => {
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| wrong(path, &error))?;
                }
            }
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong("rediss://".as_ref(), &error))?
            .with_root_certificates(roots);
        let client = match &config.tls_client {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
                builder
                    .with_client_auth_cert(certificates(certificate)?, private)
                    .map_err(|error| wrong(certificate, &error))?
            }
        };
        Ok(Tls { connector: Some(Arc::new(client).into()) })
    }

    /// Speaks TLS on a connection, and checks that the certificate names `host`.
    pub(super) async fn connect(&self, stream: TcpStream, host: &str) -> io::Result<Stream> {
        let connector = self.connector.as_ref().ok_or_else(|| io::Error::other("TLS was not set up"))?;
        let name = host.to_owned().try_into().map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(connector.connect(name, stream).await?)))
    }
}

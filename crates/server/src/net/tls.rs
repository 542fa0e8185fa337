//! TLS on a door: the certificate we show, whose certificates we accept, and both again when their
//! files change.
//!
//! What a file holds is never said, only what is wrong with it: one of them is a private key.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;
use tokio_rustls::rustls::crypto::{self, CryptoProvider};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

use crate::file;

/// HTTP/2 in a TLS handshake (ALPN).
pub(crate) const H2: &[u8] = b"h2";
/// HTTP/1.1 in a TLS handshake.
pub(crate) const HTTP1: &[u8] = b"http/1.1";

/// The largest file we read: a chain or a bundle of authorities is far below.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How often we look whether a file changed. Looking, and not being told: a certificate is renewed days
/// before it is needed, and a symlink that is swapped far away changes nothing near the file.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The files of a door, as the configuration names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Our certificate, and those between it and an authority.
    pub(crate) certificate: PathBuf,
    /// Its private key.
    pub(crate) key: PathBuf,
    /// Whose certificates clients may show, and whether they must.
    pub(crate) clients: Option<(PathBuf, ClientCertificates)>,
}

/// Whether a client must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientCertificates {
    /// Without one there is no connection.
    Required,
    /// Without one there is a connection, and what needs a token needs a token.
    Optional,
}

impl ClientCertificates {
    /// Its name.
    pub(crate) fn parse(name: &str) -> Option<ClientCertificates> {
        match name {
            "required" => Some(ClientCertificates::Required),
            "optional" => Some(ClientCertificates::Optional),
            _ => None,
        }
    }
}

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub(crate) struct TlsError {
    /// The field that names the file.
    pub(crate) field: &'static str,
    path: PathBuf,
    why: String,
}

impl TlsFiles {
    /// Reads the files and puts them together; or says what is wrong with each.
    pub(crate) fn load(&self) -> Result<Arc<ServerConfig>, Vec<TlsError>> {
        let chain = certificates("cert", &self.certificate);
        let key = private_key("key", &self.key);
        let provider = Arc::new(crypto::ring::default_provider());
        let clients = self.clients.as_ref().map(|(path, need)| verifier(path, *need, &provider)).transpose();
        let (chain, key, clients) = match (chain, key, clients) {
            (Ok(chain), Ok(key), Ok(clients)) => (chain, key, clients),
            (chain, key, clients) => {
                return Err([chain.err(), key.err(), clients.err()].into_iter().flatten().collect());
            }
        };
        TlsFiles::put_together(chain, key, clients, provider).map_err(|error| {
            vec![match error {
                rustls::Error::InconsistentKeys(_) => {
                    wrong("key", &self.key, "is not the key of the certificate in cert")
                }
                other => wrong("cert", &self.certificate, other.to_string()),
            }]
        })
    }

    fn put_together(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        clients: Option<Arc<dyn ClientCertVerifier>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let mut config = builder.with_single_cert(chain, key)?;
        config.alpn_protocols = vec![H2.to_vec(), HTTP1.to_vec()];
        Ok(Arc::new(config))
    }

    /// How the files look from outside: different when one of them was changed or swapped.
    fn look(&self) -> Vec<Option<Look>> {
        let clients = self.clients.as_ref().map(|(path, _)| path);
        let paths = [Some(&self.certificate), Some(&self.key), clients];
        paths.into_iter().flatten().map(|path| Look::at(path)).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Look {
    fn at(path: &Path) -> Option<Look> {
        let file = fs::metadata(path).ok()?;
        Some(Look { inode: file.ino(), bytes: file.size(), changed: (file.mtime(), file.mtime_nsec()) })
    }
}

/// TLS as a door speaks it at the moment.
pub(crate) struct Tls {
    door: &'static str,
    files: TlsFiles,
    /// How the files looked before they were first read.
    looked: Vec<Option<Look>>,
    current: ArcSwap<ServerConfig>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("door", &self.door).field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// TLS for that door from these files.
    pub(crate) fn try_new(door: &'static str, files: TlsFiles) -> Result<Tls, Vec<TlsError>> {
        let looked = files.look();
        let current = ArcSwap::new(files.load()?);
        Ok(Tls { door, files, looked, current })
    }

    /// What a new connection is to be greeted with.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// Reads the files again. Connections that are open stay as they are; what cannot be used is logged
    /// and changes nothing.
    fn reload(&self) {
        match self.files.load() {
            Ok(fresh) => {
                self.current.store(fresh);
                tracing::info!(door = self.door, "certificates read again, and in force");
            }
            Err(errors) => {
                for error in errors {
                    tracing::error!(
                        door = self.door,
                        %error,
                        "certificates not read again; the old stay in force"
                    );
                }
            }
        }
    }
}

/// Watches the files of all doors, for ever: on SIGHUP, and when one of them changed.
#[derive(Debug)]
pub(crate) struct Watch {
    doors: Vec<(Arc<Tls>, Vec<Option<Look>>)>,
    hangup: Signal,
}

impl Watch {
    /// Watches from now on.
    pub(crate) fn start(doors: Vec<Arc<Tls>>) -> io::Result<Watch> {
        let doors = doors.into_iter().map(|tls| (Arc::clone(&tls), tls.looked.clone())).collect();
        Ok(Watch { doors, hangup: signal(SignalKind::hangup())? })
    }

    /// Reads again what is to be read again.
    pub(crate) async fn run(mut self) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_asked = tokio::select! {
                _ = self.hangup.recv() => true,
                _ = looks.tick() => false,
            };
            for (tls, before) in &mut self.doors {
                let (tls, was) = (Arc::clone(tls), before.clone());
                // Away from heartbeats and signals: the disk may be slow, or gone.
                let looked = tokio::task::spawn_blocking(move || {
                    // Order: looked at before it is read, so that a change in between is seen next time.
                    let now = tls.files.look();
                    if is_asked || was != now {
                        tls.reload();
                    }
                    now
                });
                if let Ok(now) = looked.await {
                    *before = now;
                }
            }
        }
    }
}

fn wrong(field: &'static str, path: &Path, why: impl Into<String>) -> TlsError {
    TlsError { field, path: path.to_owned(), why: why.into() }
}

fn read(field: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    file::read(path, FILE_BYTES_MAX).map_err(|error| wrong(field, path, format!("cannot be read: {error}")))
}

fn certificates(field: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(field, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        // The file may be the key's by mistake, so it is not quoted either.
        _ => Err(wrong(field, path, "holds no certificate: use PEM (-----BEGIN CERTIFICATE-----)")),
    }
}

fn private_key(field: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    // The reader's own words could quote the file, and a key's file is not quoted.
    PrivateKeyDer::from_pem_slice(&read(field, path)?).map_err(|_| {
        wrong(field, path, "holds no private key: use PEM with PKCS #8, PKCS #1 or SEC1, unencrypted")
    })
}

fn verifier(
    path: &Path,
    need: ClientCertificates,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("client_ca", path)? {
        roots.add(certificate).map_err(|error| wrong("client_ca", path, error.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    match need {
        ClientCertificates::Required => builder,
        ClientCertificates::Optional => builder.allow_unauthenticated(),
    }
    .build()
    .map_err(|error| wrong("client_ca", path, error.to_string()))
}

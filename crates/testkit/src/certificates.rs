//! Certificates of a private authority, as the PEM files that Redis and its clients read.
//!
//! Made afresh for each test, so that none is ever checked in, expires in a year, or is trusted by
//! accident. Two values of [`Certificates`] are two authorities that do not know each other.

use std::{fs, path::PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tempfile::TempDir;

/// An authority, a server it vouches for, and a client it vouches for. The files go on drop.
#[derive(Debug)]
pub struct Certificates {
    /// The certificate of the authority: what both sides must trust.
    pub authority: PemFile,
    /// For a server at `localhost` or `127.0.0.1`.
    pub server: Identity,
    /// For a client that must prove itself (mutual TLS).
    pub client: Identity,
    _directory: TempDir,
}

/// A certificate and its private key.
#[derive(Debug)]
pub struct Identity {
    /// The certificate, signed by the authority.
    pub certificate: PemFile,
    /// The private key, PKCS #8.
    pub key: PemFile,
}

/// The same PEM as a file and as text.
#[derive(Debug)]
pub struct PemFile {
    /// Where it is written.
    pub path: PathBuf,
    /// What is written there.
    pub pem: String,
}

/// Whether a certificate may be used today.
#[derive(Clone, Copy)]
enum Validity {
    Current,
    Expired,
}

impl Certificates {
    /// Makes a new authority with a valid server and a valid client.
    #[expect(
        clippy::new_without_default,
        reason = "each call makes an authority of its own; none is the default"
    )]
    pub fn new() -> Certificates {
        Certificates::with_server(Validity::Current)
    }

    /// Like [`Certificates::new`], but the server's certificate ran out in 2020.
    pub fn with_expired_server() -> Certificates {
        Certificates::with_server(Validity::Expired)
    }

    fn with_server(validity: Validity) -> Certificates {
        let directory = tempfile::Builder::new()
            .prefix("testkit-tls-")
            .tempdir()
            .expect("the temporary directory is writable");
        let write = |name: &str, pem: String| {
            let path = directory.path().join(name);
            fs::write(&path, &pem).expect("a directory just made is writable");
            PemFile { path, pem }
        };
        let issuer = authority();
        let identity = |name: &str, params: CertificateParams| {
            let key = new_key();
            let certificate = params.signed_by(&key, &issuer).expect("the parameters are complete");
            Identity {
                certificate: write(&format!("{name}.crt"), certificate.pem()),
                key: write(&format!("{name}.key"), key.serialize_pem()),
            }
        };

        Certificates {
            authority: write("ca.crt", issuer.pem()),
            server: identity("server", server_params(validity)),
            client: identity("client", client_params()),
            _directory: directory,
        }
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = named("Tollgate test authority", &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, new_key()).expect("the parameters are complete")
}

fn server_params(validity: Validity) -> CertificateParams {
    let mut params = named("localhost", &["localhost", "127.0.0.1"]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    match validity {
        Validity::Current => {}
        Validity::Expired => params.not_after = date_time_ymd(2020, 1, 1),
    }
    params
}

fn client_params() -> CertificateParams {
    let mut params = named("tollgate-client", &["tollgate-client"]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn named(common_name: &str, subjects: &[&str]) -> CertificateParams {
    let subjects: Vec<String> = subjects.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(subjects).expect("the names are plain ASCII");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("the default algorithm is compiled in")
}

//! The `listen` and `tls` sections: where the doors are, whose word about a client is believed, and the
//! certificates.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::problems::Place;
use super::section::{At, Section, clip};
use super::tree::{Node, Tree};
use super::{Listen, Overrides, TlsConfig};
use crate::net::bind::Endpoint;
use crate::net::open::Proxies;
use crate::net::tls::{ClientCertificates, TlsFiles};
use tollgate::core::address::Cidr;

const HTTP: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const GRPC: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
const RESP: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 6380);
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9180);

/// The longest path of a socket that the system takes.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Checks where the doors are.
pub(super) fn doors(mut section: Section<'_>, overrides: &Overrides) -> Listen {
    let mut door = |name: &'static str, flag: &'static str, given: Option<&String>, otherwise| {
        let written = section.text(name);
        let (place, path, text) = match (given, written) {
            (Some(text), _) => (Place::Flag(flag), String::new(), text.clone()),
            (None, Some(at)) => (at.place, at.path, at.value),
            (None, None) => return otherwise,
        };
        let endpoint = match (text.as_str(), name) {
            ("off", _) => Ok(None),
            _ => endpoint(&text).map(Some),
        };
        section.problems().keep(place, &path, endpoint).flatten()
    };
    let http = door("http", "--http", overrides.http.as_ref(), Some(Endpoint::Tcp(HTTP)));
    let grpc = door("grpc", "--grpc", overrides.grpc.as_ref(), Some(Endpoint::Tcp(GRPC)));
    let resp = door("resp", "--resp", overrides.resp.as_ref(), Some(Endpoint::Tcp(RESP)));
    let admin = door("admin", "--admin", overrides.admin.as_ref(), Some(Endpoint::Tcp(ADMIN)));
    let proxies = proxies(&mut section);
    section.close();
    Listen { http, grpc, resp, admin, proxies }
}

/// A place to listen at. Names are not resolved: where we listen must not depend on a resolver.
fn endpoint(text: &str) -> Result<Endpoint, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        // Absolute, because a door must not depend on where the server was started.
        return match path.len() {
            _ if !path.starts_with('/') || path.contains('\0') => {
                Err(format!("\"{}\" is not a socket's path: use unix:/path/to.sock", clip(text)))
            }
            ..=SOCKET_PATH_BYTES_MAX => Ok(Endpoint::Unix(PathBuf::from(path))),
            long => Err(format!("the path has {long} bytes, and a socket's at most {SOCKET_PATH_BYTES_MAX}")),
        };
    }
    let text =
        text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map(Endpoint::Tcp).map_err(|_| {
        format!(
            "\"{}\" is not an address: use ADDRESS:PORT such as 127.0.0.1:8080, [::1]:8080 or 0.0.0.0:8080, \
             unix:/path/to.sock, or off",
            clip(&text)
        )
    })
}

fn proxies(section: &mut Section<'_>) -> Proxies {
    let mut proxies = Proxies::default();
    let path = section.path_of("proxy_protocol");
    for (at, Tree { place, node }) in
        section.list("proxy_protocol").unwrap_or_default().into_iter().enumerate()
    {
        let path = format!("{path}[{at}]");
        match node {
            Node::Text(text) if text == "unix" => proxies.unix = true,
            Node::Text(text) => {
                proxies.networks.extend(section.problems().keep(place, &path, Cidr::parse(&text)));
            }
            _ => section.problems().add(place, &path, "must be a network such as 10.0.0.0/8, or unix"),
        }
    }
    proxies
}

/// Checks the certificates of the doors, to the last byte: a door that cannot greet anybody is closed.
pub(super) fn tls(mut section: Section<'_>) -> TlsConfig {
    let http = files(section.section("http"));
    let grpc = files(section.section("grpc"));
    let resp = files(section.section("resp"));
    let admin = files(section.section("admin"));
    section.close();
    TlsConfig { http, grpc, resp, admin }
}

fn files(mut section: Section<'_>) -> Option<TlsFiles> {
    let certificate = section.text("cert");
    let key = section.text("key");
    let authority = section.text("client_ca");
    let need = section.word("client_certs", "required or optional", ClientCertificates::parse);
    let is_meant = ["cert", "key", "client_ca", "client_certs"].iter().any(|name| section.was_there(name));
    if is_meant {
        for (field, what) in [
            ("cert", "is missing: TLS needs a certificate in PEM"),
            ("key", "is missing: TLS needs the certificate's private key in PEM"),
        ] {
            if !section.was_there(field) {
                let (place, path) = (section.place(), section.path_of(field));
                section.problems().add(place, &path, what);
            }
        }
    }
    if let (Some(need), false) = (&need, section.was_there("client_ca")) {
        let what = "needs client_ca: whose certificates clients may show";
        section.problems().add(need.place, &need.path, what);
    }
    let read = match (&certificate, &key) {
        (Some(certificate), Some(key)) => {
            let need = need.map_or(ClientCertificates::Required, |at| at.value);
            let files = TlsFiles {
                certificate: certificate.value.clone().into(),
                key: key.value.clone().into(),
                clients: authority.as_ref().map(|at| (at.value.clone().into(), need)),
            };
            match files.load() {
                Ok(_) => Some(files),
                Err(errors) => {
                    for error in errors {
                        let blamed = match error.field {
                            "key" => Some(key),
                            "client_ca" => authority.as_ref(),
                            _ => Some(certificate),
                        };
                        let At { place, path, .. } = blamed.unwrap_or(certificate);
                        section.problems().add(*place, path, error.to_string());
                    }
                    None
                }
            }
        }
        _ => None,
    };
    section.close();
    read
}

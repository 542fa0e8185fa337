//! Who is asking, over HTTP: one reading of a request for the server's door and for the tower layers, so
//! that both count the same caller under the same key.
//!
//! Everything a client can write is taken for a claim until something trusted stands behind it. An address
//! comes from the connection, or from a header that a trusted proxy wrote; a claim comes from a token whose
//! signature was verified. What is doubtful falls back to what is certain, never to what was said.
//!
//! In reading order: [`Identity`] holds the settings, [`HttpAttributes`] is one request seen through them,
//! `hops` finds the client behind proxies, `path` and `text` undo what can be written in many ways.

mod hops;
#[cfg(feature = "jwt")]
pub mod jwt;
mod path;
mod request;
mod text;
mod token;

use core::net::{IpAddr, SocketAddr};
use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, Method, Request, Uri};
use tollgate_core::address::{AddressSet, Cidr, fold};

pub use hops::HOPS_MAX;
pub use path::normal_path;
pub use request::{
    HttpAttributes, Original, OriginalNames, any_spelling, normal_host, path_and_query, query_parameter,
};
pub use token::TokenSource;

/// Where a connection comes from. Also the extension by which a server tells the tower layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// From this address.
    Address(IpAddr),
    /// From this machine, without an address: a unix socket.
    Unix,
}

/// The header in which trusted proxies write who called them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Forwarding {
    /// None: the client is whoever is connected.
    None,
    /// `X-Forwarded-For: 203.0.113.9, 10.0.0.1`
    #[default]
    XForwardedFor,
    /// `Forwarded: for=203.0.113.9, for="[2001:db8::1]:80"` (RFC 7239)
    Forwarded,
}

/// How callers are told apart. Built once; clones share it.
#[derive(Debug, Clone)]
pub struct Identity {
    settings: Arc<Settings>,
}

#[derive(Debug, Clone)]
struct Settings {
    proxies: AddressSet,
    unix_is_proxy: bool,
    forwarding: Forwarding,
    tokens: Vec<TokenSource>,
    #[cfg(feature = "jwt")]
    jwt: Option<jwt::Verifier>,
    #[cfg(feature = "jwt")]
    jwt_from: TokenSource,
}

/// How an identity is put together.
#[derive(Debug, Clone)]
pub struct IdentityBuilder {
    settings: Settings,
    proxies: Vec<Cidr>,
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Peer {
        Peer::Address(address)
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Peer {
        Peer::Address(address.ip())
    }
}

impl Forwarding {
    /// Its name in files: the header's own.
    pub const fn name(self) -> &'static str {
        match self {
            Forwarding::None => "none",
            Forwarding::XForwardedFor => "x-forwarded-for",
            Forwarding::Forwarded => "forwarded",
        }
    }

    /// Reads the name.
    pub fn parse(name: &str) -> Option<Forwarding> {
        [Forwarding::None, Forwarding::XForwardedFor, Forwarding::Forwarded]
            .into_iter()
            .find(|choice| choice.name().eq_ignore_ascii_case(name))
    }
}

impl Default for Identity {
    /// Trusts no proxy, and looks for tokens where [`TokenSource::usual`] says.
    fn default() -> Identity {
        Identity::builder().build()
    }
}

impl Identity {
    /// Starts from the default settings.
    pub fn builder() -> IdentityBuilder {
        let settings = Settings {
            proxies: AddressSet::default(),
            unix_is_proxy: false,
            forwarding: Forwarding::default(),
            tokens: TokenSource::usual(),
            #[cfg(feature = "jwt")]
            jwt: None,
            #[cfg(feature = "jwt")]
            jwt_from: TokenSource::Bearer,
        };
        IdentityBuilder { settings, proxies: Vec::new() }
    }

    /// What is known about a request that came from `peer`.
    pub fn of<'a, B>(&'a self, request: &'a Request<B>, peer: Peer) -> HttpAttributes<'a> {
        self.of_parts(request.method(), request.uri(), request.headers(), peer)
    }

    /// What is known about a request whose body is elsewhere.
    pub fn of_parts<'a>(
        &'a self,
        method: &'a Method,
        uri: &'a Uri,
        headers: &'a HeaderMap,
        peer: Peer,
    ) -> HttpAttributes<'a> {
        HttpAttributes::new(self, method, uri, headers, self.address(peer, headers))
    }

    /// Who is calling, seen through trusted proxies. `None` for a caller without an address.
    pub fn address(&self, peer: Peer, headers: &HeaderMap) -> Option<IpAddr> {
        let connected = match peer {
            Peer::Address(address) => Some(fold(address)),
            Peer::Unix => None,
        };
        if !self.trusts(peer) {
            return connected;
        }
        let is_trusted = |address: IpAddr| self.settings.proxies.contains(address);
        hops::client(connected, self.settings.forwarding, headers, is_trusted)
    }

    /// The claims of the token that these headers show, if it is a good one. Costs a signature: once per
    /// request is enough.
    #[cfg(feature = "jwt")]
    pub fn claims(&self, headers: &HeaderMap) -> Option<jwt::Claims> {
        let verifier = self.settings.jwt.as_ref()?;
        let token = self.settings.jwt_from.find(headers)?;
        verifier.verify(&token, crate::clock::wall()).ok()
    }

    /// The secret that these headers show, if they show one.
    pub fn token<'h>(&self, headers: &'h HeaderMap) -> Option<Cow<'h, str>> {
        self.settings.tokens.iter().find_map(|source| source.find(headers))
    }

    /// Whether a peer is a trusted proxy, so that its headers are believed.
    pub fn trusts(&self, peer: Peer) -> bool {
        match peer {
            Peer::Address(address) => self.settings.proxies.contains(address),
            Peer::Unix => self.settings.unix_is_proxy,
        }
    }
}

impl IdentityBuilder {
    /// Trusts the proxies in this range: their forwarding header is believed. Adds to those before.
    #[must_use]
    pub fn trust(mut self, range: Cidr) -> Self {
        self.proxies.push(range);
        self
    }

    /// Trusts whoever connects over a unix socket as a proxy. Not unless said.
    #[must_use]
    pub fn trust_unix(mut self) -> Self {
        self.settings.unix_is_proxy = true;
        self
    }

    /// The header in which trusted proxies write who called them (`X-Forwarded-For`).
    ///
    /// Exactly one: a proxy passes on unread whatever it does not itself write, and so the other
    /// header is the client's own.
    #[must_use]
    pub fn forwarding(mut self, forwarding: Forwarding) -> Self {
        self.settings.forwarding = forwarding;
        self
    }

    /// Where tokens are looked for; the first that is there counts.
    #[must_use]
    pub fn tokens(mut self, sources: Vec<TokenSource>) -> Self {
        self.settings.tokens = sources;
        self
    }

    /// Verifies JSON Web Tokens, so that their claims become attributes.
    #[cfg(feature = "jwt")]
    #[must_use]
    pub fn jwt(mut self, verifier: jwt::Verifier) -> Self {
        self.settings.jwt = Some(verifier);
        self
    }

    /// Where the JSON Web Token stands (`Authorization: Bearer`).
    #[cfg(feature = "jwt")]
    #[must_use]
    pub fn jwt_from(mut self, source: TokenSource) -> Self {
        self.settings.jwt_from = source;
        self
    }

    /// Puts it together.
    pub fn build(self) -> Identity {
        let IdentityBuilder { mut settings, proxies } = self;
        settings.proxies = proxies.into_iter().collect();
        Identity { settings: Arc::new(settings) }
    }
}

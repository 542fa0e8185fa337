//! The first words of a server: where it listens, what it stands on, and how to ask it something.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tollgate::Policy;

use crate::config::Config;
use crate::facing::Facing;
use crate::net::bind::Endpoint;
use crate::net::tls::{ClientCertificates, TlsFiles};

/// What is said at start.
#[derive(Debug)]
pub(crate) struct Welcome {
    http: Option<String>,
    grpc: Option<String>,
    resp: Option<String>,
    admin: Option<String>,
    workers: usize,
    /// The store in words, without credentials.
    pub(crate) store: String,
    policy: String,
    ask: Vec<String>,
    /// What there is of envoyproxy/ratelimit's YAML.
    envoy: Option<String>,
}

/// Where the doors really are.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) http: Option<Endpoint>,
    pub(crate) grpc: Option<Endpoint>,
    pub(crate) resp: Option<Endpoint>,
    pub(crate) admin: Option<Endpoint>,
}

impl Welcome {
    /// What there is to say about this server; the endpoints are those it really listens on.
    pub(crate) fn new(config: &Config, policy: &Policy, places: Places) -> Welcome {
        let Places { http, grpc, resp, admin } = places;
        let store = match &config.redis {
            Some(redis) => redis.url.to_string(),
            None => "memory (of this process alone)".to_owned(),
        };
        let rules = policy.rules().len();
        let rules = if rules == 1 { "1 rule".to_owned() } else { format!("{rules} rules") };
        let policy_words = match &config.file {
            Some(file) => format!("{} ({rules})", file.display()),
            None => format!("built in ({rules})"),
        };
        let envoy = Facing::of(policy)
            .and_then(|facing| facing.rls.dialect.as_ref())
            .map(|dialect| format!("{} limits of {} domains", dialect.limits().len(), dialect.domains()));
        let ask = http.as_ref().map(|at| {
            let body = match policy.rules().first() {
                Some(rule) => format!(r#"{{"rule":"{}","key":"user_123"}}"#, rule.name()),
                None => r#"{"key":"user_123","limit":"5/min"}"#.to_owned(),
            };
            format!("{} -d '{body}'", curl(at, config.tls.http.as_ref()))
        });
        let place = |at: Option<Endpoint>, tls: &Option<TlsFiles>| at.map(|at| place(&at, tls.as_ref()));
        let throttle = resp.as_ref().map(|at| redis_cli(at, config.tls.resp.as_ref()));
        let ask = [ask, throttle].into_iter().flatten().collect();
        let resp_tls = if config.tls.resp.is_some() { " with TLS" } else { "" };
        Welcome {
            http: place(http, &config.tls.http),
            grpc: place(grpc, &config.tls.grpc),
            resp: resp.map(|at| format!("{at}{resp_tls}")),
            admin: place(admin, &config.tls.admin),
            workers: config.workers.get(),
            store,
            policy: policy_words,
            envoy,
            ask,
        }
    }

    /// Says it.
    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Welcome { http, grpc, resp, admin, workers, store, policy, envoy, ask } = self;
        writeln!(out, "tollgate {}", env!("CARGO_PKG_VERSION"))?;
        match http {
            Some(at) if *workers == 1 => writeln!(out, "  http    {at} (1 worker)")?,
            Some(at) => writeln!(out, "  http    {at} ({workers} workers)")?,
            None => writeln!(out, "  http    off")?,
        }
        match grpc {
            Some(at) => writeln!(out, "  grpc    {at}")?,
            None => writeln!(out, "  grpc    off")?,
        }
        match resp {
            Some(at) => writeln!(out, "  resp    {at} (CL.THROTTLE, TG.CHECK)")?,
            None => writeln!(out, "  resp    off")?,
        }
        match admin {
            Some(at) => writeln!(out, "  admin   {at} (/health /ready /metrics /policy)")?,
            None => writeln!(out, "  admin   off")?,
        }
        writeln!(out, "  store   {store}")?;
        if let Some(envoy) = envoy {
            writeln!(out, "  envoy   {envoy}")?;
        }
        writeln!(out, "  policy  {policy}")?;
        for (at, ask) in ask.iter().enumerate() {
            writeln!(out, "{}  {ask}", if at == 0 { "\ntry it:\n" } else { "" })?;
        }
        out.flush()
    }
}

fn scheme(tls: Option<&TlsFiles>) -> &'static str {
    if tls.is_some() { "https" } else { "http" }
}

fn place(at: &Endpoint, tls: Option<&TlsFiles>) -> String {
    match at {
        Endpoint::Tcp(address) => format!("{}://{address}", scheme(tls)),
        Endpoint::Unix(_) if tls.is_some() => format!("{at} with TLS"),
        Endpoint::Unix(_) => at.to_string(),
    }
}

/// How to reach the HTTP door from a shell.
fn curl(at: &Endpoint, tls: Option<&TlsFiles>) -> String {
    let certificate = match tls.and_then(|files| files.clients.as_ref()) {
        Some((_, ClientCertificates::Required)) => " --cert client.pem --key client.key",
        _ => "",
    };
    let scheme = scheme(tls);
    match at {
        Endpoint::Tcp(address) => {
            format!("curl -s{certificate} {scheme}://{}/v1/check", reachable(*address))
        }
        Endpoint::Unix(path) => {
            format!("curl -s{certificate} --unix-socket {} {scheme}://localhost/v1/check", path.display())
        }
    }
}

/// How to reach the RESP door from a shell.
fn redis_cli(at: &Endpoint, tls: Option<&TlsFiles>) -> String {
    let tls = if tls.is_some() { " --tls" } else { "" };
    let place = match at {
        Endpoint::Tcp(address) => {
            let at = reachable(*address);
            let host = if at.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) {
                String::new()
            } else {
                format!(" -h {}", at.ip())
            };
            format!("{host} -p {}", at.port())
        }
        Endpoint::Unix(path) => format!(" -s {}", path.display()),
    };
    format!("redis-cli{tls}{place} CL.THROTTLE user_123 15 30 60")
}

/// An address one can connect to: what listens everywhere is reached on loopback.
fn reachable(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, at.port())
}

//! Redis, Tollgate, the application and the proxy in front of them, each a process or a server of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use testkit::{ChaosProxy, Front, FrontProgram, RedisServer};

use crate::common::{Answer, Client, Server, config};
use crate::files::{Away, Behind, configuration};
use crate::upstream::{MARK, Upstream};

// Clients: loopback's other addresses. Tollgate trusts the proxies' one alone, as it would trust the
// proxies' address alone where clients come from elsewhere.
pub(crate) const ANN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
pub(crate) const BOB: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
pub(crate) const CARL: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 4));
pub(crate) const DORA: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 5));
pub(crate) const EVE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 6));
pub(crate) const FRED: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));

/// The deadline is long, so that a busy machine is not taken for a Redis that is away: one that is killed
/// refuses connections, and that takes no time.
const POLICY: &str = r#"
identity: { trusted_proxies: [127.0.0.1] }
deny: { header.user-agent: BadBot }
redis: { deadline: 10s, read_timeout: 20s, write_timeout: 20s }
rules:
  - name: orders
    when: { method: POST, host: shop.example, path: "/orders/**" }
    key: "{address}"
    limit: 2/h
    on_outage: deny
  - { name: reports, when: { query.report: full }, key: "{address}", limit: 1/h, on_outage: deny }
  - { name: login, when: { path: /login }, key: "{address}", limit: 100/h, on_outage: deny }
  - { name: thumbnails, when: { path: /thumbnails }, key: "{address}", limit: 1/h, on_outage: allow }
  - { name: api, when: { path: /api }, key: "{address}", limit: 3/h, on_outage: local }
"#;

/// All of it.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) redis: RedisServer,
    pub(crate) tollgate: Server,
    /// Between the proxy and Tollgate, to count connections.
    pub(crate) line: ChaosProxy,
    pub(crate) upstream: Upstream,
    closed: Front,
    open: Option<Front>,
    _policy: NamedTempFile,
}

impl Scene {
    /// With two proxies of one kind: one lets nobody pass while Tollgate is away, one everybody.
    pub(crate) async fn start(program: FrontProgram) -> Scene {
        let mut scene = Scene::start_one(program, Away::Closed).await;
        scene.open = Some(front(program, Away::Open, scene.tollgate.http, &scene.upstream).await);
        scene
    }

    pub(crate) async fn start_one(program: FrontProgram, away: Away) -> Scene {
        let (redis, upstream) = tokio::join!(RedisServer::start(), Upstream::start());
        let policy = config(POLICY);
        let url = redis.url();
        let arguments = ["--config", policy.path().to_str().unwrap(), "--redis", &url];
        let tollgate = Server::start_with(&arguments).await;
        let line = ChaosProxy::start(tollgate.http).await;
        let closed = front(program, away, line.address(), &upstream).await;
        Scene { redis, tollgate, line, upstream, closed, open: None, _policy: policy }
    }

    /// One request through the closed proxy, on a connection of its own.
    pub(crate) async fn send(
        &self,
        from: IpAddr,
        method: &str,
        target: &str,
        headers: &str,
        body: &[u8],
    ) -> Answer {
        send(&self.closed, from, method, target, headers, body).await
    }

    /// One request through the open proxy.
    pub(crate) async fn send_open(
        &self,
        from: IpAddr,
        method: &str,
        target: &str,
        headers: &str,
        body: &[u8],
    ) -> Answer {
        let open = self.open.as_ref().expect("this scene has no open proxy");
        send(open, from, method, target, headers, body).await
    }
}

async fn send(front: &Front, from: IpAddr, method: &str, target: &str, headers: &str, body: &[u8]) -> Answer {
    let mut client = Client::connect_from(from, front.address()).await;
    client.send_to("shop.example", method, target, headers, body).await
}

async fn front(program: FrontProgram, away: Away, tollgate: SocketAddr, upstream: &Upstream) -> Front {
    let behind = Behind { tollgate, application: upstream.address };
    let is_ready = async |address| {
        let Ok(mut client) = Client::try_connect_from(ANN, address).await else { return false };
        client.raw(b"GET /ready HTTP/1.1\r\nhost: shop.example\r\n\r\n").await;
        let answer = client.answer().await;
        answer.is_some_and(|answer| answer.header(MARK) == Some(&upstream.mark))
    };
    Front::start(program, &tools(), |places| configuration(program, away, behind, places), is_ready).await
}

/// Where `cargo xtask test install` puts what Debian has not: `target/tools`.
fn tools() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tools")
}

//! Who takes part, and where each is found: `cargo xtask bench redis` installs what registries have.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use testkit::{Child, RedisServer, free_port};

use crate::resp;

/// Somebody who limits rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Shipped,
    Leases,
    Record,
    RedisCell,
    RedisRate,
    Flexible,
    LimitsFixed,
    LimitsSliding,
    Throttlecrab,
    EnvoyRatelimit,
    Doors,
}

impl Peer {
    pub(super) const ALL: &[Peer] = &[
        Peer::Shipped,
        Peer::Leases,
        Peer::Record,
        Peer::RedisCell,
        Peer::RedisRate,
        Peer::Flexible,
        Peer::LimitsFixed,
        Peer::LimitsSliding,
        Peer::Throttlecrab,
        Peer::Doors,
        Peer::EnvoyRatelimit,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Peer::Shipped => "Tollgate as a library, as shipped",
            Peer::Leases => "Tollgate as a library, lease: auto",
            Peer::Record => "decision record 000's script, a bare client",
            Peer::RedisCell => "redis-cell 0.2.2, a bare client",
            Peer::RedisRate => "redis_rate 10.0.1 (Go)",
            Peer::Flexible => "rate-limiter-flexible 11.4.0 (Node)",
            Peer::LimitsFixed => "limits 5.8.0 (Python), fixed window",
            Peer::LimitsSliding => "limits 5.8.0 (Python), sliding window",
            Peer::Throttlecrab => "one throttlecrab-server 0.4.40, its own memory, a bare client",
            Peer::EnvoyRatelimit => "two servers of envoyproxy/ratelimit, gRPC",
            Peer::Doors => "two servers of Tollgate, gRPC, as shipped",
        }
    }

    /// What to do about it, if it is not here.
    pub(super) fn missing(self) -> Option<String> {
        let file = match self {
            // `serve` says what to do if the server is not built.
            Peer::Shipped | Peer::Leases | Peer::Record | Peer::Doors => return None,
            Peer::RedisCell => {
                let how =
                    "`cargo build --release` in the crate `redis-cell`, and libredis_cell.so on the PATH";
                return resp::module().is_none().then(|| how.to_owned());
            }
            Peer::Throttlecrab => {
                let how = "`cargo install throttlecrab-server --locked` brings it";
                let path = std::env::var_os("PATH").unwrap_or_default();
                let mut places = std::env::split_paths(&path);
                let is_here = places.any(|folder| folder.join("throttlecrab-server").exists());
                return (!is_here).then(|| how.to_owned());
            }
            Peer::RedisRate => "peers/go/peer",
            Peer::Flexible => "peers/node/node_modules",
            Peer::LimitsFixed | Peer::LimitsSliding => "peers/python/bin/python",
            Peer::EnvoyRatelimit => "clients/ratelimit/ratelimit",
        };
        match target() {
            Ok(target) if target.join(file).exists() => None,
            _ => Some(format!(
                "there is no {file} in the target directory; start this as `cargo xtask bench redis`"
            )),
        }
    }

    /// The beginning of the command that starts an instance.
    pub(super) fn command(self) -> Result<Command> {
        let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let of = |program: PathBuf, words: &[&str]| {
            let mut command = Command::new(program);
            command.args(words);
            command
        };
        let own = |name: &str| anyhow::Ok(of(std::env::current_exe()?, &["redis-peer", name]));
        Ok(match self {
            Peer::Shipped => own("shipped")?,
            Peer::Leases => own("leases")?,
            Peer::Record => own("record")?,
            Peer::RedisCell => own("cell")?,
            Peer::Throttlecrab => own("crab")?,
            Peer::RedisRate => of(target()?.join("peers/go/peer"), &["redis_rate"]),
            Peer::Flexible => {
                let mut node = of("node".into(), &[]);
                node.env("NODE_PATH", target()?.join("peers/node/node_modules"));
                node.arg(source.join("node/peer.js")).arg("flexible");
                node
            }
            Peer::LimitsFixed | Peer::LimitsSliding => {
                let mut python = of(target()?.join("peers/python/bin/python"), &[]);
                let is_fixed = self == Peer::LimitsFixed;
                python.arg(source.join("python/peer.py"));
                python.arg(if is_fixed { "fixed-window" } else { "sliding-window-counter" });
                python
            }
            Peer::EnvoyRatelimit | Peer::Doors => anyhow::bail!("a server is not asked by a child"),
        })
    }
}

/// Where cargo puts what it builds.
pub(super) fn target() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let target = this.parent().and_then(std::path::Path::parent);
    Ok(target.context("this program is not where cargo puts it")?.to_owned())
}

/// The Redis that a peer needs.
pub(super) async fn redis(peer: Peer) -> Result<RedisServer> {
    if peer == Peer::RedisCell {
        let module = resp::module().context("libredis_cell.so is not on the PATH")?;
        Ok(RedisServer::builder().arg("loadmodule", &module.to_string_lossy()).start().await)
    } else {
        Ok(RedisServer::start().await)
    }
}

/// Its server, and its port.
pub(super) fn throttlecrab() -> Result<(Child, u16)> {
    let port = free_port();
    let mut command = Command::new("throttlecrab-server");
    command.args(["--redis", "--redis-host", "127.0.0.1", "--redis-port", &port.to_string()]);
    Ok((Child::try_spawn(command.args(["--log-level", "error"]))?, port))
}

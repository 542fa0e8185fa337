//! Every fault of a single Redis we know how to cause, each run under load.

use std::time::Duration;

use testkit::{ChaosProxy, RedisServer};
use tollgate::core::check::Check;
use tollgate::core::key::{Key, Scope};
use tollgate::core::store::Store;
use tollgate::{Cost, Kind};

use crate::report::Report;
use crate::stand::{Stand, bucket};

/// How long most faults last.
const LASTS: Duration = Duration::from_millis(900);

/// A delay that every deadline misses.
const TOO_LATE: Duration = Duration::from_millis(60);

/// A delay within the deadline.
const SLOW: Duration = Duration::from_millis(10);

/// One way for Redis to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Stopped,
    Killed,
    KilledWithAof,
    Absent,
    Blackholed,
    ConnectionsBlackholed,
    Cut,
    MovedFromHung,
    MovedFromDemoted,
    RepliesTooLate,
    Slow,
    SlowFromTheStart,
    ScriptsFlushed,
    Flushed,
    OutOfMemory,
    Demoted,
    Fenced,
    Busy,
    AclRevoked,
    PasswordChanged,
    Loading,
    ConnectionsKilled,
    TooManyClients,
}

impl Fault {
    /// All of them, in the order of `docs/failure.md`.
    pub(crate) const ALL: [Fault; 23] = [
        Fault::Stopped,
        Fault::Killed,
        Fault::KilledWithAof,
        Fault::Absent,
        Fault::Blackholed,
        Fault::ConnectionsBlackholed,
        Fault::Cut,
        Fault::MovedFromHung,
        Fault::MovedFromDemoted,
        Fault::RepliesTooLate,
        Fault::Slow,
        Fault::SlowFromTheStart,
        Fault::ScriptsFlushed,
        Fault::Flushed,
        Fault::OutOfMemory,
        Fault::Demoted,
        Fault::Fenced,
        Fault::Busy,
        Fault::AclRevoked,
        Fault::PasswordChanged,
        Fault::Loading,
        Fault::ConnectionsKilled,
        Fault::TooManyClients,
    ];

    /// Causes it under load, ends it, and reports. Again, if the machine got in the way: a fault
    /// that breaks a promise by itself does so every time.
    pub(crate) async fn run(self) -> Report {
        for _ in 0..3 {
            let report = self.run_once().await;
            if !report.is_disturbed() {
                return report;
            }
            println!("disturbed: {}", report.row());
        }
        self.run_once().await
    }

    async fn run_once(self) -> Report {
        match self {
            Fault::Stopped => stopped().await,
            Fault::Killed => killed().await,
            Fault::KilledWithAof => killed_with_aof().await,
            Fault::Absent => absent().await,
            Fault::Blackholed => blackholed().await,
            Fault::ConnectionsBlackholed => connections_blackholed().await,
            Fault::Cut => cut().await,
            Fault::MovedFromHung => moved_from_hung().await,
            Fault::MovedFromDemoted => moved_from_demoted().await,
            Fault::RepliesTooLate => replies_too_late().await,
            Fault::Slow => slow().await,
            Fault::SlowFromTheStart => slow_from_the_start().await,
            Fault::ScriptsFlushed => scripts_flushed().await,
            Fault::Flushed => flushed().await,
            Fault::OutOfMemory => out_of_memory().await,
            Fault::Demoted => demoted().await,
            Fault::Fenced => fenced().await,
            Fault::Busy => busy().await,
            Fault::AclRevoked => acl_revoked().await,
            Fault::PasswordChanged => password_changed().await,
            Fault::Loading => loading().await,
            Fault::ConnectionsKilled => connections_killed().await,
            Fault::TooManyClients => too_many_clients().await,
        }
    }
}

async fn stopped() -> Report {
    let server = RedisServer::start().await;
    let mut stand = Stand::start(&server.url()).await;
    server.pause();
    stand.broke();
    stand.lasts(LASTS).await;
    server.resume();
    stand.well();
    stand.finish("stopped (SIGSTOP), then continued", 0).await
}

async fn killed() -> Report {
    let mut server = RedisServer::start().await;
    let mut stand = Stand::start(&server.url()).await;
    server.kill();
    stand.broke();
    stand.lasts(LASTS).await;
    server.restart().await;
    stand.well();
    stand.finish("killed, restarted without AOF", 1).await
}

async fn killed_with_aof() -> Report {
    let mut server = RedisServer::builder().aof().start().await;
    let mut stand = Stand::start(&server.url()).await;
    server.kill();
    stand.broke();
    stand.lasts(LASTS).await;
    server.restart().await;
    stand.well();
    stand.finish("killed, restarted with AOF", 0).await
}

async fn absent() -> Report {
    let mut server = RedisServer::start().await;
    server.kill();
    let mut stand = Stand::start_anyway(&server.url());
    stand.broke();
    stand.lasts(LASTS).await;
    server.restart().await;
    stand.well();
    stand.finish("absent at start", 0).await
}

async fn blackholed() -> Report {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let mut stand = Stand::start(&proxy.url()).await;
    proxy.blackhole();
    stand.broke();
    stand.lasts(LASTS).await;
    proxy.pass();
    stand.well();
    stand.finish("network blackholed", 0).await
}

async fn connections_blackholed() -> Report {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let mut stand = Stand::start(&proxy.url()).await;
    // Redis is well all the time: only what was open is dead, and nothing says so.
    proxy.blackhole_existing();
    stand.broke();
    stand.finish("open connections blackholed, new ones fine", 0).await
}

async fn cut() -> Report {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let mut stand = Stand::start(&proxy.url()).await;
    proxy.cut();
    stand.broke();
    stand.lasts(LASTS).await;
    proxy.pass();
    stand.well();
    stand.finish("connections reset, new ones refused", 0).await
}

async fn moved_from_hung() -> Report {
    let (old, new) = tokio::join!(RedisServer::start(), RedisServer::start());
    let proxy = ChaosProxy::start(old.address()).await;
    let mut stand = Stand::start(&proxy.url()).await;
    old.pause();
    proxy.repoint(new.address());
    stand.broke();
    let report = stand.finish("address moved to an empty Redis, the old one hung", 1).await;
    old.resume();
    report
}

async fn moved_from_demoted() -> Report {
    let old = RedisServer::start().await;
    let new = RedisServer::builder().replica_of(old.address()).start().await;
    new.replica_is_linked().await;
    let proxy = ChaosProxy::start(old.address()).await;
    let mut stand = Stand::start(&proxy.url()).await;
    // Demoted before the other is promoted: one primary at a time.
    let port = new.port().to_string();
    old.command(&["REPLICAOF", "127.0.0.1", &port]).await;
    stand.broke();
    new.command(&["REPLICAOF", "NO", "ONE"]).await;
    proxy.repoint(new.address());
    stand.well();
    // Replication is asynchronous: what the replica had not heard of yet is lost.
    stand.finish("address moved to the promoted replica, the old primary demoted", 1).await
}

async fn replies_too_late() -> Report {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let mut stand = Stand::start(&proxy.url()).await;
    proxy.delay_replies(TOO_LATE);
    stand.broke();
    stand.lasts(LASTS).await;
    proxy.pass();
    stand.well();
    stand.finish("replies 60 ms late, then delivered", 0).await
}

async fn slow() -> Report {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let mut stand = Stand::start(&proxy.url()).await;
    proxy.delay_replies(SLOW);
    stand.broke();
    stand.lasts(2 * LASTS).await;
    stand.finish("slow: replies 10 ms late", 0).await
}

async fn slow_from_the_start() -> Report {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    proxy.delay_replies(SLOW);
    // The first asks find nothing dialled and nothing loaded: three trips of 10 ms.
    let mut stand = Stand::start_anyway(&proxy.url());
    stand.broke();
    stand.finish("slow from the start: replies 10 ms late", 0).await
}

async fn scripts_flushed() -> Report {
    let server = RedisServer::start().await;
    let mut stand = Stand::start(&server.url()).await;
    let mut admin = server.admin().await;
    stand.broke();
    let mut flushes = 0;
    let over = tokio::time::Instant::now() + LASTS;
    while tokio::time::Instant::now() < over {
        admin.command(&["FUNCTION", "FLUSH"]).await.unwrap();
        admin.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        flushes += 1;
    }
    stand.well();
    let mut report = stand.finish("FUNCTION FLUSH and SCRIPT FLUSH in a loop", 0).await;
    report.note = format!("{flushes} flushes");
    report
}

async fn flushed() -> Report {
    let server = RedisServer::start().await;
    let mut stand = Stand::start(&server.url()).await;
    server.command(&["FLUSHALL"]).await;
    stand.broke();
    stand.finish("FLUSHALL", 1).await
}

async fn out_of_memory() -> Report {
    let server = RedisServer::builder().arg("maxmemory-policy", "noeviction").start().await;
    let mut stand = Stand::start(&server.url()).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    stand.broke();
    stand.lasts(LASTS).await;
    // A full Redis still answers whoever only looks.
    let (scope, algorithm) = (Scope::of_rule("allow", 0, Kind::TokenBucket), bucket());
    let key = Key { scope: &scope, subject: b"somebody" };
    let peeked = stand.engine.store().peek(&[Check { key, algorithm: &algorithm, cost: Cost::ONE }]).await;
    assert!(peeked.is_ok(), "{peeked:?}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    stand.well();
    stand.finish("out of memory (noeviction)", 0).await
}

async fn demoted() -> Report {
    let server = RedisServer::start().await;
    let mut stand = Stand::start(&server.url()).await;
    // Nobody listens there: it keeps its data, and refuses writes.
    let nowhere = testkit::free_port().to_string();
    server.command(&["REPLICAOF", "127.0.0.1", &nowhere]).await;
    stand.broke();
    stand.lasts(LASTS).await;
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    stand.well();
    stand.finish("demoted (READONLY), then promoted", 0).await
}

async fn fenced() -> Report {
    let server = RedisServer::start().await;
    let mut stand = Stand::start(&server.url()).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    stand.broke();
    stand.lasts(LASTS).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    stand.well();
    stand.finish("fenced by min-replicas-to-write (NOREPLICAS)", 0).await
}

async fn busy() -> Report {
    let server = RedisServer::builder().arg("busy-reply-threshold", "50").start().await;
    let (mut spinning, mut admin) = (server.admin().await, server.admin().await);
    let mut stand = Stand::start(&server.url()).await;
    spinning.send(&["EVAL", "while true do end", "0"]).await.unwrap();
    stand.broke();
    stand.lasts(LASTS).await;
    admin.command(&["SCRIPT", "KILL"]).await.unwrap();
    stand.well();
    stand.finish("busy with an endless script, then SCRIPT KILL", 0).await
}

async fn acl_revoked() -> Report {
    let server = RedisServer::builder().acl_line("user rl on >secret ~* +@all").start().await;
    let mut stand = Stand::start(&format!("redis://rl:secret@{}", server.address())).await;
    server.command(&["ACL", "SETUSER", "rl", "-@all"]).await;
    stand.broke();
    stand.lasts(LASTS).await;
    server.command(&["ACL", "SETUSER", "rl", "+@all"]).await;
    stand.well();
    stand.finish("ACL revoked, then restored", 0).await
}

async fn password_changed() -> Report {
    let server = RedisServer::builder().acl_line("user rl on >secret ~* +@all").start().await;
    let mut stand = Stand::start(&format!("redis://rl:secret@{}", server.address())).await;
    server.command(&["ACL", "SETUSER", "rl", "resetpass", ">other"]).await;
    server.command(&["CLIENT", "KILL", "USER", "rl"]).await;
    stand.broke();
    stand.lasts(LASTS).await;
    server.command(&["ACL", "SETUSER", "rl", ">secret"]).await;
    stand.well();
    stand.finish("password changed, connections closed, then changed back", 0).await
}

async fn loading() -> Report {
    let server = RedisServer::builder()
        .debug_command()
        .arg("key-load-delay", "500")
        .arg("loading-process-events-interval-bytes", "1024")
        .start()
        .await;
    let mut stand = Stand::start(&server.url()).await;
    server.command(&["DEBUG", "POPULATE", "2000", "padding", "100"]).await;
    stand.broke();
    // Saves, empties itself, and reads everything back, half a millisecond and more per key.
    server.command(&["DEBUG", "RELOAD"]).await;
    stand.well();
    stand.finish("loading its data (LOADING)", 0).await
}

async fn connections_killed() -> Report {
    let server = RedisServer::start().await;
    let mut stand = Stand::start(&server.url()).await;
    // Old enough to count as connections that worked.
    stand.lasts(Duration::from_millis(1100)).await;
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    stand.broke();
    stand.finish("CLIENT KILL of every connection", 0).await
}

async fn too_many_clients() -> Report {
    let server = RedisServer::start().await;
    let mut stand = Stand::start(&server.url()).await;
    let mut admin = server.admin().await;
    admin.command(&["CONFIG", "SET", "maxclients", "1"]).await.unwrap();
    admin.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    stand.broke();
    stand.lasts(LASTS).await;
    admin.command(&["CONFIG", "SET", "maxclients", "100"]).await.unwrap();
    stand.well();
    stand.finish("no room for another client, connections closed", 0).await
}

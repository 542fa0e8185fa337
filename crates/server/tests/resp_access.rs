//! Who may do what on the RESP door, how much of it, and for how long.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use std::process::Command;
use std::time::Duration;

use common::resp::{Resp, command, five};
use common::{PATIENCE, Server};
use testkit::{Certificates, RedisServer};

const RULES: &str = "rules: [{name: api, limit: 2/h}]\n";
const TOKEN: &str = "0123456789abcdef-t0ken";

/// What `redis-cli` is answered: a client that is not ours.
fn redis_cli(arguments: &[&str]) -> String {
    let output =
        Command::new("redis-cli").args(arguments).output().expect("redis-cli comes with redis-server");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test]
async fn what_can_undo_a_limit_takes_the_token_and_a_named_rule_does_not() {
    let server = Server::configured(RULES, &["--token", TOKEN]).await;
    let mut client = Resp::connect(server.resp).await;
    for gated in [
        "CL.THROTTLE k 1 1 1",
        "GCRA k 1 1 1",
        "TG.REFUND api k 1.0",
        "TG.FORGET api k",
        "TG.INSPECT k",
        "DEL k",
    ] {
        client.expect(gated, "-NOAUTH Authentication required.\r\n").await;
    }
    assert_eq!(client.ask(&["TG.CHECK", "api", "k"]).await[1], "1");
    client.expect("PING", "+PONG\r\n").await;
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    client.expect("AUTH 0123456789abcdef-t0keN", wrong).await;
    client.expect(&format!("AUTH somebody {TOKEN}"), wrong).await;
    client.expect("CL.THROTTLE k 1 1 1 0", "-NOAUTH Authentication required.\r\n").await;
    client.expect(&format!("AUTH {TOKEN}"), "+OK\r\n").await;
    client.expect("CL.THROTTLE k 1 1 1 0", &five([0, 2, 2, -1, 0])).await;
    // What was given is taken back with everything else.
    client.expect("RESET", "+RESET\r\n").await;
    client.expect("CL.THROTTLE k 1 1 1 0", "-NOAUTH Authentication required.\r\n").await;
    assert_eq!(client.ask(&["HELLO", "3", "AUTH", "default", TOKEN]).await.len(), 16);
    client.expect("CL.THROTTLE k 1 1 1 0", &five([0, 2, 2, -1, 0])).await;
}

#[tokio::test]
async fn trust_that_is_lost_within_a_pipeline_is_lost_for_the_rest_of_it() {
    let server = Server::configured(RULES, &["--token", TOKEN]).await;
    let mut client = Resp::connect(server.resp).await;
    let (auth, reset) = (command(&["AUTH", TOKEN]), command(&["RESET"]));
    let ask = command(&["CL.THROTTLE", "k", "9", "10", "36000"]);
    client.send([&*ask, &auth, &ask, &ask, &ask, &reset, &ask, &ask, &auth, &ask].concat()).await;
    let barred = "-NOAUTH Authentication required.\r\n";
    let spent = |at: i64| five([0, 10, 10 - at, -1, 3600 * at]);
    let expected = [
        &[barred.to_owned(), "+OK\r\n".into(), spent(1), spent(2), spent(3), "+RESET\r\n".into()][..],
        &[barred.to_owned(), barred.to_owned(), "+OK\r\n".into(), spent(4)],
    ]
    .concat()
    .concat();
    assert_eq!(client.read(expected.len()).await, expected);
}

#[tokio::test]
async fn whoever_guesses_passwords_is_thrown_out() {
    let server = Server::configured(RULES, &["--token", TOKEN]).await;
    let mut client = Resp::connect(server.resp).await;
    client.send("AUTH guess\r\n".repeat(20)).await;
    assert_eq!(client.rest().await.matches("WRONGPASS").count(), 8);
    assert_eq!(server.metric("tollgate_resp_connections_closed_total{why=\"passwords\"}").await, Some(1.0));
}

#[tokio::test]
async fn strangers_may_send_little_until_they_show_the_token() {
    let server = Server::configured(RULES, &["--token", TOKEN]).await;
    let mut client = Resp::connect(server.resp).await;
    client.send(b"*2\r\n$4\r\nECHO\r\n$5000\r\n").await;
    assert_eq!(client.rest().await, "-ERR Protocol error: invalid bulk length\r\n");
    let mut client = Resp::connect(server.resp).await;
    client.send(b"*40\r\n").await;
    assert_eq!(client.rest().await, "-ERR Protocol error: invalid multibulk length\r\n");

    let mut client = Resp::connect(server.resp).await;
    let long = "x".repeat(5000);
    // In one piece: what comes behind the token is measured as whoever has shown it.
    client.send([command(&["AUTH", TOKEN]), command(&["ECHO", &long])].concat()).await;
    assert_eq!(client.read(5 + 7 + 5002).await, format!("+OK\r\n$5000\r\n{long}\r\n"));
}

#[tokio::test]
async fn off_loopback_without_a_token_only_named_rules_are_answered() {
    let server = Server::configured(RULES, &["--resp", "0.0.0.0:0"]).await;
    let mut client = Resp::connect(([127, 0, 0, 1], server.resp.port()).into()).await;
    let shut = "-NOPERM cl.throttle can undo a limit or a breaker: off this machine it takes a token (start with --token, then AUTH) \
                or a client certificate\r\n";
    client.expect("CL.THROTTLE k 1 1 1", shut).await;
    assert_eq!(client.ask(&["TG.CHECK", "api", "k"]).await[1], "1");
    assert!(
        client.ask(&["AUTH", "anything"]).await[0].starts_with("-ERR AUTH <password> called without any")
    );
}

#[tokio::test]
async fn silence_and_half_a_command_end_a_connection_in_their_own_time() {
    let limits = format!("{RULES}limits: {{idle_timeout: 1s, resp_idle_timeout: 3s}}");
    let server = Server::configured(&limits, &[]).await;
    let started = tokio::time::Instant::now();
    let half = async {
        let mut client = Resp::connect(server.resp).await;
        client.send(b"*1\r\n$4\r\nPI").await;
        assert_eq!(client.rest().await, "");
        started.elapsed()
    };
    let silent = async {
        let mut client = Resp::connect(server.resp).await;
        client.expect("PING", "+PONG\r\n").await;
        assert_eq!(client.rest().await, "");
        started.elapsed()
    };
    let dribbling = async {
        let mut client = Resp::connect(server.resp).await;
        let endless = async {
            client.send(b"*1\r\n$60000\r\n").await;
            // Until the server has had enough: bytes alone are no sign of life.
            while tokio::io::AsyncWriteExt::write_all(&mut client.stream, b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, endless).await.expect("it is closed");
        started.elapsed()
    };
    let (half, silent, dribbling) = tokio::join!(half, silent, dribbling);
    assert!(half >= Duration::from_millis(900) && half < silent, "{half:?} {silent:?}");
    assert!(dribbling < Duration::from_secs(8), "{dribbling:?}");
    assert!(silent >= Duration::from_millis(2900), "{silent:?}");
    assert_eq!(server.metric("tollgate_resp_connections_closed_total{why=\"idle\"}").await, Some(3.0));
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed_and_holds_little() {
    let server = Server::configured(&format!("{RULES}limits: {{idle_timeout: 1s}}"), &[]).await;
    let mut client = Resp::connect(server.resp).await;
    // Far more answers than the system buffers for both ends; the writing stops when we are not read.
    let flood = "COMMAND\r\n".repeat(100_000);
    let writing = tokio::io::AsyncWriteExt::write_all(&mut client.stream, flood.as_bytes());
    let _ = tokio::time::timeout(Duration::from_millis(300), writing).await;
    let series = "tollgate_resp_connections_closed_total{why=\"slow-reader\"}";
    let closed = async {
        while server.metric(series).await != Some(1.0) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.expect("it is closed");
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 60_000, "{kib} KiB at the most, for a hundred megabytes of answers");
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let limits = format!("{RULES}limits: {{connections: 1}}");
    let server = Server::configured(&limits, &["--workers", "1"]).await;
    let mut first = Resp::connect(server.resp).await;
    first.expect("PING", "+PONG\r\n").await;
    assert_eq!(Resp::connect(server.resp).await.rest().await, "-ERR max number of clients reached\r\n");
    assert_eq!(server.metric("tollgate_resp_connections_refused_total").await, Some(1.0));
}

#[tokio::test]
async fn a_drain_answers_what_was_asked_and_closes() {
    let mut server = Server::configured(RULES, &[]).await;
    let mut client = Resp::connect(server.resp).await;
    client.expect("CL.THROTTLE k 9 10 36000", &five([0, 10, 9, -1, 3600])).await;
    server.child.terminate();
    assert_eq!(client.rest().await, "");
    let status = tokio::time::timeout(PATIENCE, server.child.wait()).await.expect("it ends");
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn it_is_reached_by_tls_with_certificates_and_by_a_unix_socket() {
    let certificates = Certificates::new();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (cert, key) = (path(&certificates.server.certificate.path), path(&certificates.server.key.path));
    let authority = path(&certificates.authority.path);
    let tls = format!(
        "{RULES}tls: {{resp: {{cert: {cert}, key: {key}, client_ca: {authority}, client_certs: optional}}}}"
    );
    let server = Server::configured(&tls, &["--token", TOKEN]).await;
    let port = server.resp.port().to_string();
    let to = ["-p", &port, "--tls", "--cacert", &authority];
    let throttle = ["CL.THROTTLE", "k", "9", "10", "36000", "0"];
    assert!(redis_cli(&[&to[..], &throttle].concat()).contains("NOAUTH"));
    let (cert, key) = (path(&certificates.client.certificate.path), path(&certificates.client.key.path));
    // A certificate does what a token does.
    let with_certificate = [&to[..], &["--cert", &cert, "--key", &key]].concat();
    let wrong = redis_cli(&[&with_certificate[..], &["AUTH", "wrong"]].concat());
    assert!(wrong.contains("WRONGPASS") && !wrong.contains("OK"), "{wrong}");
    let shown = redis_cli(&[&with_certificate[..], &throttle].concat());
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["0", "10", "10", "-1", "0"]);

    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("resp.sock");
    let socket = socket.to_str().unwrap();
    let _server = Server::configured(RULES, &["--resp", &format!("unix:{socket}")]).await;
    let answer = redis_cli(&["-s", socket, "CL.THROTTLE", "k", "9", "10", "36000"]);
    assert_eq!(answer.split_whitespace().collect::<Vec<_>>(), ["0", "10", "9", "-1", "3600"]);
}

#[tokio::test]
async fn instances_on_one_redis_are_one_limit_and_an_outage_is_answered() {
    let mut redis = RedisServer::start().await;
    let url = format!("redis://127.0.0.1:{}", redis.port());
    let rules = format!("{RULES}redis: {{url: \"{url}\", on_outage: deny, deadline: 1s}}");
    let (one, two) = (Server::configured(&rules, &[]).await, Server::configured(&rules, &[]).await);
    let (mut one, mut two) = (Resp::connect(one.resp).await, Resp::connect(two.resp).await);
    one.expect("CL.THROTTLE k 9 10 36000 4", &five([0, 10, 6, -1, 14_400])).await;
    two.expect("CL.THROTTLE k 9 10 36000 0", &five([0, 10, 6, -1, 14_400])).await;
    two.expect("CL.THROTTLE k 9 10 36000 -2", &five([0, 10, 8, -1, 7200])).await;
    // A pipeline goes out together and comes back in order.
    let throttle = command(&["CL.THROTTLE", "p", "199", "200", "720000"]);
    one.send([throttle.repeat(150), b"PING\r\n".to_vec(), throttle.clone()].concat()).await;
    let mut expected: String = (1..=150).map(|n| five([0, 200, 200 - n, -1, 3600 * n])).collect();
    expected.push_str("+PONG\r\n");
    expected.push_str(&five([0, 200, 49, -1, 3600 * 151]));
    assert_eq!(one.read(expected.len()).await, expected);
    two.expect("DEL k p", ":2\r\n").await;
    one.expect("CL.THROTTLE k 9 10 36000 0", &five([0, 10, 10, -1, 0])).await;

    redis.kill();
    let refused = one.ask(&["CL.THROTTLE", "k", "9", "10", "36000"]).await;
    assert_eq!(refused[0], "1", "{refused:?}");
    let refused = one.ask(&["TG.CHECK", "api", "k"]).await;
    assert_eq!(
        (&refused[1][..], &refused[15][..], &refused[17][..]),
        ("0", "fallback", "deny"),
        "{refused:?}"
    );
}

//! How the doors are reached: HTTP/1.1 and HTTP/2, plain and with TLS, by address and by unix socket.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use std::fs;
use std::path::Path;

use common::{PATIENCE, Server, config, curl, refused};
use testkit::Certificates;

const NAMED: &str = r#"{"rule":"login","key":"k"}"#;
const INLINE: &str = r#"{"key":"k","limit":"9/s"}"#;
const RULES: &str = "rules: [{name: login, limit: 5/min, algorithm: sliding_log}]";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The `tls` section for one door, with more fields if there are any.
fn tls(door: &str, certificates: &Certificates, more: &str) -> String {
    let (cert, key) = (&certificates.server.certificate.path, &certificates.server.key.path);
    format!("{RULES}\ntls: {{{door}: {{cert: {}, key: {}{more}}}}}", text(cert), text(key))
}

fn client_ca(certificates: &Certificates, need: &str) -> String {
    format!(", client_ca: {}, client_certs: {need}", text(&certificates.authority.path))
}

/// The arguments by which curl trusts the authority, and by which it shows the client's certificate.
fn trusting(certificates: &Certificates) -> [&str; 2] {
    ["--cacert", text(&certificates.authority.path)]
}

fn showing(certificates: &Certificates) -> [&str; 4] {
    let client = &certificates.client;
    ["--cert", text(&client.certificate.path), "--key", text(&client.key.path)]
}

#[tokio::test]
async fn http2_is_spoken_in_plain_with_prior_knowledge_on_both_doors() {
    let server = Server::start().await;
    let url = format!("http://{}/v1/check", server.http);
    for remaining in [4, 3] {
        let answer = curl(&["--http2-prior-knowledge", &url, "-d", NAMED]);
        assert_eq!((answer.status, answer.version.as_str()), (200, "2"), "{answer:?}");
        assert_eq!(answer.json()["remaining"], remaining);
    }
    let answer = curl(&[&url, "-d", NAMED]);
    assert_eq!((answer.version.as_str(), &answer.json()["remaining"]), ("1.1", &2.into()));

    let ready = curl(&["--http2-prior-knowledge", &format!("http://{}/ready", server.admin)]);
    assert_eq!((ready.status, ready.version.as_str(), ready.body.as_str()), (200, "2", "ready\n"));
}

#[tokio::test]
async fn tls_agrees_on_http2_and_speaks_http1_to_whoever_wants_it() {
    let certificates = Certificates::new();
    let server = Server::configured(&tls("http", &certificates, ""), &[]).await;
    let url = format!("https://{}/v1/check", server.http);
    let trust = trusting(&certificates);
    for (arguments, version) in [
        (&["--http2"][..], "2"),
        (&["--http1.1"], "1.1"),
        (&["--no-alpn"], "1.1"),
        (&["--tls-max", "1.2", "--http2"], "2"),
        (&["--tlsv1.3", "--http2"], "2"),
    ] {
        let answer = curl(&[arguments, &trust, &[&url, "-d", NAMED]].concat());
        assert_eq!((answer.status, answer.version.as_str()), (200, version), "{arguments:?} {answer:?}");
    }
    let output = server.child.output();
    assert!(output.contains("  http    https://") && output.contains("curl -s https://"), "{output}");

    let plain = curl(&[&format!("http://{}/v1/check", server.http), "-d", NAMED]);
    assert_eq!(plain.status, 0, "nothing is said to whoever speaks no TLS: {plain:?}");
    let stranger = curl(&[&["--tls-max", "1.1"][..], &trust, &[&url, "-d", NAMED]].concat());
    assert_eq!(stranger.status, 0, "TLS 1.1 is history: {stranger:?}");
    // The other door is as it was.
    assert_eq!(server.admin("/ready", "").await.status, 200);
}

#[tokio::test]
async fn a_required_certificate_is_required() {
    let (certificates, strangers) = (Certificates::new(), Certificates::new());
    let server =
        Server::configured(&tls("http", &certificates, &client_ca(&certificates, "required")), &[]).await;
    let url = format!("https://{}/v1/check", server.http);
    let trust = trusting(&certificates);
    for http in ["--http1.1", "--http2"] {
        for card in [&[][..], &showing(&strangers)] {
            let answer = curl(&[&[http], &trust[..], card, &[&url, "-d", NAMED]].concat());
            assert_eq!(answer.status, 0, "{answer:?}");
        }
        let known = curl(&[&[http], &trust[..], &showing(&certificates), &[&url, "-d", NAMED]].concat());
        assert_eq!(known.status, 200, "{known:?}");
    }
    assert!(server.child.output().contains("--cert client.pem --key client.key"));
}

#[tokio::test]
async fn a_client_certificate_does_what_a_token_does() {
    let certificates = Certificates::new();
    let optional = client_ca(&certificates, "optional");
    let server = Server::configured(&tls("http", &certificates, &optional), &["--http", "0.0.0.0:0"]).await;
    let url = format!("https://127.0.0.1:{}/v1/check", server.http.port());
    let trust = trusting(&certificates);
    let ask = |card: &[&str], body| curl(&[&trust[..], card, &[&url, "-d", body]].concat()).status;
    assert_eq!(ask(&[], NAMED), 200);
    assert_eq!(ask(&[], INLINE), 403);
    assert_eq!(ask(&showing(&certificates), INLINE), 200);

    // Off loopback the admin door asks for one or the other.
    let server = Server::configured(&tls("admin", &certificates, &optional), &["--admin", "0.0.0.0:0"]).await;
    let url = |path: &str| format!("https://127.0.0.1:{}{path}", server.admin.port());
    let ask = |card: &[&str], path| curl(&[&trust[..], card, &[&url(path)]].concat()).status;
    assert_eq!(ask(&[], "/ready"), 200);
    assert_eq!(ask(&[], "/metrics"), 401);
    assert_eq!(ask(&showing(&certificates), "/metrics"), 200);
}

#[tokio::test]
async fn certificates_are_read_again_and_bad_ones_change_nothing() {
    let (old, new) = (Certificates::new(), Certificates::new());
    let server = Server::configured(&tls("http", &old, ""), &[]).await;
    let url = format!("https://{}/v1/peek", server.http);
    let ask = |trusted: &Certificates| curl(&[&trusting(trusted)[..], &[&url, "-d", NAMED]].concat()).status;
    assert_eq!((ask(&old), ask(&new)), (200, 0));

    // The new key alone fits no certificate.
    let secret = &new.server.key.pem;
    fs::write(&old.server.key.path, secret).unwrap();
    server.child.hangup();
    server.child.wait_for_line(|line| line.contains("the old stay in force"), PATIENCE).await;
    assert_eq!((ask(&old), ask(&new)), (200, 0));

    fs::write(&old.server.certificate.path, &new.server.certificate.pem).unwrap();
    server.child.hangup();
    server.child.wait_for_line(|line| line.contains("and in force"), PATIENCE).await;
    assert_eq!((ask(&old), ask(&new)), (0, 200));
    let output = server.child.output();
    let is_said = secret.lines().filter(|line| !line.starts_with('-')).any(|line| output.contains(line));
    assert!(!is_said, "a key is never logged");
}

#[tokio::test]
async fn a_changed_certificate_is_noticed_by_itself() {
    let (old, new) = (Certificates::new(), Certificates::new());
    let server = Server::configured(&tls("http", &old, ""), &[]).await;
    fs::write(&old.server.key.path, &new.server.key.pem).unwrap();
    fs::write(&old.server.certificate.path, &new.server.certificate.pem).unwrap();
    server.child.wait_for_line(|line| line.contains("and in force"), PATIENCE).await;
    let url = format!("https://{}/v1/peek", server.http);
    assert_eq!(curl(&[&trusting(&new)[..], &[&url, "-d", NAMED]].concat()).status, 200);
}

#[tokio::test]
async fn what_is_wrong_with_the_files_is_said_where_they_are_named() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let (cert, key) = (text(&certificates.server.certificate.path), text(&certificates.server.key.path));
    let other_key = text(&others.server.key.path);
    let junk = config("-----BEGIN PRIVATE KEY-----\nhunter2\n");
    let junk = text(junk.path());
    for (section, place, says) in [
        (format!("http: {{cert: {cert}}}"), "1:13: tls.http.key", "is missing"),
        (format!("http: {{key: {key}}}"), "tls.http.cert", "is missing"),
        (format!("admin: {{cert: /nowhere.pem, key: {key}}}"), "1:21: tls.admin.cert", "cannot be read"),
        ("http: {cert: /no.pem, key: /no.key}".to_owned(), "tls.http.key: /no.key", "cannot be read"),
        (format!("http: {{cert: {key}, key: {key}}}"), "tls.http.cert", "holds no certificate"),
        (format!("http: {{cert: {cert}, key: {cert}}}"), "tls.http.key", "holds no private key"),
        (format!("http: {{cert: {cert}, key: {junk}}}"), "tls.http.key", "holds no private key"),
        (format!("http: {{cert: {cert}, key: {other_key}}}"), "tls.http.key", "is not the key of"),
        (
            format!("http: {{cert: {cert}, key: {key}, client_ca: {key}}}"),
            "tls.http.client_ca",
            "holds no cert",
        ),
        (
            format!("http: {{cert: {cert}, key: {key}, client_certs: optional}}"),
            "client_certs",
            "needs client_ca",
        ),
        (
            format!("http: {{cert: {cert}, key: {key}, client_ca: {cert}, client_certs: maybe}}"),
            "client_certs",
            "use required or optional",
        ),
        (
            format!("https: {{cert: {cert}, key: {key}}}"),
            "tls.https",
            "unknown field: use http, grpc, resp, admin",
        ),
    ] {
        let file = config(&format!("tls: {{{section}}}\nrules: []\n"));
        let (code, output) = refused(&["--config", text(file.path())]).await;
        let found = output.lines().find(|line| line.contains(place));
        assert!(code == 2 && found.is_some_and(|line| line.contains(says)), "{section}\n{output}");
        assert!(!output.contains("hunter2"), "{output}");
    }
}

#[tokio::test]
async fn a_unix_socket_is_a_door_and_goes_with_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let (http, admin) = (directory.path().join("http.sock"), directory.path().join("admin.sock"));
    let (http_at, admin_at) = (format!("unix:{}", text(&http)), format!("unix:{}", text(&admin)));
    let mut server = Server::start_with(&["--http", &http_at, "--admin", &admin_at, "--workers", "2"]).await;
    let on =
        |socket: &Path, arguments: &[&str]| curl(&[&["--unix-socket", text(socket)], arguments].concat());
    // As good as loopback: nothing needs a token.
    for body in [NAMED, INLINE] {
        assert_eq!(on(&http, &["http://localhost/v1/check", "-d", body]).status, 200);
    }
    let http2 = on(&http, &["--http2-prior-knowledge", "http://localhost/v1/check", "-d", NAMED]);
    assert_eq!((http2.status, http2.version.as_str()), (200, "2"));
    assert_eq!(on(&admin, &["http://localhost/metrics"]).status, 200);

    let line = server.child.wait_for_line(|line| line.trim_start().starts_with("curl "), PATIENCE).await;
    let pasted = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(String::from_utf8(pasted.stdout).unwrap().contains("\"allowed\":true"), "{line}");

    let (code, output) = refused(&["--http", &http_at, "--admin", "off"]).await;
    assert!(code == 1 && output.contains("the address is in use"), "{output}");
    assert_eq!(on(&http, &["http://localhost/v1/peek", "-d", NAMED]).status, 200, "and left alone");

    server.child.terminate();
    tokio::time::timeout(PATIENCE, server.child.wait()).await.unwrap();
    assert!(!http.exists() && !admin.exists());
}

#[tokio::test]
async fn a_socket_left_behind_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("http.sock");
    let at = format!("unix:{}", text(&path));
    let mut first = Server::start_with(&["--http", &at]).await;
    first.child.kill();
    assert!(path.exists(), "killed, it could not clean up");
    let _second = Server::start_with(&["--http", &at]).await;
    let answer = curl(&["--unix-socket", text(&path), "http://localhost/v1/check", "-d", NAMED]);
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_place_that_is_none_is_refused() {
    let long = format!("unix:/{}", "x".repeat(107));
    for (at, says) in [
        ("unix:relative.sock", "use unix:/path/to.sock"),
        ("unix:", "use unix:/path/to.sock"),
        (long.as_str(), "a socket's at most 107"),
    ] {
        let (code, output) = refused(&["--http", at]).await;
        assert!(code == 2 && output.contains(says), "{at}: {output}");
    }
    let (code, output) = refused(&["--http", "unix:/nowhere/at/all.sock"]).await;
    assert!(
        code == 1 && output.contains("http door: cannot listen on unix:/nowhere/at/all.sock"),
        "{output}"
    );
}

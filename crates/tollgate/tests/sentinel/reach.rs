//! Users, passwords and TLS, of Sentinels and of servers; and what is said where nobody can be reached.

use std::sync::Arc;
use std::time::Duration;

use testkit::{Certificates, Program, SentinelGroup, free_port};
use tollgate::core::store::StoreError;
use tollgate::store::redis::RedisStore;

use crate::stand::{config, engine, is_served};

/// The users that `docs/redis.md` has, for servers and for Sentinels.
const DOCUMENT: &str = include_str!("../../../../docs/redis.md");

fn line(user: &str) -> String {
    let start = format!("ACL SETUSER {user} ");
    let line =
        DOCUMENT.lines().find_map(|line| line.strip_prefix(&start)).expect("docs/redis.md has the line");
    format!("user {user} {line}")
}

#[tokio::test]
async fn the_documented_users_are_enough_and_nothing_is_denied() {
    the_documented_users_are_enough(Program::Redis).await;
}

#[tokio::test]
async fn the_documented_users_are_enough_on_valkey() {
    the_documented_users_are_enough(Program::Valkey).await;
}

async fn the_documented_users_are_enough(program: Program) {
    assert!(DOCUMENT.contains("`+role` behind Sentinels"), "docs/redis.md has this as well");
    let group = SentinelGroup::builder()
        .program(program)
        .acl_line(&format!("{} +role", line("tollgate")))
        .sentinel_line(&line("tollgate-sentinel"))
        .sentinel_line("user default off")
        .start()
        .await;
    let url = group.url_as("tollgate:PASSWORD@") + "?sentinel_user=tollgate-sentinel&sentinel_pass=PASSWORD";
    let mut config = config(&url);
    "tg".clone_into(&mut config.key_prefix);
    let engine = engine(config);
    is_served(&engine, &["ann".to_owned()]).await;
    group.fail_over().await;
    let (new, _) = group.promoted(0).await;
    group.is_complete().await;
    is_served(&engine, &["ann".to_owned()]).await;
    for server in [&group.servers[0], &group.servers[new], &group.sentinels[0]] {
        let log = server.command(&["ACL", "LOG"]).await;
        assert!(log.array().is_empty(), "{log:?}");
    }
    // And none of them is too much.
    for (user, server) in [("tollgate", &group.servers[new]), ("tollgate-sentinel", &group.sentinels[0])] {
        for command in [&["CONFIG", "GET", "*"][..], &["REPLICAOF", "NO", "ONE"], &["FLUSHALL"]] {
            let mut words = vec!["ACL", "DRYRUN", user];
            words.extend(command);
            let said = server.admin().await.command(&words).await.map(|reply| reply.text());
            assert!(!matches!(said.as_deref(), Ok("OK")), "{user} {command:?}: {said:?}");
        }
    }
}

#[tokio::test]
async fn sentinels_and_servers_speak_tls() {
    let certificates = Arc::new(Certificates::new());
    let group = SentinelGroup::builder().tls(Arc::clone(&certificates)).start().await;
    let mut config = config(&group.url());
    config.tls_ca = Some(certificates.authority.path.clone());
    let engine = engine(config);
    is_served(&engine, &["ann".to_owned()]).await;
    group.fail_over().await;
    group.promoted(0).await;
    group.is_complete().await;
    is_served(&engine, &["ann".to_owned()]).await;
}

/// What a check is told, once a dial has failed.
async fn refusal(url: &str) -> String {
    let mut config = config(url);
    config.dial_timeout = Duration::from_millis(700);
    let store = RedisStore::new(config).expect("no TLS to go wrong");
    let error = store.ping().await.expect_err("there is nobody");
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    error.to_string()
}

#[tokio::test]
async fn sentinels_that_do_not_know_the_service_say_so() {
    let group = SentinelGroup::start().await;
    let said = refusal(&group.url().replace("tollgate-test", "another")).await;
    assert!(said.contains("knows nothing of \"another\""), "{said}");
    let said = refusal(&format!("redis-sentinel://127.0.0.1:{}/main", free_port())).await;
    assert!(said.contains("no Sentinel tells where \"main\" is") && said.contains("refused"), "{said}");
}

/// A password that is not the Sentinels' is told as that.
#[tokio::test]
async fn sentinels_with_another_password_say_so() {
    let group = SentinelGroup::builder().sentinel_line("requirepass other").start().await;
    let said = refusal(&group.url()).await;
    assert!(said.contains("NOAUTH"), "{said}");
    let said = refusal(&(group.url() + "?sentinel_pass=wrong")).await;
    assert!(said.contains("WRONGPASS") && !said.contains("wrong)"), "{said}");
    let engine = engine(config(&(group.url() + "?sentinel_pass=other")));
    is_served(&engine, &["ann".to_owned()]).await;
}

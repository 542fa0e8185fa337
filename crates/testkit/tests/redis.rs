//! A Redis of one's own: started as described, broken as told, gone with its owner.

use std::{path::Path, time::Duration};

use testkit::{RedisClient, RedisServer, Reply, unique_prefix};
use tokio::time::timeout;

#[tokio::test]
async fn every_kind_of_reply_is_read() {
    let redis = RedisServer::start().await;
    let mut client = RedisClient::connect(redis.address()).await.unwrap();
    let key = unique_prefix();

    assert_eq!(client.command(&["PING"]).await.unwrap(), Reply::Simple("PONG".to_owned()));
    assert_eq!(client.command(&["GET", &key]).await.unwrap(), Reply::Nil);
    assert_eq!(client.command(&["INCRBY", &key, "-7"]).await.unwrap(), Reply::Integer(-7));
    assert_eq!(client.command(&["GET", &key]).await.unwrap().integer(), -7);
    assert_eq!(client.command(&["KEYS", "nothing"]).await.unwrap(), Reply::Array(Vec::new()));
    let nested = client.command(&["EVAL", "return {1, {'two', false}, {err = 'E x'}}", "0"]).await.unwrap();
    let inner = Reply::Array(vec![Reply::Bulk(b"two".to_vec()), Reply::Nil]);
    assert_eq!(nested.array(), [Reply::Integer(1), inner, Reply::Error("E x".to_owned())]);

    let error = client.command(&["NONSENSE"]).await.unwrap_err();
    assert_eq!(error.code(), Some("ERR"), "{error}");
    assert_eq!(client.command(&["PING"]).await.unwrap().text(), "PONG", "an error spoils nothing");
}

#[tokio::test]
async fn arguments_may_be_any_bytes() {
    let redis = RedisServer::start().await;
    let value: Vec<u8> = (0..=255).chain(*b"\r\n$3\r\n").collect();

    redis.command(&[b"SET".as_slice(), b"key", &value]).await;

    assert_eq!(redis.command(&["GET", "key"]).await, Reply::Bulk(value));
}

#[tokio::test]
async fn restart_without_aof_forgets() {
    let mut redis = RedisServer::start().await;
    let (port, pid) = (redis.port(), redis.pid());
    redis.command(&["SET", "key", "value"]).await;

    redis.restart().await;

    assert_eq!(redis.command(&["GET", "key"]).await, Reply::Nil);
    assert_eq!(redis.port(), port);
    assert_ne!(redis.pid(), pid);
}

#[tokio::test]
async fn restart_with_aof_remembers_every_answered_write() {
    let mut redis = RedisServer::builder().aof().start().await;
    let mut client = RedisClient::connect(redis.address()).await.unwrap();
    for _ in 0..100 {
        client.command(&["INCR", "key"]).await.unwrap();
    }

    redis.kill();
    assert!(RedisClient::connect(redis.address()).await.is_err());
    redis.restart().await;

    assert_eq!(redis.command(&["GET", "key"]).await.integer(), 100);
}

#[tokio::test]
async fn restart_waits_out_a_stranger_on_its_port() {
    let mut redis = RedisServer::start().await;
    redis.kill();
    let stranger = std::net::TcpListener::bind(redis.address()).unwrap();

    let leave = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(stranger);
    };
    tokio::join!(redis.restart(), leave);

    let mut client = RedisClient::connect(redis.address()).await.unwrap();
    assert_eq!(client.command(&["PING"]).await.unwrap().text(), "PONG");
}

#[tokio::test]
async fn paused_redis_is_silent_and_answers_after_resume() {
    let redis = RedisServer::start().await;
    let mut client = RedisClient::connect(redis.address()).await.unwrap();
    client.command(&["PING"]).await.unwrap();

    redis.pause();
    client.send(&["ECHO", "late"]).await.unwrap();
    assert!(timeout(Duration::from_millis(50), client.receive()).await.is_err());
    redis.resume();

    assert_eq!(client.receive().await.unwrap().text(), "late");
}

#[tokio::test]
async fn drop_ends_a_paused_redis_and_removes_its_directory() {
    let redis = RedisServer::start().await;
    let (pid, directory) = (redis.pid(), redis.directory().to_owned());
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    redis.pause();

    drop(redis);

    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!directory.exists());
}

#[tokio::test]
async fn password_is_asked_of_clients_and_stands_in_the_url() {
    let redis = RedisServer::builder().password("secret").start().await;
    let mut client = RedisClient::connect(redis.address()).await.unwrap();

    assert_eq!(client.command(&["PING"]).await.unwrap_err().code(), Some("NOAUTH"));
    client.command(&["AUTH", "secret"]).await.unwrap();
    assert_eq!(client.command(&["PING"]).await.unwrap().text(), "PONG");
    assert_eq!(redis.url(), format!("redis://:secret@127.0.0.1:{}", redis.port()));
}

#[tokio::test]
async fn acl_user_may_do_what_its_line_says_and_the_admin_everything() {
    let line = "user rl on >pw ~tg:* -@all +get";
    let redis = RedisServer::builder().acl_line(line).acl_line("user default off").start().await;
    let mut client = RedisClient::connect(redis.address()).await.unwrap();
    client.command(&["AUTH", "rl", "pw"]).await.unwrap();

    assert_eq!(client.command(&["GET", "tg:x"]).await.unwrap(), Reply::Nil);
    assert_eq!(client.command(&["GET", "other"]).await.unwrap_err().code(), Some("NOPERM"));
    assert_eq!(client.command(&["SET", "tg:x", "1"]).await.unwrap_err().code(), Some("NOPERM"));

    redis.command(&["ACL", "SETUSER", "rl", "off"]).await;
    assert_eq!(redis.command(&["GET", "tg:x"]).await, Reply::Nil);
}

#[tokio::test]
async fn directives_reach_redis() {
    let redis = RedisServer::builder().arg("maxmemory", "6mb").debug_command().start().await;

    let reply = redis.command(&["CONFIG", "GET", "maxmemory"]).await;
    assert_eq!(reply.array()[1].integer(), 6 * 1024 * 1024);
    assert_eq!(redis.command(&["DEBUG", "SLEEP", "0"]).await.text(), "OK");
}

#[tokio::test]
async fn unix_socket_answers() {
    let redis = RedisServer::builder().unix_socket().password("secret").start().await;
    let mut client = RedisClient::connect_unix(&redis.unix_path()).await.unwrap();

    client.command(&["AUTH", "secret"]).await.unwrap();
    assert_eq!(redis.url(), format!("unix://{}?pass=secret", redis.unix_path().display()));
}

#[tokio::test]
async fn replica_follows_its_primary() {
    let primary = RedisServer::start().await;
    primary.command(&["SET", "key", "value"]).await;

    let replica = RedisServer::builder().replica_of(primary.address()).start().await;
    replica.replica_is_linked().await;

    assert_eq!(replica.command(&["GET", "key"]).await.text(), "value");
    let mut client = RedisClient::connect(replica.address()).await.unwrap();
    assert_eq!(client.command(&["SET", "key", "x"]).await.unwrap_err().code(), Some("READONLY"));
}

#[tokio::test]
async fn cpu_time_grows_with_work() {
    let redis = RedisServer::start().await;
    let before = redis.cpu_time();

    redis.command(&["EVAL", "local n = 0; for i = 1, 2e7 do n = n + i end; return n", "0"]).await;

    assert!(redis.cpu_time() >= before + Duration::from_millis(20));
}

#[tokio::test]
#[should_panic(expected = "Bad directive or wrong number of arguments")]
async fn bad_directive_fails_with_the_words_of_redis() {
    RedisServer::builder().arg("nonsense", "1").start().await;
}

#[tokio::test]
#[should_panic(expected = "ERR unknown command")]
async fn refused_convenience_command_panics() {
    RedisServer::start().await.command(&["NONSENSE"]).await;
}

//! Least privilege: the lines that `docs/redis.md` ships are enough, and nothing in them is too much.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use testkit::{Program, RedisClient, RedisServer, Reply, together, unique_prefix};
use tollgate::calendar::{CalendarUnit, ZonedCalendar};
use tollgate::core::board::Notice;
use tollgate::core::breaker::{
    Breaker, Counts, Event, Fleet, Health, Mode, Permille, Report, Settings as BreakerSettings,
};
use tollgate::core::push::{Heard, Listener, Push, Topic};
use tollgate::core::store::{ErrorClass, Store, StoreError};
use tollgate::store::redis::{Layout, RedisConfig, RedisStore};
use tollgate::{Algorithm, Kind, Micros, Rate};

use crate::stand::{LAYOUTS, Limit, config, flush_text, refusal, store, take, ten};

/// The same on Redis and on Valkey.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod on_redis {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Program::Redis).await;
            })+
        }

        mod on_valkey {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Program::Valkey).await;
            })+
        }
    };
}

on_both!(
    the_line_grants_what_is_really_called,
    the_line_is_enough_for_everything_and_nothing_is_denied,
    the_line_grants_nothing_that_could_be_left_out,
    the_line_lets_nobody_at_anything_else,
    a_numbered_database_needs_select_too,
    the_line_for_inspecting_is_enough_and_not_too_much,
);

const DOCUMENT: &str = include_str!("../../../../docs/redis.md");

/// What the client sends by itself, beside what is in the scripts.
const SENT: [&str; 11] = [
    "fcall",
    "function|load",
    "evalsha",
    "script|load",
    "ping",
    "time",
    "del",
    "publish",
    "subscribe",
    "info",
    "dbsize",
];

/// The words of the line that makes `user`, with a prefix of the test's.
fn line(user: &str, prefix: &str) -> Vec<String> {
    let start = format!("ACL SETUSER {user} ");
    let line = DOCUMENT.lines().find(|line| line.starts_with(&start)).expect("docs/redis.md has the line");
    let ours =
        |word: &str| word.replace("~tg:", &format!("~{prefix}:")).replace("&tg:", &format!("&{prefix}:"));
    line.split(' ').map(ours).collect()
}

/// The commands a line grants.
fn granted(words: &[String]) -> BTreeSet<&str> {
    words.iter().filter_map(|word| word.strip_prefix('+')).collect()
}

/// Makes the user anew, with no connection and no function or script left of the one before.
async fn make(server: &RedisServer, words: &[String]) {
    server.command(&["ACL", "DELUSER", &words[2]]).await;
    flush_text(server).await;
    server.command(&["FLUSHALL"]).await;
    server.command(words).await;
    server.command(&["ACL", "LOG", "RESET"]).await;
}

fn config_of(server: &RedisServer, user: &str, prefix: &str, layout: Layout) -> RedisConfig {
    let mut config = config(&format!("redis://{user}:PASSWORD@{}", server.address()));
    prefix.clone_into(&mut config.key_prefix);
    config.layout = layout;
    config.pool_size = 1;
    config
}

/// The commands that were denied, as `ACL LOG` has them.
async fn denied(server: &RedisServer) -> BTreeSet<String> {
    let log = server.command(&["ACL", "LOG", "128"]).await;
    let object = |entry: &Reply| {
        let parts = entry.array();
        let at = parts.iter().position(|part| *part == Reply::Bulk(b"object".to_vec()));
        parts[at.expect("an entry names its object") + 1].text().to_lowercase()
    };
    log.array().iter().map(object).collect()
}

/// A call that failed, of the epoch that is.
async fn report(store: &RedisStore, breaker: &Breaker) -> Event {
    let epoch = match store.step(b"id", breaker, &Event::Look, Permille(0)).await {
        Ok(step) => step.view.epoch,
        Err(_) => 0,
    };
    let counts = Counts { ok: 0, failed: 1, slow: 0 };
    Event::Report(Report { reporter: 1, epoch, counts, health: Health::Well, hint: None })
}

/// Every algorithm and every verb, allowed and refused, alone and together, on values of ours and of
/// others, the notice board, a breaker, then a heartbeat, what it asks Redis about itself, and pushes. What failed, in words.
async fn tour(server: &RedisServer, prefix: &str, layout: Layout, functions: bool) -> Vec<String> {
    let mut config = config_of(server, "tollgate", prefix, layout);
    config.functions = functions;
    let store = RedisStore::new(config).expect("no TLS to go wrong");
    let month = ZonedCalendar::try_new(CalendarUnit::Month, "Europe/Berlin").expect("a time zone");
    let month = Algorithm::by_calendar(2, Arc::new(month)).expect("a limit");
    let mut limits: Vec<Limit> = Kind::ALL.map(|kind| Limit::new(kind, "2/h")).into();
    limits.push(Limit::of(month, "of-the-month"));
    let mut failed = Vec::new();
    let mut expect = |what: String, result: Result<(), StoreError>| {
        failed.extend(result.err().map(|error| format!("{what}: {error}")));
    };

    for limit in &limits {
        let mut taken = None;
        for _ in 0..3 {
            let result = store.take(&[limit.check()]).await;
            taken = taken.or(result.as_ref().ok().map(|decisions| decisions[0].take));
            expect(format!("take {limit:?}"), result.map(drop));
        }
        expect(format!("peek {limit:?}"), store.peek(&[limit.check()]).await.map(drop));
        if let Some(taken) = taken {
            expect(format!("refund {limit:?}"), store.refund(&[limit.refund(taken)]).await.map(drop));
        }
    }
    let checks: Vec<_> = limits[..4].iter().map(Limit::check).collect();
    expect("take all".into(), store.take(&checks).await.map(drop));
    let bucket = Algorithm::try_new(Kind::TokenBucket, Rate::parse("2/h").expect("a rate"), None, 0);
    let another = Limit::of(bucket.expect("a limit"), "bob");
    let another = [another.check()];
    let asks = checks.iter().chain(&checks).map(std::slice::from_ref).chain([&checks[..], &another]);
    for result in together(asks.map(|ask| store.take(ask))).await {
        expect("take together".into(), result.map(drop));
    }
    let keys: Vec<_> = limits.iter().map(Limit::key).collect();
    expect("forget".into(), store.forget(&keys).await);
    expect("take what was forgotten".into(), store.take(&checks).await.map(drop));
    let notice = Notice { text: b"text", keep_for: Duration::from_secs(1) };
    expect("post".into(), store.post(b"name", Some(notice)).await.map(drop));
    expect("board".into(), store.board(0).await.map(drop));
    expect("take down".into(), store.post(b"name", None).await.map(drop));
    let breaker = Breaker::try_new(BreakerSettings::default()).expect("the defaults are fine");
    let force = Event::Override {
        mode: Mode::ForcedOpen,
        keep_for: Micros(1),
        reason: String::new(),
        who: String::new(),
    };
    let (lease, probed) = (Event::Lease { token: 1 }, Event::Return { token: 1, epoch: 0 });
    for event in [Event::Look, report(&store, &breaker).await, force, lease, probed] {
        let step = store.step(b"id", &breaker, &event, Permille(0)).await;
        expect(format!("{event:?}"), step.map(drop));
    }
    let push = Push { topic: Topic::Eased, text: b"" };
    expect("publish".into(), store.publish(push).await);
    store.listen(Arc::new(Deaf));
    let heartbeat = store.heartbeat().await;
    let is_surveying = heartbeat.is_ok();
    expect("heartbeat".into(), heartbeat.map(drop));
    failed.extend((store.stats().functions != functions).then(|| "functions are not used".to_owned()));

    if is_surveying {
        // It is asked on the side: both questions have their answer, or are denied.
        loop {
            let (stats, denied) = (store.stats(), denied(server).await);
            if (stats.used_memory.is_some() || denied.contains("info"))
                && (stats.keys.is_some() || denied.contains("dbsize"))
            {
                failed.extend(stats.used_memory.is_none().then(|| "memory is not known".to_owned()));
                failed.extend(stats.keys.is_none().then(|| "keys are not known".to_owned()));
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        while !store.stats().listening && !denied(server).await.contains("subscribe") {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        failed.extend((!store.stats().listening).then(|| "pushes are not heard".to_owned()));
    }
    failed
}

/// Whoever listens, so that the store does.
struct Deaf;

impl Listener for Deaf {
    fn heard(&self, _: Heard<'_>) {}
}

async fn the_line_is_enough_for_everything_and_nothing_is_denied(program: Program) {
    let server = RedisServer::builder().program(program).start().await;
    let prefix = unique_prefix();
    make(&server, &line("tollgate", &prefix)).await;
    for layout in LAYOUTS {
        for functions in [true, false] {
            assert_eq!(tour(&server, &prefix, layout, functions).await, [""; 0], "{layout:?} {functions}");
        }
        let mut config = config_of(&server, "tollgate", &prefix, layout);
        config.client_time = true;
        take(&RedisStore::new(config).expect("no TLS to go wrong"), &ten()).await;
    }
    assert_eq!(denied(&server).await, BTreeSet::new());
}

/// Whatever is taken away is missed. `PING` is not: a user that may not is taken for one that is there; nor
/// is `MGET`, in the place of which a batch gets its keys one by one. But Redis logs each of them as an attack.
async fn the_line_grants_nothing_that_could_be_left_out(program: Program) {
    let server = RedisServer::builder().program(program).start().await;
    let prefix = unique_prefix();
    let whole = line("tollgate", &prefix);
    for command in granted(&whole) {
        let grant = format!("+{command}");
        let less: Vec<String> = whole.iter().filter(|word| **word != grant).cloned().collect();
        make(&server, &less).await;
        let mut failed = Vec::new();
        for layout in LAYOUTS {
            for functions in [true, false] {
                failed.extend(tour(&server, &prefix, layout, functions).await);
            }
        }
        let could_be_left_out = ["ping", "mget"].contains(&command);
        assert_eq!(failed.is_empty(), could_be_left_out, "without {command}: {failed:?}");
        assert_eq!(denied(&server).await, BTreeSet::from([command.to_owned()]));
    }
}

#[test]
fn the_line_grants_what_is_sent_and_what_the_scripts_call() {
    let scripts = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut used: BTreeSet<String> = SENT.map(str::to_owned).into();
    for entry in std::fs::read_dir(scripts).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        // `redis.call`, `redis.pcall`, or `call` where a script has given it that name.
        for command in text.split("call(").skip(1) {
            let command = command.strip_prefix('\'').expect("every command is named where it is called");
            used.insert(command[..command.find('\'').unwrap()].to_lowercase());
        }
    }
    let line = line("tollgate", "tg");
    assert_eq!(granted(&line), used.iter().map(String::as_str).collect());
}

/// What the server itself has counted as called, by clients and by scripts, is what the line grants: nothing beside
/// it, and nothing less.
async fn the_line_grants_what_is_really_called(program: Program) {
    let server = RedisServer::builder().program(program).start().await;
    let prefix = unique_prefix();
    let line = line("tollgate", &prefix);
    make(&server, &line).await;
    server.command(&["CONFIG", "RESETSTAT"]).await;
    for layout in LAYOUTS {
        for functions in [true, false] {
            assert_eq!(tour(&server, &prefix, layout, functions).await, [""; 0], "{layout:?} {functions}");
        }
    }
    let info = server.command(&["INFO", "commandstats"]).await.text();
    let names = info.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next());
    // What everybody may, and what this test asks by itself.
    let beside = ["hello", "auth", "acl|log", "config|resetstat"];
    let called: BTreeSet<&str> = names.filter(|name| !beside.contains(name)).collect();
    assert_eq!(called, granted(&line));
}

async fn the_line_lets_nobody_at_anything_else(program: Program) {
    let server = RedisServer::builder().debug_command().program(program).start().await;
    let prefix = unique_prefix();
    make(&server, &line("tollgate", &prefix)).await;
    let mut client = RedisClient::connect(server.address()).await.expect("the server answers");
    client.command(&["AUTH", "tollgate", "PASSWORD"]).await.expect("the server answers");
    let ours = format!("{prefix}:x");
    for command in [
        &["EVAL", "return 1", "0"][..],
        &["CONFIG", "GET", "*"],
        &["FLUSHALL"],
        &["FLUSHDB"],
        &["SCRIPT", "FLUSH"],
        &["SCRIPT", "KILL"],
        &["FUNCTION", "FLUSH"],
        &["FUNCTION", "DELETE", "tollgate_0"],
        &["FUNCTION", "DUMP"],
        &["KEYS", "*"],
        &["SCAN", "0"],
        &["DEBUG", "SLEEP", "0"],
        &["PUBLISH", "channel", "x"],
        &["SUBSCRIBE", "channel"],
        &["PSUBSCRIBE", "*"],
        &["ACL", "LIST"],
        &["CLIENT", "LIST"],
        &["SELECT", "1"],
        &["SHUTDOWN", "NOSAVE"],
        &["INCR", &ours],
        &["GET", "another:x"],
        &["SET", "another:x", "1"],
        &["DEL", "another:x"],
    ] {
        let error = client.command(command).await.expect_err("it is not granted");
        assert_eq!(error.code(), Some("NOPERM"), "{command:?}: {error}");
    }
    client.command(&["GET", &ours]).await.expect("the server answers");
}

async fn a_numbered_database_needs_select_too(program: Program) {
    let server = RedisServer::builder().program(program).start().await;
    let mut words = line("tollgate", "tg");
    make(&server, &words).await;
    let url = format!("redis://tollgate:PASSWORD@{}/3", server.address());
    let error = refusal(&store(&url)).await;
    assert!(
        matches!(error, StoreError::Answered { class: ErrorClass::NoPermission, .. })
            && error.to_string().contains("select"),
        "{error}"
    );
    words.push("+select".to_owned());
    make(&server, &words).await;
    let mut config = config(&url);
    "tg".clone_into(&mut config.key_prefix);
    take(&RedisStore::new(config).expect("no TLS to go wrong"), &ten()).await;
}

/// Looks at every key of a subject, in both layouts. What failed, in words.
async fn inspection(server: &RedisServer, prefix: &str) -> Vec<String> {
    let mut failed = Vec::new();
    let mut config = config(&server.url());
    prefix.clone_into(&mut config.key_prefix);
    for layout in LAYOUTS {
        config.layout = layout;
        let writer = RedisStore::new(config.clone()).expect("no TLS to go wrong");
        for kind in Kind::ALL {
            take(&writer, &Limit::new(kind, "2/h")).await;
        }
    }
    let names: Vec<String> =
        crate::stand::keys(server, 0).await.expect("an administrator may").into_iter().collect();
    let reader = RedisStore::new(config_of(server, "tollgate-inspect", prefix, Layout::Packed))
        .expect("no TLS to go wrong");
    match reader.keys_of(b"ann").await {
        Ok(found) => assert_eq!(found.len(), 8, "four in each layout: {found:?}"),
        Err(error) => failed.push(format!("keys_of: {error}")),
    }
    for name in names {
        match reader.inspect(&name).await {
            Ok(inspected) => {
                let inspected = inspected.expect("it is there");
                assert_eq!(
                    (inspected.subject.as_deref(), inspected.rule.as_deref()),
                    (Some("ann"), Some("login"))
                );
                assert!(inspected.expires_after.is_some(), "{name}");
            }
            Err(error) => failed.push(format!("inspect {name}: {error}")),
        }
    }
    let writer = RedisStore::new(config).expect("no TLS to go wrong");
    let breaker = Breaker::try_new(BreakerSettings::default()).expect("the defaults are fine");
    writer.step(b"pay", &breaker, &Event::Look, Permille(0)).await.expect("an administrator may");
    match reader.inspect_breaker(b"pay").await {
        Ok(found) if found.as_ref().is_some_and(|found| found.changes.is_some()) => {}
        Ok(Some(_)) => failed.push("the changes of a breaker".to_owned()),
        other => failed.push(format!("inspect_breaker: {other:?}")),
    }
    // For whoever looks at all keys next time.
    server.command(&["DEL", &format!("{prefix}:cb:{{pay}}:s")]).await;
    failed
}

async fn the_line_for_inspecting_is_enough_and_not_too_much(program: Program) {
    let server = RedisServer::builder().program(program).start().await;
    let prefix = unique_prefix();
    let whole = line("tollgate-inspect", &prefix);
    make(&server, &whole).await;
    assert_eq!(inspection(&server, &prefix).await, [""; 0]);
    assert_eq!(denied(&server).await, BTreeSet::new());
    for command in granted(&whole) {
        let grant = format!("+{command}");
        let less: Vec<String> = whole.iter().filter(|word| **word != grant).cloned().collect();
        make(&server, &less).await;
        let failed = inspection(&server, &prefix).await;
        assert_eq!(failed.is_empty(), command == "ping", "without {command}: {failed:?}");
        assert_eq!(denied(&server).await, BTreeSet::from([command.to_owned()]));
    }
}

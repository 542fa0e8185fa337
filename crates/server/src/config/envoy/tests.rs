//! What each key of envoyproxy/ratelimit's YAML and each setting of its environment does: taken away, the
//! outcome is another.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use tollgate::MemoryStore;
use tollgate::store::AnyStore;
use tollgate::store::redis::{Endpoint, RedisUrl};

use super::dialect::KEYS;
use super::environment::UNDERSTOOD;
use crate::config::{Config, Overrides, Problems, Source};
use crate::engine::Engine;
use crate::rls::{Code, Descriptor, Entry, Request, Service, Stats};

fn checked(files: &[(&str, &str)], settings: &str, vars: &[(&str, &str)]) -> Result<Config, Problems> {
    let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    };
    let source = Source {
        name: "tollgate.yaml".to_owned(),
        text: format!("{settings}\nrules: []\n"),
        envoy: Some(owned(files)),
    };
    let environment: BTreeMap<String, String> = owned(vars).into_iter().collect();
    Config::check(&source, Overrides { environment, ..Overrides::default() })
}

/// `domain: k=v,k=v | k=v +3`: a request of two descriptors, of three hits each.
fn request(text: &str) -> Request<'_> {
    let (domain, rest) = text.split_once(": ").unwrap();
    let (descriptors, hits) = rest.split_once(" +").unwrap_or((rest, "0"));
    let entry = |text| {
        let (key, value) = str::split_once(text, '=').unwrap();
        Entry { key: key.into(), value: value.into() }
    };
    let descriptor = |text: &'static str| Descriptor {
        entries: text.split(',').map(entry).collect(),
        carried: None,
        hits_addend: None,
        is_negative: false,
    };
    let descriptors: &'static str = descriptors.to_owned().leak();
    Request {
        domain: domain.into(),
        descriptors: descriptors.split(" | ").map(descriptor).collect(),
        hits_addend: hits.parse().unwrap(),
    }
}

/// A service under these files and settings, and what it counts.
fn service(
    files: &[(&str, &str)],
    settings: &str,
    vars: &[(&str, &str)],
) -> Result<(Service, Arc<Stats>), Problems> {
    let config = checked(files, settings, vars)?;
    let policy = config.policy.build(1, &config.facing).unwrap();
    let engine = Engine::builder(AnyStore::Memory(MemoryStore::new())).policy(policy).build();
    let stats = Arc::new(Stats::default());
    Ok((Service::new(engine, Arc::clone(&stats)), stats))
}

/// Everything that these requests are answered, and counted, in words.
async fn outcome(files: &[(&str, &str)], settings: &str, vars: &[(&str, &str)], asks: &[&str]) -> String {
    let (service, stats) = match service(files, settings, vars) {
        Ok(made) => made,
        Err(problems) => return format!("refused: {problems}"),
    };
    let mut said = String::new();
    for ask in asks {
        let Ok(answer) = service.answer(&request(ask)).await else {
            said.push_str("failed; ");
            continue;
        };
        let _ = write!(said, "{}", if answer.code == Code::Ok { "ok" } else { "over" });
        for status in &answer.statuses {
            let limit = status.limit.as_ref().map(|limit| {
                let name = limit.name.as_deref().unwrap_or("-");
                format!(
                    "{}/{} {name}",
                    limit.requests_per_unit,
                    limit.unit.map_or("?", crate::rls::Unit::name)
                )
            });
            let code = if status.code == Code::Ok { "ok" } else { "over" };
            let _ = write!(said, " [{code} {} {}]", limit.unwrap_or_default(), status.remaining);
        }
        let headers: Vec<_> = answer.headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
        // When a window ends is nobody's to say here.
        let headers: Vec<_> = headers.iter().map(|header| header.split('=').next().unwrap()).collect();
        // What the limits say stands behind what repeats the request.
        let metadata = answer.metadata.map(|all| {
            let said = all.into_iter().skip_while(|(name, _)| name != "quotaModeEnabled");
            said.skip(1).collect::<Vec<_>>()
        });
        let _ = write!(said, " {headers:?} {:?}; ", metadata.filter(|all| !all.is_empty()));
    }
    let counted = stats.text(1, 0);
    for line in counted.lines().filter(|line| line.starts_with("ratelimit_service_rate_limit_")) {
        let _ = write!(said, "\n{line}");
    }
    said
}

/// A file, the lines that are taken away, settings, and what is asked.
struct Case {
    key: &'static str,
    file: &'static str,
    /// The lines without which it is another outcome.
    without: &'static [&'static str],
    asks: &'static [&'static str],
    /// What the whole outcome says.
    says: &'static str,
}

const CASES: &[Case] = &[
    Case {
        key: "domain",
        file: "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    unit: day\n    requests_per_unit: 1\n",
        without: &["domain: d"],
        asks: &["d: k=a", "d: k=a", "d: k=b"],
        says: "ok [ok 1/DAY - 0] [] None; over [over 1/DAY - 0] [] None; ok [ok 1/DAY - 0]",
    },
    Case {
        key: "key",
        file: "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    unit: day\n    requests_per_unit: 1\n",
        without: &["- key: k"],
        asks: &["d: k=a"],
        says: "ok [ok 1/DAY - 0]",
    },
    Case {
        key: "value",
        file: "domain: d\ndescriptors:\n- key: k\n  value: a\n  rate_limit:\n    unit: day\n    requests_per_unit: 1\n",
        without: &["  value: a"],
        asks: &["d: k=a", "d: k=b"],
        says: "ok [ok 1/DAY - 0] [] None; ok [ok  0]",
    },
    Case {
        key: "descriptors",
        file: "domain: d\ndescriptors:\n- key: k\n  descriptors:\n  - key: l\n    rate_limit: {unit: hour, requests_per_unit: 2}\n",
        without: &["  descriptors:", "  - key: l", "    rate_limit: {unit: hour, requests_per_unit: 2}"],
        asks: &["d: k=a,l=b", "d: k=a", "d: k=a,l=b,m=c"],
        says: "ok [ok 2/HOUR - 1] [] None; ok [ok  0] [] None; ok [ok  0]",
    },
    Case {
        key: "rate_limit",
        file: "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 0}\n",
        without: &["  rate_limit: {unit: day, requests_per_unit: 0}"],
        asks: &["d: k=a"],
        says: "over [over 0/DAY - 0]",
    },
    Case {
        key: "unit",
        file: "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    requests_per_unit: 5\n    unit: WeeK\n",
        without: &["    unit: WeeK"],
        asks: &["d: k=a"],
        says: "ok [ok 5/WEEK - 4]",
    },
    Case {
        key: "requests_per_unit",
        file: "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    unit: year\n    requests_per_unit: 1\n",
        without: &["    requests_per_unit: 1"],
        asks: &["d: k=a"],
        says: "ok [ok 1/YEAR - 0]",
    },
    Case {
        key: "unlimited",
        file: "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    unlimited: true\n",
        without: &["    unlimited: true"],
        asks: &["d: k=a"],
        says: "ok [ok  4294967295]",
    },
    Case {
        key: "shadow_mode",
        file: "domain: d\ndescriptors:\n- key: k\n  shadow_mode: true\n  rate_limit: {unit: day, requests_per_unit: 1}\n",
        without: &["  shadow_mode: true"],
        asks: &["d: k=a", "d: k=a"],
        says: "ok [ok 1/DAY - 0] [] None; ok [ok 1/DAY - 0]",
    },
    Case {
        key: "quota_mode",
        file: "domain: d\ndescriptors:\n- key: k\n  quota_mode: true\n  rate_limit: {unit: day, requests_per_unit: 1}\n- key: l\n  quota_mode: true\n  rate_limit: {unit: day, requests_per_unit: 2}\n",
        without: &["  quota_mode: true"],
        asks: &["d: k=a | l=a", "d: k=a | l=a", "d: k=a | l=a"],
        // Over only once every quota is.
        says: "ok [over 1/DAY - 0] [ok 2/DAY - 0] [] None; over [over 1/DAY - 0] [over 2/DAY - 0]",
    },
    Case {
        key: "name",
        file: "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    unit: day\n    requests_per_unit: 1\n    name: base\n- key: l\n  rate_limit: {unit: day, requests_per_unit: 9, replaces: [{name: base}]}\n",
        without: &["    name: base"],
        asks: &["d: k=a", "d: k=a | l=a"],
        says: "ok [ok 1/DAY base 0] [] None; ok [ok  0] [ok 9/DAY - 8]",
    },
    Case {
        key: "replaces",
        file: "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 1, name: base}\n- key: l\n  rate_limit:\n    unlimited: true\n    replaces:\n    - name: base\n",
        without: &["    replaces:", "    - name: base"],
        asks: &["d: k=a | l=a", "d: k=a"],
        says: "ok [ok  0] [ok  4294967295] [] None; ok [ok 1/DAY base 0]",
    },
    Case {
        key: "detailed_metric",
        file: "domain: d\ndescriptors:\n- key: k\n  detailed_metric: true\n  rate_limit: {unit: day, requests_per_unit: 1}\n",
        without: &["  detailed_metric: true"],
        asks: &["d: k=a"],
        says: r#"ratelimit_service_rate_limit_total_hits{domain="d",key1="k_a"} 1"#,
    },
    Case {
        key: "value_to_metric",
        file: "domain: d\ndescriptors:\n- key: k\n  value_to_metric: true\n  descriptors:\n  - key: l\n    rate_limit: {unit: day, requests_per_unit: 1}\n",
        without: &["  value_to_metric: true"],
        asks: &["d: k=a,l=b"],
        says: r#"ratelimit_service_rate_limit_total_hits{domain="d",key1="k_a",key2="l"} 1"#,
    },
    Case {
        key: "share_threshold",
        file: "domain: d\ndescriptors:\n- key: k\n  value: a*\n  share_threshold: true\n  rate_limit: {unit: day, requests_per_unit: 1}\n",
        without: &["  share_threshold: true"],
        asks: &["d: k=ab", "d: k=ac"],
        says: "ok [ok 1/DAY - 0] [] None; over [over 1/DAY - 0]",
    },
    Case {
        key: "metadata",
        file: "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 1}\n  metadata: {team: core, level: {n: 7}}\n",
        without: &["  metadata: {team: core, level: {n: 7}}"],
        asks: &["d: k=a", "d: k=a"],
        // Only of what was passed.
        says: r#"Some([("team", Text("core")), ("level", Map([("n", Number(7))]))]); over [over 1/DAY - 0] [] None"#,
    },
    Case {
        key: "algorithm",
        file: "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    unit: day\n    requests_per_unit: 10\n    burst: 2\n    algorithm: token_bucket\n",
        without: &["    algorithm: token_bucket"],
        asks: &["d: k=a"],
        says: "ok [ok 10/DAY - 1]",
    },
    Case {
        key: "burst",
        file: "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    unit: 30s\n    requests_per_unit: 10\n    algorithm: token_bucket\n    burst: 2\n",
        without: &["    burst: 2"],
        asks: &["d: k=a", "d: k=a", "d: k=a"],
        says: "over [over 10/? - 0]",
    },
];

#[tokio::test]
async fn every_key_of_a_file_makes_a_difference() {
    let settings = "envoy: {metrics: true, dynamic_metadata: true}";
    for Case { key, file, without, asks, says } in CASES {
        let whole = outcome(&[("d.yaml", file)], settings, &[], asks).await;
        assert!(whole.contains(says), "{key}: {whole}");
        let rest: String = file
            .lines()
            .filter(|line| !without.contains(line))
            .fold(String::new(), |all, line| all + line + "\n");
        assert!(rest.len() < file.len(), "{key}: nothing was taken away");
        let other = outcome(&[("d.yaml", &rest)], settings, &[], asks).await;
        assert_ne!(whole, other, "{key}");
    }
    for key in KEYS {
        assert!(CASES.iter().any(|case| case.key == key), "{key} has no case");
    }
}

#[test]
fn what_the_original_refuses_is_refused_whole_with_its_place() {
    let good = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 1}\n";
    let below = |text: &str| format!("domain: d\ndescriptors:\n- key: k\n{text}");
    for (file, says) in [
        (
            "descriptors: []".to_owned(),
            "d.yaml:1:1: domain: is missing: config file cannot have empty domain",
        ),
        ("domain: ''".to_owned(), "cannot have empty domain"),
        ("domain: d\nrate: 1".to_owned(), "d.yaml:2:1: rate: unknown field"),
        (below("  ratelimit: 1"), "descriptors[0].ratelimit: unknown field"),
        (
            below("  rate_limit: {unit: day, requests_per_unit: 1, per: x}"),
            "descriptors[0].rate_limit.per: unknown field",
        ),
        (below("  rate_limit: {requests_per_unit: 1}"), "descriptors[0].rate_limit.unit: is missing"),
        (
            below("  rate_limit: {unit: fortnight, requests_per_unit: 1}"),
            "invalid rate limit unit 'fortnight'",
        ),
        (
            below("  rate_limit: {unit: day, unlimited: true}"),
            "should not specify rate limit unit when unlimited",
        ),
        (
            below("  rate_limit: {unit: day, requests_per_unit: 1.5}"),
            "descriptors[0].rate_limit.requests_per_unit: must be a whole number",
        ),
        (below("  rate_limit: {unit: day, requests_per_unit: 4294967296}"), "must be a whole number"),
        (below("  rate_limit: {unit: day, replaces: [{name: ''}]}"), "replaces[0].name: is missing"),
        (
            below("  rate_limit: {unit: day, name: n, replaces: [{name: n}]}"),
            "should not contain name of same descriptor",
        ),
        (below("  rate_limit: {unit: day, requests_per_unit: 5, burst: 2}"), "fixed_window takes no burst"),
        (below("  value: 1.5"), "descriptors[0].value: must be text"),
        (below("  share_threshold: true"), "descriptors[0].share_threshold: needs a value with `*`"),
        (below("- key: k"), "duplicate descriptor composite key 'd.k'"),
        (below("  value: a\n- key: k_a"), "duplicate descriptor composite key 'd.k_a'"),
        (
            "domain: d\ndescriptors: [{value: a}]".to_owned(),
            "descriptors[0].key: is missing: descriptor has empty key",
        ),
        ("domain: d\ndescriptors: [a]".to_owned(), "descriptors[0]: must be a mapping"),
        ("domain: d\ndescriptors: {a: b}".to_owned(), "descriptors: must be a list"),
        ("domain: [".to_owned(), "not readable as YAML"),
    ] {
        let problems =
            checked(&[("d.yaml", &file)], "", &[]).err().unwrap_or_else(|| panic!("{file} passed"));
        assert!(problems.to_string().contains(says), "{file}: {problems}");
    }
    // One bad file spoils all of them, and every problem is told.
    let files = [("a.yaml", good), ("b.yaml", "domain: e\nx: 1"), ("c.yaml", "domain: f\ny: 1")];
    let problems = checked(&files, "", &[]).unwrap_err().to_string();
    assert!(problems.contains("b.yaml:2:1: x") && problems.contains("c.yaml:2:1: y"), "{problems}");
    let twice = checked(&[("a.yaml", good), ("b.yaml", good)], "", &[]).unwrap_err().to_string();
    assert!(twice.contains("b.yaml:1:9: domain: duplicate domain 'd'"), "{twice}");
}

#[test]
fn a_known_key_in_a_place_of_no_meaning_passes_with_a_warning() {
    let file = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 1, shadow_mode: true}\n";
    let config = checked(&[("d.yaml", file)], "", &[]).unwrap();
    assert_eq!(
        config.warnings,
        ["d.yaml: descriptors[0].rate_limit.shadow_mode: means nothing here, and is ignored"]
    );
    let file =
        "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, replaces: [{name: n, unit: day}]}\n";
    let config = checked(&[("d.yaml", file)], "", &[]).unwrap();
    assert!(config.warnings[0].contains("replaces[0].unit: means nothing here"), "{:?}", config.warnings);
    let empty = checked(&[], "", &[]).unwrap();
    assert!(empty.warnings[0].contains("holds no limit"), "{:?}", empty.warnings);
}

type Vars = &'static [(&'static str, &'static str)];
type Show = fn(&Config) -> String;

/// Each setting with others that it needs, what it is set to, and where the difference shows.
const SETTINGS: &[(Vars, &str, &str, Show)] = &[
    (&[("PORT", "1234")], "HOST", "127.0.0.1", |config| format!("{:?}", config.listen.http)),
    (&[], "PORT", "1234", |config| format!("{:?}", config.listen.http)),
    (&[], "GRPC_HOST", "::1", |config| format!("{:?}", config.listen.grpc)),
    (&[], "GRPC_PORT", "1234", |config| format!("{:?}", config.listen.grpc)),
    (&[("GRPC_PORT", "1")], "GRPC_UDS", "/run/t.sock", |config| format!("{:?}", config.listen.grpc)),
    (&[], "DEBUG_HOST", "127.0.0.1", |config| format!("{:?}", config.listen.admin)),
    (&[], "DEBUG_PORT", "1234", |config| format!("{:?}", config.listen.admin)),
    (&[("REDIS_URL", "redis:6379")], "REDIS_SOCKET_TYPE", "tcp", redis),
    (&[("REDIS_URL", "redis:6379"), ("REDIS_SOCKET_TYPE", "tcp")], "REDIS_TYPE", "cluster", redis),
    (&[("REDIS_SOCKET_TYPE", "tcp")], "REDIS_URL", "redis:6379", redis),
    (&[("REDIS_URL", "/run/redis.sock")], "REDIS_AUTH", "ann:p&ss", redis),
    (SENTINELS, "REDIS_SENTINEL_AUTH", "s3n", redis),
    (&[("REDIS_URL", "/run/redis.sock")], "REDIS_POOL_SIZE", "7", redis),
    (&[("REDIS_URL", "redis:6379"), ("REDIS_SOCKET_TYPE", "tcp")], "REDIS_TLS", "true", redis),
    (&[("REDIS_URL", "/run/redis.sock")], "REDIS_TLS_CACERT", "/ca.pem", redis),
    (&[("REDIS_URL", "/r"), ("REDIS_TLS_CLIENT_KEY", "/k")], "REDIS_TLS_CLIENT_CERT", "/c", redis),
    (&[("REDIS_URL", "/r"), ("REDIS_TLS_CLIENT_CERT", "/c")], "REDIS_TLS_CLIENT_KEY", "/k", redis),
    (&[("REDIS_URL", "/run/redis.sock")], "CACHE_KEY_PREFIX", "mine", redis),
    (&[], "NEAR_LIMIT_RATIO", "0.5", rls),
    (&[], "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true", rls),
    (&[], "SHADOW_MODE", "true", rls),
    (&[], "QUOTA_MODE", "1", rls),
    (&[], "RESPONSE_DYNAMIC_METADATA", "t", rls),
    (&[], "MERGE_DOMAIN_CONFIG", "true", rls),
    (&[], "LIMIT_RESPONSE_HEADERS_ENABLED", "true", rls),
    (&[("LIMIT_RESPONSE_HEADERS_ENABLED", "true")], "LIMIT_LIMIT_HEADER", "X-A", rls),
    (&[("LIMIT_RESPONSE_HEADERS_ENABLED", "true")], "LIMIT_REMAINING_HEADER", "X-B", rls),
    (&[("LIMIT_RESPONSE_HEADERS_ENABLED", "true")], "LIMIT_RESET_HEADER", "X-C", rls),
    (&[], "USE_PROMETHEUS", "true", rls),
    (&[], "LOG_LEVEL", "WARNING", |config| format!("{:?}", config.log)),
    (&[], "LOG_FORMAT", "json", |config| format!("{:?}", config.log)),
];

const SENTINELS: Vars =
    &[("REDIS_TYPE", "sentinel"), ("REDIS_URL", "main,a:1,b:2"), ("REDIS_SOCKET_TYPE", "tcp")];

#[test]
fn sentinels_and_clusters_are_found_by_the_originals_words() {
    let url = |vars: &[(&str, &str)]| match checked(&[], "", vars) {
        Ok(config) => Ok(config.redis.unwrap().url),
        Err(problems) => Err(problems.to_string()),
    };
    let auth = [("REDIS_AUTH", "ann:p,ss"), ("REDIS_SENTINEL_AUTH", "sen:t/nel")];
    for (vars, same) in [
        (
            [SENTINELS, &auth].concat(),
            "redis-sentinel://ann:p%2Css@a:1,b:2/main?sentinel_user=sen&sentinel_pass=t%2Fnel",
        ),
        ([SENTINELS, &[("REDIS_TLS", "true")]].concat(), "rediss-sentinel://a:1,b:2/main"),
        (
            vec![("REDIS_TYPE", "CLUSTER"), ("REDIS_URL", "a:1,b:2"), ("REDIS_AUTH", "pass")],
            "redis-cluster://:pass@a:1,b:2",
        ),
    ] {
        // Compared, and not printed: what is printed has no passwords.
        assert!(url(&vars) == Ok(RedisUrl::parse(same).unwrap()), "{same}: {:?}", url(&vars));
    }
    let nowhere = url(&[("REDIS_TYPE", "sentinel"), ("REDIS_URL", "main")]).unwrap_err();
    assert!(nowhere.contains("REDIS_URL"), "{nowhere}");
    let unknown = url(&[("REDIS_TYPE", "ring"), ("REDIS_URL", "a:1")]).unwrap_err();
    assert!(unknown.contains("\"RING\" is none of SINGLE, SENTINEL and CLUSTER"), "{unknown}");
}

fn redis(config: &Config) -> String {
    let redis = config.redis.as_ref();
    redis.map_or("nowhere".to_owned(), |redis| {
        let of_sentinels = match &redis.url.endpoint {
            Endpoint::Sentinel(sentinels) => sentinels.password.as_ref(),
            _ => None,
        };
        let secrets = [redis.url.password.as_ref(), of_sentinels];
        let secrets = secrets.map(|secret| secret.map(|secret| secret.reveal().to_owned()));
        format!("{redis:?} {secrets:?}")
    })
}

fn rls(config: &Config) -> String {
    format!("{:?}", config.facing.rls)
}

#[test]
fn every_setting_of_the_environment_makes_a_difference() {
    let file = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 1}\n";
    let other = file.replace("key: k", "key: l");
    // Several files of one domain are refused unless they may be merged.
    let files = |name: &str| {
        if name == "MERGE_DOMAIN_CONFIG" {
            vec![("a", file), ("b", other.as_str())]
        } else {
            vec![("a", file)]
        }
    };
    let shown = |name: &str, vars: &[(&str, &str)], show: fn(&Config) -> String| {
        let checked = checked(&files(name), "", vars);
        checked.as_ref().map_or_else(|problems| format!("refused: {problems}"), show)
    };
    for (others, name, value, show) in SETTINGS {
        let with = shown(name, &[others, &[(*name, *value)][..]].concat(), *show);
        let without = shown(name, others, *show);
        assert_ne!(with, without, "{name}");
        let empty = shown(name, &[others, &[(*name, "")][..]].concat(), *show);
        assert_eq!(empty, without, "{name}: an empty setting is none");
    }
    let tls =
        ["GRPC_SERVER_USE_TLS", "GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY", "GRPC_CLIENT_TLS_CACERT"];
    for name in UNDERSTOOD {
        let is_tested = tls.contains(name) || SETTINGS.iter().any(|(_, tested, ..)| tested == name);
        assert!(is_tested, "{name} has no test");
    }
}

#[test]
fn tls_of_the_environment_is_that_of_the_grpc_door() {
    let certificates = testkit::Certificates::new();
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (cert, key, authority) = (
        text(&certificates.server.certificate.path),
        text(&certificates.server.key.path),
        text(&certificates.authority.path),
    );
    let all = [
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", cert.as_str()),
        ("GRPC_SERVER_TLS_KEY", key.as_str()),
        ("GRPC_CLIENT_TLS_CACERT", authority.as_str()),
    ];
    let of = |vars: &[(&str, &str)]| match checked(&[], "", vars) {
        Ok(config) => format!("{:?}", config.tls.grpc),
        Err(problems) => format!("refused: {problems}"),
    };
    let whole = of(&all);
    assert!(whole.contains("clients: Some"), "{whole}");
    for name in all.map(|(name, _)| name) {
        let rest: Vec<_> = all.iter().copied().filter(|(other, _)| *other != name).collect();
        assert_ne!(of(&rest), whole, "{name}");
    }
}

#[test]
fn settings_that_mean_nothing_here_are_named() {
    let vars =
        [("REDIS_PERSECOND_URL", "x"), ("STATSD_HOST", "x"), ("REDIS_TIMEOUT", "1s"), ("HOME", "/root")];
    let warnings = checked(&[], "", &vars).unwrap().warnings.join("\n");
    for name in ["REDIS_PERSECOND_URL", "STATSD_HOST", "REDIS_TIMEOUT"] {
        assert!(warnings.contains(&format!("{name} is not understood: ")), "{name}: {warnings}");
    }
    assert!(!warnings.contains("HOME"), "{warnings}");
    for (name, value, says) in [
        ("GRPC_CLIENT_TLS_SAN", "x", "GRPC_CLIENT_TLS_SAN: is not understood"),
        ("SHADOW_MODE", "maybe", "SHADOW_MODE: \"maybe\" is neither true nor false"),
        ("PORT", "http", "PORT: listen.http: \"0.0.0.0:http\" is not an address"),
        ("NEAR_LIMIT_RATIO", "2", "NEAR_LIMIT_RATIO: \"2\" is no number from 0 to 1"),
        ("REDIS_POOL_SIZE", "many", "REDIS_POOL_SIZE: redis.pool_size: must be a whole number"),
    ] {
        let problems = checked(&[], "", &[(name, value)]).unwrap_err().to_string();
        assert!(problems.contains(says), "{name}: {problems}");
    }
}

/// Every setting of the original's, by `settings.go` of January 2026 and what its README adds.
const SETTINGS_OF_THE_ORIGINAL: &str = "\
    BACKEND_TYPE CACHE_KEY_PREFIX CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS CONFIG_GRPC_XDS_CLIENT_TLS_CERT \
    CONFIG_GRPC_XDS_CLIENT_TLS_KEY CONFIG_GRPC_XDS_NODE_ID CONFIG_GRPC_XDS_NODE_METADATA \
    CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL CONFIG_GRPC_XDS_SERVER_TLS_CACERT CONFIG_GRPC_XDS_SERVER_TLS_SAN \
    CONFIG_GRPC_XDS_SERVER_URL CONFIG_GRPC_XDS_SERVER_USE_TLS CONFIG_TYPE DEBUG_HOST DEBUG_PORT DISABLE_STATS \
    DOG_STATSD_MOGRIFIERS_FOO_PATTERN EXPIRATION_JITTER_MAX_SECONDS EXTRA_TAGS FORCE_START_WITHOUT_INITIAL_CONFIG \
    GRPC_CLIENT_TLS_CACERT GRPC_CLIENT_TLS_SAN GRPC_HOST GRPC_MAX_CONNECTION_AGE GRPC_MAX_CONNECTION_AGE_GRACE \
    GRPC_PORT GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY GRPC_SERVER_USE_TLS GRPC_UDS \
    HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED HOST LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER \
    LIMIT_RESPONSE_HEADERS_ENABLED LOCAL_CACHE_SIZE_IN_BYTES LOG_FORMAT LOG_LEVEL MEMCACHE_HOST_PORT \
    MEMCACHE_MAX_IDLE_CONNS MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_TLS MEMCACHE_TLS_CACERT \
    MEMCACHE_TLS_CLIENT_CERT MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION MERGE_DOMAIN_CONFIG \
    NEAR_LIMIT_RATIO PORT PROMETHEUS_ADDR PROMETHEUS_MAPPER_YAML PROMETHEUS_PATH \
    PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS QUOTA_MODE REDIS_AUTH REDIS_CLUSTER_PIPELINE_PARALLELISM \
    REDIS_HEALTH_CHECK_ACTIVE_CONNECTION REDIS_PERSECOND REDIS_PERSECOND_AUTH REDIS_PERSECOND_PIPELINE_LIMIT \
    REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR REDIS_PERSECOND_POOL_SIZE \
    REDIS_PERSECOND_SENTINEL_AUTH REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_TIMEOUT REDIS_PERSECOND_TLS \
    REDIS_PERSECOND_TYPE REDIS_PERSECOND_URL REDIS_PIPELINE_LIMIT REDIS_PIPELINE_WINDOW \
    REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_POOL_SIZE REDIS_SENTINEL_AUTH REDIS_SOCKET_TYPE \
    REDIS_STARTUP_INITIAL_INTERVAL REDIS_STARTUP_MAX_ELAPSED_TIME REDIS_STARTUP_MAX_INTERVAL REDIS_TIMEOUT REDIS_TLS \
    REDIS_TLS_CACERT REDIS_TLS_CLIENT_CERT REDIS_TLS_CLIENT_KEY REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_TYPE \
    REDIS_URL RESPONSE_DYNAMIC_METADATA RUNTIME_APPDIRECTORY RUNTIME_IGNOREDOTFILES RUNTIME_ROOT \
    RUNTIME_SUBDIRECTORY RUNTIME_WATCH_ROOT SHADOW_MODE STATSD_HOST STATSD_PORT STATS_FLUSH_INTERVAL \
    STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT TRACING_ENABLED TRACING_EXPORTER_PROTOCOL TRACING_SAMPLING_RATE \
    TRACING_SERVICE_INSTANCE_ID TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE USE_DOG_STATSD \
    USE_DOG_STATSD_MOGRIFIERS USE_PROMETHEUS USE_STATSD XDS_CLIENT_BACKOFF_INITIAL_INTERVAL \
    XDS_CLIENT_BACKOFF_JITTER XDS_CLIENT_BACKOFF_MAX_INTERVAL XDS_CLIENT_BACKOFF_RANDOM_FACTOR \
    XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES";

#[test]
fn no_setting_of_the_original_is_passed_over_in_silence() {
    for name in SETTINGS_OF_THE_ORIGINAL.split(' ').filter(|name| !UNDERSTOOD.contains(name)) {
        let told = match checked(&[], "", &[(name, "x")]) {
            Ok(config) => config.warnings.join("\n"),
            Err(problems) => problems.to_string(),
        };
        let times = told.matches(&format!("{name} is not")).count()
            + told.matches(&format!("{name}: is not")).count();
        assert_eq!(times, 1, "{name}: {told}");
    }
    for name in UNDERSTOOD {
        assert!(SETTINGS_OF_THE_ORIGINAL.split(' ').any(|known| known == *name), "{name} is nobody's");
    }
}

#[tokio::test]
async fn a_value_is_met_by_what_was_written() {
    let file = "domain: d\ndescriptors:\n- key: k\n  value: +49\n  shadow_mode: yes\n  rate_limit: {unit: day, requests_per_unit: 0}\n- {key: k, value: 0x10, rate_limit: {unit: day, requests_per_unit: 1}}\n";
    let said = outcome(&[("d.yaml", file)], "", &[], &["d: k=+49", "d: k=49", "d: k=0x10", "d: k=16"]).await;
    let says = "ok [ok 0/DAY - 0] [] None; ok [ok  0] [] None; ok [ok 1/DAY - 0] [] None; ok [ok  0]";
    assert!(said.starts_with(says), "{said}");
}

#[tokio::test]
async fn a_refused_cost_uses_up_what_is_left_unless_it_is_to_be_ignored() {
    let file = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 10}\n";
    let asks = ["d: k=a +8", "d: k=a +5", "d: k=a +1"];
    let counted = outcome(&[("d.yaml", file)], "", &[], &asks).await;
    assert!(counted.contains("over [over 10/DAY - 0] [] None; over [over 10/DAY - 0]"), "{counted}");
    let ignored = outcome(&[("d.yaml", file)], "envoy: {refused_hits: ignored}", &[], &asks).await;
    assert!(ignored.contains("over [over 10/DAY - 2] [] None; ok [ok 10/DAY - 1]"), "{ignored}");
}

#[tokio::test]
async fn an_unknown_domain_passes_and_settings_for_all_limits_hold() {
    let file = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 0}\n";
    let files = [("d.yaml", file)];
    assert!(outcome(&files, "", &[], &["other: k=a"]).await.starts_with("ok [ok  0]"));
    assert!(outcome(&files, "envoy: {shadow_mode: true}", &[], &["d: k=a"]).await.starts_with("ok [over"));
    let together = outcome(
        &[("d.yaml", "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 1}\n- key: l\n  rate_limit: {unit: day, requests_per_unit: 5}\n")],
        "envoy: {take: together}",
        &[],
        &["d: k=a | l=a", "d: k=a | l=a", "d: l=a"],
    )
    .await;
    let says = "over [over 1/DAY - 0] [ok 5/DAY - 4] [] None; ok [ok 5/DAY - 3]";
    assert!(together.contains(says), "{together}");
    // What admits nothing refuses the whole; what watches is not charged for it; two of one limit are one.
    let file = "domain: d\ndescriptors:\n- key: none\n  rate_limit: {unit: day, requests_per_unit: 0}\n- key: k\n  value: a*\n  share_threshold: true\n  rate_limit: {unit: day, requests_per_unit: 5}\n- key: w\n  shadow_mode: true\n  rate_limit: {unit: day, requests_per_unit: 5}\n";
    let asks = ["d: none=x | k=ab | w=x", "d: k=ab | k=ac | w=x +2", "d: k=ab | k=ac | w=x +2"];
    let together = outcome(&[("d.yaml", file)], "envoy: {take: together}", &[], &asks).await;
    let says = "over [over 0/DAY - 0] [ok 5/DAY - 5] [ok 5/DAY - 5] [] None; \
                ok [ok 5/DAY - 1] [ok 5/DAY - 1] [ok 5/DAY - 3] [] None; \
                over [over 5/DAY - 1] [over 5/DAY - 1] [ok 5/DAY - 3] [] None; ";
    assert_eq!(together.lines().next().unwrap(), says);
}

mod original;

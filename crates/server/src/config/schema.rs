//! The JSON Schema of the file, for editors.
//!
//! Written beside the code that reads the file, and held to it: a test compares every field the reader
//! knows with every field that stands here.

use serde_json::{Map, Value, json};

use super::identity::FORWARDING;

/// The schema, as it ships.
pub(crate) fn text() -> String {
    let mut text = serde_json::to_string_pretty(&schema()).unwrap_or_default();
    text.push('\n');
    text
}

fn schema() -> Value {
    let mut root = section(&[
        ("rules", list(&rule()), "The rules, in the order they are met."),
        ("plans", named(&limits(&[])), "Limits by name, of which a rule picks one by an attribute."),
        ("allow", conditions(&[]), "Calls that pass whatever the rules say."),
        ("deny", conditions(&[]), "Calls that are refused whatever the rules say; wins over allow."),
        ("tests", list(&trial()), "What the rules must do; `tollgate check` runs them."),
        (
            "breakers",
            list(&breaker()),
            "Circuit breakers, for calls to others: the first whose name or match an id has.",
        ),
        ("identity", identity(), "Who is asking, for the forward-auth door."),
        ("answer", answer(), "What callers are told over HTTP besides the verdict itself."),
        ("envoy", envoy(), "How Envoy's rate-limit service answers, on the gRPC door."),
        ("redis", redis(), "Where state is shared. Without a url it lives in this process' memory."),
        ("memory", memory(), "The bound on what this process remembers."),
        (
            "deny_cache",
            deny_cache(),
            "What this process remembers of the refusals of Redis, for a second at most.",
        ),
        ("limits", bounds(), "Bounds on what callers may do."),
        ("listen", listen(), "Where the doors are."),
        ("tls", tls(), "Certificates of the doors."),
        ("log", log(), "What is logged, and how."),
        ("drain", drain(), "How the server ends."),
    ]);
    if let Value::Object(root) = &mut root {
        root.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        root.insert("title".to_owned(), json!("tollgate.yaml"));
        root.insert("required".to_owned(), json!(["rules"]));
    }
    // An empty list is a word; nothing at all is not.
    root["type"] = json!("object");
    root["properties"]["rules"]["type"] = json!("array");
    root
}

fn rule() -> Value {
    let mut rule = limits(&[
        ("name", text_of("^[A-Za-z0-9._-]{1,64}$"), "Its name in verdicts, metrics and asks."),
        ("when", when(), "When it applies by itself: every condition must hold."),
        (
            "key",
            text_value(),
            "What is counted together: \"{address}\", \"{token|address}\", \"{claim.sub}:{path.id}\".",
        ),
        ("plan", plan(), "Pick the limits by an attribute instead of writing them here."),
        ("cost", cost(), "What one ask costs."),
        ("allow", conditions(&[("key", texts(), "Subjects by their keys.")]), "Whom it lets through."),
        (
            "deny",
            conditions(&[("key", texts(), "Subjects by their keys.")]),
            "Whom it refuses; wins over allow.",
        ),
        ("overrides", list(&overrides()), "Other limits for single keys."),
        ("candidate", limits(&[]), "Limits to try out: they count and report, and refuse nobody."),
        ("lease", lease(), "Take tokens ahead for hot keys, so that most calls need no round trip."),
        ("on_outage", words(&["allow", "deny", "local"]), "The answer while Redis is away."),
        ("mode", words(&["enforce", "shadow"]), "shadow counts and reports, and never refuses."),
    ]);
    rule["required"] = json!(["name"]);
    rule
}

fn limits(others: &[(&str, Value, &str)]) -> Value {
    let one: [(&str, Value, &str); 4] = [
        ("limit", rate(), "How many per how long: 100/s, 5000/h, 10/15min, 1/day, 1000/month."),
        ("burst", whole(1, u64::from(u32::MAX)), "How many may come at once (token_bucket)."),
        (
            "algorithm",
            words(&["token_bucket", "sliding_log", "sliding_window", "fixed_window"]),
            "How it is counted.",
        ),
        (
            "time_zone",
            text_value(),
            "Calendar windows for fixed_window with N/day, N/week or N/month: an IANA name.",
        ),
    ];
    let several = list(&section(&one));
    let mut fields: Vec<(&str, Value, &str)> = one.to_vec();
    fields.push(("limits", several, "Several limits, all spent together or none."));
    fields.extend(others.iter().cloned());
    section(&fields)
}

fn plan() -> Value {
    let mut plan = section(&[
        ("by", text_value(), "The attribute that names the plan, such as claim.plan."),
        ("default", text_value(), "The plan of everyone else."),
        ("of", texts(), "The plans it may be; all of them if there is none."),
    ]);
    plan["required"] = json!(["by", "default"]);
    plan
}

fn cost() -> Value {
    let number = || whole(1, u64::from(u32::MAX));
    let by = section(&[
        ("by", text_value(), "An attribute, with what its values cost."),
        ("values", named(&number()), "What some values cost."),
        ("from", text_value(), "An attribute that is the cost."),
        ("max", number(), "The most of it that is believed."),
        ("default", number(), "What it costs otherwise (1)."),
    ]);
    json!({ "anyOf": [number(), by] })
}

fn lease() -> Value {
    let mut within = section(&[
        ("max", whole(2, u64::from(u32::MAX)), "The most tokens taken ahead at once."),
        ("for", span(), "How long they may be spent: 1ms to 1s; a 50th of the window for sliding_log."),
    ]);
    within["required"] = json!(["max", "for"]);
    json!({ "anyOf": [words(&["auto"]), within] })
}

fn overrides() -> Value {
    let mut one = limits(&[
        ("key", text_value(), "Whose limit it is."),
        ("blocked", truth(), "Refused, whatever is left."),
        ("unlimited", truth(), "No limit at all."),
    ]);
    one["required"] = json!(["key"]);
    one
}

fn when() -> Value {
    conditions(&[("not", conditions(&[]), "It does not apply where all of these hold.")])
}

/// Attributes, each with the values of which it must be one, and what else may stand beside them.
fn conditions(others: &[(&str, Value, &str)]) -> Value {
    let known = [
        ("method", "GET, POST"),
        ("path", "/login, /users/{user}, /static/*.png, /api/**"),
        ("host", "api.example.com, *.example.com"),
        ("address", "10.0.0.0/8, 2001:db8::/32, 203.0.113.9"),
        ("token", "\"*\": whoever shows one"),
    ];
    let mut conditions = Map::new();
    for (name, example) in known {
        let mut value = texts();
        value["description"] = json!(example);
        conditions.insert(name.to_owned(), value);
    }
    for (name, value, help) in others {
        conditions.insert((*name).to_owned(), described(value, help));
    }
    json!({
        "type": ["object", "null"],
        "properties": conditions,
        "patternProperties": { "^(header|query|cookie|claim|descriptor)\\.[!-~]+$": texts(), "^(?!(key|not)$)[A-Za-z0-9_:/$-]+$": texts() },
        "additionalProperties": false,
    })
}

fn trial() -> Value {
    let mut ask = conditions(&[
        ("rule", text_value(), "A rule by name."),
        ("key", text_value(), "Whose limit, for a rule by name."),
        ("cost", whole(1, u64::from(u32::MAX)), "How much is asked for."),
    ]);
    ask["description"] = json!("What is known of the call.");
    let mut trial = section(&[
        ("name", text_value(), "What it shows."),
        ("ask", ask, "What is known of the call."),
        ("times", whole(1, 100_000), "Asked so often in a row; what is said is said of the last."),
        ("after", span(), "How much time passes between asks."),
        ("rules", texts(), "The rules that must apply, and no others."),
        ("verdict", words(&["allowed", "refused"]), "What must come of it."),
        ("remaining", whole(0, u64::from(u32::MAX)), "What must be left."),
        ("retry_after", span(), "What must be waited."),
        ("subject", text_value(), "What kind of subject it must be counted for: address, token, claim, …"),
        ("would_refuse", texts(), "The shadow rules and candidates that must have refused."),
    ]);
    trial["required"] = json!(["ask"]);
    trial
}

fn breaker() -> Value {
    section(&[
        ("name", text_value(), "Its id, and its name in metrics; with a match, its name alone."),
        ("match", text_value(), "The ids it is for: payments-*, or \"*\" for all that are left."),
        (
            "failures",
            or_off(&whole(1, 1_000_000)),
            "So many in a row on one instance are a reason to trip (5).",
        ),
        ("failure_ratio", share(), "Such a share of calls failed in the window is one (50%)."),
        ("slow_ratio", share(), "Such a share of slow calls is one (off)."),
        ("slow_after", span(), "A call that succeeds after that long is slow (5s)."),
        (
            "window",
            json!({ "type": ["string", "null"], "pattern": "^[0-9]+ ?(us|ms|s|m|min|h|d|calls)$" }),
            "What ratios are taken over: 10s, or 100 calls (10s).",
        ),
        ("minimum_calls", whole(1, 1_000_000), "A ratio of fewer says nothing (20)."),
        ("quorum", share(), "Such a share of the instances must be in trouble (60%)."),
        ("open_for", span(), "How long the first trip opens it for (5s)."),
        ("open_max", span(), "Each that follows doubles that, up to this (5min)."),
        ("jitter", share(), "Up to so much is added by chance (10%)."),
        ("decay_every", span(), "One trip is forgotten for each of these spent closed (60s)."),
        ("hint_max", or_off(&span()), "A Retry-After opens it for as long as it says, up to this (off)."),
        ("probes", whole(1, 100), "Probes at a time, in the whole fleet (3)."),
        ("probe_for", span(), "How long a probe may take (10s)."),
        ("successes_to_close", whole(1, 1_000_000), "So many successful probes end half-open (5)."),
        (
            "ramp",
            json!({ "anyOf": [words(&["off"]), list(&share())] }),
            "The shares of calls let through before closed ([10%, 25%, 50%, 100%]).",
        ),
        ("ramp_step", span(), "How long each of them lasts (5s)."),
        ("report_within", span(), "How long the outcome of a call is waited for (60s)."),
    ])
}

fn share() -> Value {
    json!({ "type": ["string", "null"], "pattern": "^([0-9]{1,3}(\\.[0-9])?%|off)$" })
}

fn or_off(value: &Value) -> Value {
    json!({ "anyOf": [words(&["off"]), value] })
}

fn redis() -> Value {
    section(&[
        (
            "url",
            text_value(),
            "redis://user:password@host:6379/0, rediss:// for TLS, unix:///path for a socket, \
             redis-sentinel://a:26379,b:26379/service, redis-cluster://a:6379,b:6379.",
        ),
        ("database", whole(0, 1 << 20), "The database's number."),
        ("pool_size", whole(1, 1024), "Multiplexed connections at most."),
        ("min_idle_conns", whole(0, 1024), "How many of them are dialled at start."),
        ("dial_timeout", span(), "How long a dial may take."),
        ("read_timeout", span(), "A connection with an answer that late is given up."),
        ("write_timeout", span(), "A connection with a write that slow is given up."),
        ("max_retries", whole(0, 1000), "Dials in quick succession; a check is never sent twice."),
        ("key_prefix", text_value(), "What every key begins with."),
        ("default_ttl", span(), "Keys live at least that long."),
        ("layout", words(&["packed", "hash"]), "How buckets are written."),
        (
            "functions",
            truth(),
            "Call functions of a library, which is cheaper; false keeps to scripts (true).",
        ),
        ("partitions", whole(1, 16_384), "Fold subjects into so many hash tags (none: each is its own)."),
        ("batch", truth(), "Send checks that arrive while others are in flight as one call (true)."),
        ("batch_max", whole(1, 128), "How many checks travel together at most."),
        ("batch_wait", span(), "How long a check waits for those in flight, to travel with others."),
        ("client_time", truth(), "true where scripts may not call TIME."),
        ("tls_ca", text_value(), "The authority to trust, as a PEM file."),
        ("tls_client_cert", text_value(), "Our certificate, as a PEM file."),
        ("tls_client_key", text_value(), "Its key, as a PEM file."),
        ("deadline", span(), "How long a check waits for Redis before on_outage answers."),
        ("on_outage", words(&["allow", "deny", "local"]), "For rules that name none, and for inline limits."),
        ("fail_open", truth(), "true is another way to say on_outage: allow."),
        ("instances", whole(1, u64::from(u32::MAX)), "A local share is computed for at least so many."),
    ])
}

fn deny_cache() -> Value {
    section(&[
        ("enabled", truth(), "Whether it does (true)."),
        ("max_entries", whole(64, 1 << 24), "The most refusals it remembers (65536), about 100 bytes each."),
    ])
}

fn memory() -> Value {
    section(&[("max_keys", whole(1, 1 << 40), "Newcomers beyond it share one overflow bucket.")])
}

fn bounds() -> Value {
    section(&[
        ("sliding_log_max", whole(1, 1_000_000), "The longest sliding_log."),
        ("connections", whole(1, 1_000_000), "Connections per worker."),
        ("idle_timeout", span(), "A connection that finishes no request for that long is closed."),
        ("resp_idle_timeout", span(), "How long a RESP connection may go between two commands."),
        ("handshake_timeout", span(), "How long a PROXY header and a TLS handshake may take together."),
    ])
}

fn listen() -> Value {
    let door = |default: &str| (text_value(), default.to_owned());
    let doors = [
        ("http", door("127.0.0.1:8080")),
        ("admin", door("127.0.0.1:9180")),
        ("grpc", door("127.0.0.1:8081")),
        ("resp", door("127.0.0.1:6380")),
    ];
    let doors: Vec<(&str, Value, String)> = doors
        .into_iter()
        .map(|(name, (value, default))| {
            (name, value, format!("ADDRESS:PORT, unix:/path/to.sock, or off ({default})."))
        })
        .collect();
    let doors: Vec<(&str, Value, &str)> =
        doors.iter().map(|(name, value, help)| (*name, value.clone(), help.as_str())).collect();
    let mut listen = section(&doors);
    let help = "Load balancers that send a PROXY header before HTTP: networks, or unix.";
    listen["properties"]["proxy_protocol"] = described(&list(&text_value()), help);
    listen
}

fn identity() -> Value {
    let jwt = section(&[
        (
            "algorithm",
            words(&[
                "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
                "ES384", "EdDSA",
            ]),
            "The one that tokens are signed with; no other is accepted.",
        ),
        ("public_key_file", text_value(), "The issuer's public key, as a PEM file."),
        ("jwks_file", text_value(), "The issuer's keys, as a JSON Web Key Set."),
        ("secret_file", text_value(), "The secret shared with the issuer, for HS256, HS384 and HS512."),
        ("issuer", text_value(), "What iss must be."),
        ("audience", text_value(), "What aud must be, or have among others."),
        ("leeway", span(), "How far clocks may be apart (30s)."),
        ("from", text_value(), "Where the token stands: bearer, or header.NAME."),
    ]);
    section(&[
        ("trusted_proxies", texts(), "Whose forwarding header is believed: networks, or unix."),
        ("forwarding", words(&FORWARDING), "The header they write who called them in."),
        ("tokens", texts(), "Where a token is looked for: bearer, or header.NAME."),
        ("ipv4_prefix", whole(8, 32), "So many bits of a v4 address tell clients apart (32)."),
        ("ipv6_prefix", whole(16, 128), "So many bits of a v6 address tell clients apart (64)."),
        ("jwt", jwt, "How tokens are verified, so that their claims become attributes."),
    ])
}

fn answer() -> Value {
    section(&[
        ("ratelimit", truth(), "RateLimit-Policy and RateLimit (true)."),
        (
            "x_ratelimit",
            words(&["none", "seconds", "unix_time"]),
            "X-RateLimit-Limit, -Remaining and -Reset (none).",
        ),
        ("retry_jitter", span(), "Spread those who are refused together over so much more time (0s)."),
    ])
}

fn tls() -> Value {
    let door = || {
        section(&[
            ("cert", text_value(), "The certificate, and those between it and its authority, as a PEM file."),
            ("key", text_value(), "Its private key, as a PEM file."),
            ("client_ca", text_value(), "Whose certificates clients may show, as a PEM file."),
            ("client_certs", words(&["required", "optional"]), "Whether they must (required)."),
        ])
    };
    section(&[
        ("http", door(), "Of the HTTP door."),
        ("grpc", door(), "Of the gRPC door."),
        ("resp", door(), "Of the RESP door."),
        ("admin", door(), "Of the admin door."),
    ])
}

fn envoy() -> Value {
    let truth = || json!({ "type": "boolean" });
    section(&[
        (
            "take",
            words(&["each", "together"]),
            "Whether descriptors are charged alone (each), or all or none.",
        ),
        ("on_outage", words(&["answer", "error"]), "While Redis is away: on_outage's answer, or an error."),
        (
            "refused_hits",
            words(&["counted", "ignored"]),
            "Whether a refused cost uses up what is left (counted), or leaves it.",
        ),
        ("response_headers", truth(), "Whether clients are told their limit in headers."),
        ("limit_header", text_value(), "The limit's header (RateLimit-Limit)."),
        ("remaining_header", text_value(), "The header of what is left (RateLimit-Remaining)."),
        ("reset_header", text_value(), "The header of the seconds until then (RateLimit-Reset)."),
        ("shadow_mode", truth(), "Whether nobody is refused."),
        ("quota_mode", truth(), "Whether every limit is a quota."),
        (
            "dynamic_metadata",
            truth(),
            "Whether the request, its quotas and the metadata of passed limits are told.",
        ),
        ("merge_domains", truth(), "Whether several files of --envoy-config may have limits of one domain."),
        ("metrics", truth(), "Whether limits are also counted under envoyproxy/ratelimit's names."),
        ("near_limit_permille", whole(0, 1000), "The part of a limit above which hits are near it (800)."),
    ])
}

fn log() -> Value {
    section(&[
        ("level", text_value(), "off, error, warn, info, debug or trace."),
        ("format", words(&["text", "json"]), "How a line looks."),
    ])
}

fn drain() -> Value {
    section(&[
        ("delay", span(), "Between failing readiness and refusing connections."),
        ("timeout", span(), "How long requests under way may take to finish."),
    ])
}

/// A mapping with these fields and no others.
fn section(fields: &[(&str, Value, &str)]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|(name, value, help)| ((*name).to_owned(), described(value, help))).collect();
    json!({ "type": ["object", "null"], "properties": properties, "additionalProperties": false })
}

/// A mapping whose names are the author's own.
fn named(value: &Value) -> Value {
    json!({ "type": ["object", "null"], "additionalProperties": value })
}

fn described(value: &Value, help: &str) -> Value {
    let mut value = value.clone();
    value["description"] = json!(help);
    value
}

fn list(item: &Value) -> Value {
    json!({ "type": ["array", "null"], "items": item })
}

fn text_value() -> Value {
    json!({ "type": ["string", "null"] })
}

fn text_of(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": pattern })
}

fn texts() -> Value {
    let one = json!({ "type": ["string", "integer", "boolean"] });
    json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
}

/// One of these, or nothing.
fn words(words: &[&str]) -> Value {
    let words = words.iter().map(|word| json!(word)).chain([Value::Null]);
    json!({ "enum": words.collect::<Vec<_>>() })
}

fn truth() -> Value {
    json!({ "type": ["boolean", "null"] })
}

fn whole(least: u64, most: u64) -> Value {
    json!({ "type": ["integer", "null"], "minimum": least, "maximum": most })
}

fn span() -> Value {
    json!({ "type": ["string", "null"], "pattern": "^[0-9]+ ?(us|ms|s|m|min|h|d)$" })
}

fn rate() -> Value {
    const UNITS: &str = "us|ms|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?";
    text_of(&format!("^ *[0-9]+ */ *([0-9]* *({UNITS})|1? *month) *$"))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::config::section::known_fields;
    use crate::config::{Config, Overrides};

    /// Opens every section there is, and is wrong in many ways.
    const EVERYTHING: &str = "
rules:
  - {name: b, limits: [{}]}
  - {name: a, when: {not: {}}, limits: [{}], lease: {}, plan: {}, cost: {}, allow: {}, deny: {}, overrides: [{limits: [{}]}], candidate: {limits: [{}]}}
plans: {free: {limits: [{}]}}
tests: [{ask: {}}]
breakers: [{}]
allow: {}
deny: {}
";

    /// The fields of every mapping of the schema, by its path.
    fn fields(path: &str, schema: &Value, found: &mut BTreeMap<String, BTreeSet<String>>) {
        for choice in schema["anyOf"].as_array().into_iter().flatten() {
            fields(path, choice, found);
        }
        if let Some(items) = schema.get("items") {
            fields(&format!("{path}[]"), items, found);
        }
        if let Some(named) = schema.get("additionalProperties").filter(|named| named.is_object()) {
            fields(&format!("{path}.*"), named, found);
        }
        if let Some(properties) = schema["properties"].as_object() {
            let is_open = schema.get("patternProperties").is_some();
            let attributes = ["method", "path", "host", "address", "token"];
            let names = properties.keys().filter(|name| !is_open || !attributes.contains(&name.as_str()));
            found.entry(path.to_owned()).or_default().extend(names.cloned());
            for (name, property) in properties {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                fields(&below, property, found);
            }
        }
    }

    #[test]
    fn the_schema_has_the_fields_that_are_read_and_no_others() {
        let read = known_fields(|| {
            let _ = Config::parse("everything.yaml", EVERYTHING, Overrides::default());
        });
        let mut found = BTreeMap::new();
        fields("", &schema(), &mut found);
        // A mapping whose names are the author's own knows none.
        for (path, names) in read.iter().filter(|(_, names)| !names.is_empty()) {
            assert_eq!(found.get(path), Some(names), "{path}");
        }
        let unread: Vec<_> =
            found.iter().filter(|(path, names)| !names.is_empty() && !read.contains_key(*path)).collect();
        assert!(unread.is_empty(), "{unread:?}");
    }

    #[test]
    fn the_schema_that_ships_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tollgate.schema.json");
        if std::env::var_os("TOLLGATE_WRITE").is_some() {
            std::fs::write(path, text()).unwrap();
        }
        let shipped = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            shipped,
            text(),
            "write it anew with TOLLGATE_WRITE=1 cargo test -p tollgate-server schema"
        );
    }
}

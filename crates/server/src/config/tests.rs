//! What the default file promises is true.

use std::fmt::Write as _;

use super::*;

/// The file as a user would have it who takes every default by its word.
fn uncommented() -> String {
    let settings = DEFAULT.find("\nredis:").expect("the settings follow the policy");
    let (rules, sections) = DEFAULT.split_at(settings);
    rules.to_owned() + &sections.replace("\n  # ", "\n  ")
}

#[test]
fn the_default_file_is_accepted_and_its_rules_are_useful() {
    let config = Config::parse("default.yaml", DEFAULT, Overrides::default()).unwrap();
    let names: Vec<_> = config.policy.rules.iter().map(tollgate::Rule::name).collect();
    assert_eq!(names, ["login", "api", "search", "signup", "email", "monthly-quota"]);
    assert!(config.redis.is_none());
}

#[test]
fn the_defaults_it_documents_are_the_defaults() {
    let as_is = Config::parse("default.yaml", DEFAULT, Overrides::default()).unwrap();
    let spelled = Config::parse("default.yaml", &uncommented(), Overrides::default()).unwrap();
    assert_eq!(as_is.listen, spelled.listen);
    assert_eq!(as_is.limits, spelled.limits);
    assert_eq!(as_is.outage, spelled.outage);
    assert_eq!(as_is.log, spelled.log);
    assert_eq!(as_is.drain, spelled.drain);

    let spelled = spelled.redis.expect("the spelled-out file has a url");
    let standard = RedisConfig::new(spelled.url.clone());
    assert_eq!(spelled.client_time, standard.client_time);
    assert_eq!(spelled.functions, standard.functions);
    assert_eq!(spelled.batch, standard.batch);
    assert_eq!(spelled.batch_max, standard.batch_max);
    assert_eq!(spelled.batch_wait, standard.batch_wait);
    assert_eq!(spelled.dial_timeout, standard.dial_timeout);
    assert_eq!(spelled.read_timeout, standard.read_timeout);
    assert_eq!(spelled.write_timeout, standard.write_timeout);
    assert_eq!(spelled.max_retries, standard.max_retries);
    assert_eq!(spelled.key_prefix, standard.key_prefix);
    assert_eq!(spelled.default_ttl, standard.default_ttl);
    assert_eq!(spelled.layout, standard.layout);
}

#[test]
fn a_file_without_rules_says_so_and_else_everything_is_at_its_default() {
    let config = Config::parse("empty.yaml", "rules: []", Overrides::default()).unwrap();
    assert!(config.policy.rules.is_empty() && config.redis.is_none());
    for text in ["", "# nothing\n", "---\n", "{}", "rules:", "rules: ~\n", "deny: {address: [10.0.0.0/8]}"] {
        let problems = Config::parse("empty.yaml", text, Overrides::default()).unwrap_err().to_string();
        assert!(
            problems.ends_with("rules: is missing: write `rules: []` if there are to be none"),
            "{text:?}: {problems}"
        );
        assert_eq!(problems.lines().count(), 1, "{problems}");
    }
}

#[test]
fn fail_open_is_another_way_to_say_allow() {
    for (text, on_outage) in [
        ("redis: {fail_open: true}", OnOutage::Allow),
        ("redis: {fail_open: false}", OnOutage::Local),
        ("redis: {on_outage: deny, fail_open: false}", OnOutage::Deny),
        ("redis: {on_outage: allow, fail_open: true}", OnOutage::Allow),
    ] {
        let text = format!("rules: []\n{text}");
        let config = Config::parse("f", &text, Overrides::default()).unwrap();
        assert_eq!(config.outage.on_outage, on_outage, "{text}");
    }
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let before = format!("*a{}", level - 1);
        let list = [before.as_str(); 10].join(", ");
        let _ = writeln!(text, "a{level}: &a{level} [{list}]");
    }
    assert!(Config::parse("bomb.yaml", &text, Overrides::default()).is_err());
}

//! What is under a key, in words: the debugging tool that binary state needs.

use std::sync::Arc;

use tollgate_core::algorithm::{Kind, TokenBucket, token_bucket};
use tollgate_core::key;
use tollgate_core::store::StoreError;
use tollgate_core::units::Micros;

use super::cluster::slots::slot_of_key;
use super::config::Layout;
use super::node::Node;
use super::topology::{Lane, Spot};
use super::wire::Reply;
use super::{RedisStore, dial, reply};

/// How many keys one look at a subject lists at most.
const KEYS_MAX: usize = 1000;

/// One key of ours, read and understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// The key as Redis has it.
    pub key: String,
    /// Whose limit it is; `None` for a subject that is kept only as a hash.
    pub subject: Option<String>,
    /// The rule, or `None` for a limit the caller brought along.
    pub rule: Option<String>,
    /// Which of the rule's limits, or the inline limit's period.
    pub limit: String,
    /// How it limits.
    pub kind: Kind,
    /// How it is written.
    pub layout: Layout,
    /// Until Redis forgets it; `None` if never, which is not our doing.
    pub expires_after: Option<Micros>,
    /// Redis' clock when it was read.
    pub now: Micros,
    /// What it says.
    pub content: Content,
    /// The value as it stands: one part for a string, field and value by turns for a hash, member
    /// and score by turns for a sorted set.
    pub raw: Vec<Vec<u8>>,
}

/// What a key says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A token bucket.
    Bucket(token_bucket::State),
    /// The admitted instants, oldest first.
    Log(Vec<Micros>),
    /// The counters of a sliding window.
    SlidingWindow {
        /// Where the current window begins.
        start: Micros,
        /// Counted in it.
        current: u32,
        /// Counted in the one before.
        previous: u32,
    },
    /// The counter of a fixed window.
    FixedWindow {
        /// Where the window begins.
        start: Micros,
        /// Counted in it.
        count: u32,
    },
    /// Not ours: a wrong type, length or version. The next take treats it as absent.
    Malformed {
        /// Redis' type of it.
        redis_type: String,
    },
}

impl RedisStore {
    /// Reads one key by its full name; `None` if there is no such key.
    pub async fn inspect(&self, name: &str) -> Result<Option<Inspected>, StoreError> {
        let Some(parts) = NameParts::parse(name) else { return Ok(None) };
        let mut spot = self.spot_in(Lane::Thread(self.number()), || slot_of_key(name)).await?;
        let redis_type = match self.ask(&mut spot, &["TYPE", name]).await? {
            Reply::Simple(text) if text == "none" => return Ok(None),
            Reply::Simple(text) => text,
            _ => return Err(reply::bad("not a type")),
        };
        let read: &[&str] = match redis_type.as_str() {
            "string" => &["GET", name],
            "hash" => &["HGETALL", name],
            "zset" => &["ZRANGE", name, "0", "-1", "WITHSCORES"],
            _ => &[],
        };
        let raw = if read.is_empty() { Vec::new() } else { bulks(self.ask(&mut spot, read).await?) };
        let expires_after = match self.ask(&mut spot, &["PTTL", name]).await? {
            Reply::Integer(millis) => u64::try_from(millis).ok().map(Micros::from_millis),
            _ => None,
        };
        let now = match self.ask(&mut spot, &["TIME"]).await? {
            Reply::Array(parts) => dial::time_of(&parts).ok_or_else(|| reply::bad("not a time"))?,
            _ => return Err(reply::bad("not a time")),
        };
        let content = content(parts.kind, &redis_type, &raw).unwrap_or(Content::Malformed { redis_type });
        let NameParts { subject, rule, limit, kind, layout } = parts;
        Ok(Some(Inspected {
            key: name.to_owned(),
            subject,
            rule,
            limit,
            kind,
            layout,
            expires_after,
            now,
            content,
            raw,
        }))
    }

    /// The names of every key a subject has, in either layout. Walks the whole database, on every node: a slot
    /// that is on its way is on two.
    pub async fn keys_of(&self, subject: &[u8]) -> Result<Vec<String>, StoreError> {
        let stem = self.naming.stem(subject);
        let pattern =
            format!("{}:{}[ph]:{}:*", glob_escaped(&self.shared.config.key_prefix), '1', glob_escaped(&stem));
        self.topology.any().await?;
        let mut names = Vec::new();
        for node in self.topology.nodes() {
            self.scan(node, &pattern, &mut names).await?;
        }
        names.sort_unstable();
        names.dedup();
        names.truncate(KEYS_MAX);
        Ok(names)
    }

    async fn scan(&self, node: Arc<Node>, pattern: &str, names: &mut Vec<String>) -> Result<(), StoreError> {
        let mut spot = Spot::new(node, Lane::Thread(self.number()));
        let mut cursor = "0".to_owned();
        loop {
            let words = ["SCAN", &cursor, "MATCH", pattern, "COUNT", "1000"];
            let Reply::Array(parts) = self.ask(&mut spot, &words).await? else {
                return Err(reply::bad("not a scan"));
            };
            let [Reply::Bulk(next), Reply::Array(found)] = parts.as_slice() else {
                return Err(reply::bad("not a scan"));
            };
            names.extend(found.iter().filter_map(|item| match item {
                Reply::Bulk(name) => String::from_utf8(name.clone()).ok(),
                _ => None,
            }));
            cursor = String::from_utf8_lossy(next).into_owned();
            if cursor == "0" || names.len() >= KEYS_MAX {
                return Ok(());
            }
        }
    }

    pub(super) async fn ask(&self, spot: &mut Spot, words: &[&str]) -> Result<Reply, StoreError> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.plain(spot, &words).await
    }
}

/// A key's name, taken apart: `prefix:generation:{subject}:rule:limit:algorithm`, or, in partitions,
/// `prefix:generation:{=partition}subject:rule:limit:algorithm`.
struct NameParts {
    subject: Option<String>,
    rule: Option<String>,
    limit: String,
    kind: Kind,
    layout: Layout,
}

impl NameParts {
    fn parse(name: &str) -> Option<NameParts> {
        let (head, rest) = name.split_once(":{")?;
        let (tag, rest) = rest.split_once('}')?;
        // From behind: a subject may have colons, and follows the tag if that is a partition's.
        let mut parts = rest.rsplitn(4, ':');
        let (kind, limit, rule) = (Kind::of_initials(parts.next()?)?, parts.next()?, parts.next()?);
        let subject = match (tag.starts_with('='), parts.next()?) {
            (true, subject) => subject,
            (false, "") => tag,
            (false, _) => return None,
        };
        let layout = match head.rsplit_once(':')?.1 {
            "1p" => Layout::Packed,
            "1h" => Layout::Hash,
            _ => return None,
        };
        let text = |part: &str| key::decode(part).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Some(NameParts {
            subject: if subject.starts_with('~') { None } else { Some(text(subject)?) },
            rule: if rule.starts_with('=') { None } else { Some(text(rule)?) },
            limit: text(limit)?,
            kind,
            layout,
        })
    }
}

fn content(kind: Kind, redis_type: &str, raw: &[Vec<u8>]) -> Option<Content> {
    if kind == Kind::SlidingLog {
        let instants = raw.chunks_exact(2).map(|pair| {
            let at: [u8; 8] = pair[0].get(..8)?.try_into().ok()?;
            (pair[0].len() == 12).then_some(Micros(u64::from_be_bytes(at)))
        });
        return (redis_type == "zset").then(|| instants.collect::<Option<_>>().map(Content::Log))?;
    }
    let body = match redis_type {
        "string" => raw.first()?.split_first().filter(|(version, _)| **version == 1)?.1.to_vec(),
        "hash" => {
            let field =
                |name: &str| raw.chunks_exact(2).find(|pair| pair[0] == name.as_bytes()).map(|pair| &pair[1]);
            let names: &[&str] = match kind {
                Kind::TokenBucket => &["tokens", "last_refill", "limit"],
                Kind::SlidingWindow => &["window", "count", "previous"],
                Kind::FixedWindow | Kind::SlidingLog => &["window", "count"],
            };
            field("v").filter(|version| version.as_slice() == b"1")?;
            names.iter().map(|name| field(name).map(Vec::as_slice)).collect::<Option<Vec<_>>>()?.concat()
        }
        _ => return None,
    };
    let long = |at: usize| body.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let short = |at: usize| body.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    match (kind, body.len()) {
        // A packed unit whose upper half is zero is written without it.
        (Kind::TokenBucket, 32 | 28) if body.len() == 32 || redis_type == "string" => {
            let unit = if body.len() == 32 { long(20)? } else { u64::from(short(20)?) };
            Some(Content::Bucket(token_bucket::State {
                units: reply::whole(&body[..8]).ok()?,
                last_refill: Micros(reply::whole(&body[8..16]).ok()?),
                under: TokenBucket::from_parts(short(16)?, unit, short(body.len() - 4)?)?,
            }))
        }
        (Kind::SlidingWindow, 16) => {
            Some(Content::SlidingWindow { start: Micros(long(0)?), current: short(8)?, previous: short(12)? })
        }
        (Kind::FixedWindow, 12) => Some(Content::FixedWindow { start: Micros(long(0)?), count: short(8)? }),
        _ => None,
    }
}

fn bulks(reply: Reply) -> Vec<Vec<u8>> {
    match reply {
        Reply::Bulk(bytes) => vec![bytes],
        Reply::Array(items) => items.into_iter().flat_map(bulks).collect(),
        _ => Vec::new(),
    }
}

/// For `SCAN MATCH`: everything that means something in a pattern, taken literally.
fn glob_escaped(text: &str) -> String {
    text.chars().flat_map(|c| ["*?[]\\^-".contains(c).then_some('\\'), Some(c)]).flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use tollgate_core::key::{Key, Scope};

    use super::super::config::RedisConfig;
    use super::super::request::Naming;
    use super::super::url::RedisUrl;
    use super::*;

    /// Whatever is written reads back as it was, in partitions and without.
    #[test]
    fn names_are_read_as_they_are_written() {
        let mut config = RedisConfig::new(RedisUrl::parse("redis://127.0.0.1").expect("a URL"));
        for partitions in [None, NonZeroU16::new(7)] {
            config.partitions = partitions;
            let naming = Naming::new(&config);
            for subject in ["", "ann", "user:12", ":", "a:0:tb", "}:x:0:tb", "=1", "2001:db8::1"] {
                for (rule, limit, kind) in [("api", 0, Kind::TokenBucket), ("a:b", 12, Kind::SlidingLog)] {
                    let scope = Scope::of_rule(rule, limit, kind);
                    let mut name = String::new();
                    naming.write_key(&Key { scope: &scope, subject: subject.as_bytes() }, &mut name);
                    let parts = NameParts::parse(&name).unwrap_or_else(|| panic!("{name} is not read"));
                    assert_eq!(
                        (parts.subject.as_deref(), parts.rule.as_deref()),
                        (Some(subject), Some(rule))
                    );
                    assert_eq!((parts.limit, parts.kind), (limit.to_string(), kind), "{name}");
                }
                let scope = Scope::of_key_alone();
                let mut name = String::new();
                naming.write_key(&Key { scope: &scope, subject: subject.as_bytes() }, &mut name);
                let parts = NameParts::parse(&name).unwrap_or_else(|| panic!("{name} is not read"));
                assert_eq!((parts.subject.as_deref(), parts.rule), (Some(subject), None));
                assert_eq!((parts.limit.as_str(), parts.kind), (key::KEY_ALONE, Kind::TokenBucket), "{name}");
            }
        }
    }
}

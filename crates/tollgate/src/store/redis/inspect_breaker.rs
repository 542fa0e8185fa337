//! What the fleet's record of a breaker says, and what has lately become of it.

use std::collections::BTreeMap;

use tollgate_core::breaker::Mode;
use tollgate_core::key;
use tollgate_core::store::{ErrorClass, StoreError};
use tollgate_core::units::Micros;

use super::cluster::slots::slot_of_key;
use super::request::Naming;
use super::topology::{Lane, Spot};
use super::wire::Reply;
use super::{RedisStore, dial, reply};

/// How many of the last changes are shown.
const CHANGES: &str = "10";

/// The fleet's record of a breaker, as Redis has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedBreaker {
    /// The keys it has, without their ends.
    pub stem: String,
    /// Its name; `None` for a long one that is kept only as a hash.
    pub id: Option<String>,
    /// `closed`, `open` or `half-open`; `None` for what is not a record of ours.
    pub state: Option<String>,
    /// The numbers of the record, by their names: failures, successes, opened_at, until, since, epoch, trips and others.
    pub numbers: BTreeMap<String, u64>,
    /// What a person has decided, until when, why and who.
    pub overridden: Option<(Mode, Micros, String, String)>,
    /// Probes under way: when each lease ends, by its token.
    pub leases: Vec<(String, Micros)>,
    /// Instances that have reported calls, and when each last did: an instant, or a number of calls.
    pub reporters: Vec<(String, u64)>,
    /// Those of them in trouble.
    pub troubled: usize,
    /// Until Redis forgets it.
    pub expires_after: Option<Micros>,
    /// Redis' clock when it was read.
    pub now: Micros,
    /// The last changes, the latest first, each with its instant and its fields; `None` if we may not read them.
    pub changes: Option<Vec<(Micros, BTreeMap<String, String>)>>,
}

impl RedisStore {
    /// The fleet's record of the breaker of that id; `None` if there is none.
    pub async fn inspect_breaker(&self, id: &[u8]) -> Result<Option<InspectedBreaker>, StoreError> {
        self.breaker_by_tag(&Naming::tag(id)).await
    }

    /// The same for the full name of one of its keys; `None` also if it is no such name.
    pub async fn inspect_breaker_key(&self, name: &str) -> Result<Option<InspectedBreaker>, StoreError> {
        let start = format!("{}:cb:", self.shared.config.key_prefix);
        let tag = name.strip_prefix(&start).and_then(|rest| rest.split_inclusive('}').next());
        match tag.filter(|tag| tag.starts_with('{') && tag.ends_with('}')) {
            Some(tag) => self.breaker_by_tag(tag).await,
            None => Ok(None),
        }
    }

    async fn breaker_by_tag(&self, tag: &str) -> Result<Option<InspectedBreaker>, StoreError> {
        let stem = format!("{}:cb:{tag}", self.shared.config.key_prefix);
        let mut spot = self.spot_in(Lane::Thread(self.number()), || slot_of_key(tag)).await?;
        let key = |end: &str| format!("{stem}:{end}");
        let fields = match self.ask(&mut spot, &["HGETALL", &key("s")]).await {
            Ok(Reply::Array(fields)) if fields.is_empty() => return Ok(None),
            reply => of_its_type(reply)?.map(texts).unwrap_or_default(),
        };
        let fields: BTreeMap<String, String> = pairs(fields).collect();
        let leases = self.scores(&mut spot, &key("p")).await?;
        let reporters = self.scores(&mut spot, &key("r")).await?;
        let troubled = self.scores(&mut spot, &key("t")).await?.len();
        let expires_after = match self.ask(&mut spot, &["PTTL", &key("s")]).await? {
            Reply::Integer(millis) => u64::try_from(millis).ok().map(Micros::from_millis),
            _ => None,
        };
        let now = match self.ask(&mut spot, &["TIME"]).await? {
            Reply::Array(parts) => dial::time_of(&parts).ok_or_else(|| reply::bad("not a time"))?,
            _ => return Err(reply::bad("not a time")),
        };
        let words = ["XREVRANGE", &key("ev"), "+", "-", "COUNT", CHANGES];
        let changes = match self.ask(&mut spot, &words).await {
            Err(StoreError::Answered { class: ErrorClass::NoPermission, .. }) => None,
            reply => match of_its_type(reply)? {
                Some(Reply::Array(entries)) => Some(entries.into_iter().filter_map(change).collect()),
                _ => Some(Vec::new()),
            },
        };
        let numbers: BTreeMap<String, u64> =
            fields.iter().filter_map(|(name, value)| Some((name.clone(), value.parse().ok()?))).collect();
        let text = |name: &str| fields.get(name).cloned().unwrap_or_default();
        let mode = numbers.get("override").and_then(|mode| usize::try_from(*mode).ok()?.checked_sub(1));
        let overridden = mode.and_then(|mode| Mode::ALL.get(mode)).map(|mode| {
            let until = Micros(numbers.get("override_until").copied().unwrap_or(0));
            (*mode, until, text("reason"), text("who"))
        });
        let name = tag.trim_start_matches('{').trim_end_matches('}');
        let id = (!name.starts_with('~')).then(|| key::decode(name)).flatten();
        Ok(Some(InspectedBreaker {
            stem,
            id: id.map(|id| String::from_utf8_lossy(&id).into_owned()),
            state: fields.get("state").cloned(),
            numbers,
            overridden,
            leases: leases.into_iter().map(|(token, ends)| (token, Micros(ends))).collect(),
            reporters,
            troubled,
            expires_after,
            now,
            changes,
        }))
    }

    /// The members of a sorted set with their scores; none, if it is something else.
    async fn scores(&self, spot: &mut Spot, key: &str) -> Result<Vec<(String, u64)>, StoreError> {
        let reply = of_its_type(self.ask(spot, &["ZRANGE", key, "0", "-1", "WITHSCORES"]).await)?;
        let texts = reply.map(texts).unwrap_or_default();
        Ok(pairs(texts).filter_map(|(member, score)| Some((member, score.parse().ok()?))).collect())
    }
}

/// What was read; nothing, if a value of another type stands there, which is not ours.
fn of_its_type(reply: Result<Reply, StoreError>) -> Result<Option<Reply>, StoreError> {
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(StoreError::Answered { message, .. }) if message.starts_with("WRONGTYPE") => Ok(None),
        Err(error) => Err(error),
    }
}

/// One entry of the stream: when, and what.
fn change(entry: Reply) -> Option<(Micros, BTreeMap<String, String>)> {
    let Reply::Array(parts) = entry else { return None };
    let [Reply::Bulk(at), fields] = <[Reply; 2]>::try_from(parts).ok()? else { return None };
    let millis = std::str::from_utf8(&at).ok()?.split('-').next()?.parse().ok()?;
    Some((Micros::from_millis(millis), pairs(texts(fields)).collect()))
}

fn texts(reply: Reply) -> Vec<String> {
    match reply {
        Reply::Bulk(bytes) => vec![String::from_utf8_lossy(&bytes).into_owned()],
        Reply::Array(items) => items.into_iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

fn pairs(texts: Vec<String>) -> impl Iterator<Item = (String, String)> {
    let mut texts = texts.into_iter();
    std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
}

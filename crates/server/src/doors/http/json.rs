//! `/json` and `/healthcheck`: envoyproxy/ratelimit's HTTP, so that whoever asks it needs no change.
//!
//! Envoy's question and answer as proto3 JSON: names in camel case or as in the protocol, numbers of 64 bits
//! as texts or numbers. The status says it, too: 200 passes, 429 does not, 400 was not answered.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value as Json, json};

use super::{HttpDoor, check_origin};
use crate::net::Answer;
use crate::net::body;
use crate::net::peer::Peer;
use crate::net::problem::Problem;
use crate::rls::{
    self, Carried, Code, Descriptor, Entry, Failure, Response as Answered, Shown, Status, Unit, Value,
};
use crate::shutdown::Phase;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRequest {
    #[serde(default, deserialize_with = "or_nothing")]
    domain: String,
    #[serde(default, deserialize_with = "or_nothing")]
    descriptors: Vec<RawDescriptor>,
    #[serde(default, alias = "hitsAddend")]
    hits_addend: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDescriptor {
    #[serde(default, deserialize_with = "or_nothing")]
    entries: Vec<RawEntry>,
    #[serde(default)]
    limit: Option<RawLimit>,
    #[serde(default, alias = "hitsAddend")]
    hits_addend: Option<Number>,
    #[serde(default, alias = "isNegativeHits", deserialize_with = "or_nothing")]
    is_negative_hits: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    #[serde(default, deserialize_with = "or_nothing")]
    key: String,
    #[serde(default, deserialize_with = "or_nothing")]
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimit {
    #[serde(default, alias = "requestsPerUnit")]
    requests_per_unit: Option<Number>,
    #[serde(default)]
    unit: Option<Number>,
}

/// A null is the same as a field that is not there.
fn or_nothing<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// A number, or the text of one, or a name that stands for one.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Number {
    Number(u64),
    Text(String),
}

impl Number {
    fn whole(&self) -> Option<u64> {
        match self {
            Number::Number(number) => Some(*number),
            Number::Text(text) => text.parse().ok(),
        }
    }
}

/// Answers Envoy's question in JSON.
pub(super) async fn answer(
    door: &HttpDoor,
    request: Request<Incoming>,
    peer: &Peer,
) -> Result<Answer, Problem> {
    let (head, body) = request.into_parts();
    check_origin(&head.headers)?;
    let body = body::read(body, door.patience).await.map_err(|error| error.problem())?;
    let request = match read(&body) {
        Ok(request) => request,
        Err(why) => return Ok(plain(StatusCode::BAD_REQUEST, why)),
    };
    if let Some(what) = request.undoes() {
        door.pass(what, &head.headers, peer)?;
    }
    Ok(match door.service.answer(&request).await {
        Ok(answered) => {
            let status = match answered.code {
                Code::Ok => StatusCode::OK,
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
            };
            let mut answer = super::as_json(Bytes::from(written(&answered).to_string()));
            *answer.status_mut() = status;
            answer
        }
        // The original has one status for all of these.
        Err(Failure::Bad(bad)) => plain(StatusCode::BAD_REQUEST, bad.to_string()),
        Err(Failure::Away) => plain(StatusCode::BAD_REQUEST, "the store does not answer".to_owned()),
        Err(Failure::Unfinished) => return Err(Problem::unfinished()),
    })
}

/// Whether requests should come here.
pub(super) fn health(door: &HttpDoor) -> Answer {
    if door.life.phase() == Phase::Serving && rls::is_healthy(&door.engine) {
        plain(StatusCode::OK, "OK".to_owned())
    } else {
        plain(StatusCode::INTERNAL_SERVER_ERROR, "draining, or the store does not answer".to_owned())
    }
}

fn plain(status: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

fn read(body: &[u8]) -> Result<rls::Request<'static>, String> {
    let raw: RawRequest = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let small = |number: &Option<Number>, field: &str| match number {
        None => Ok(0),
        Some(number) => {
            let small = number.whole().and_then(|whole| u32::try_from(whole).ok());
            small.ok_or_else(|| format!("{field} is no number from 0 to {}", u32::MAX))
        }
    };
    let descriptor = |raw: RawDescriptor| {
        let carried = raw.limit.map(|limit| {
            let unit = match &limit.unit {
                Some(Number::Text(name)) => Unit::parse(name),
                Some(Number::Number(number)) => Unit::of_number(*number),
                None => None,
            };
            let requests_per_unit = small(&limit.requests_per_unit, "requestsPerUnit")?;
            Ok::<_, String>(Carried { requests_per_unit, unit })
        });
        let hits_addend =
            raw.hits_addend.map(|hits| hits.whole().ok_or("hitsAddend is no number")).transpose()?;
        let entries = raw
            .entries
            .into_iter()
            .map(|RawEntry { key, value }| Entry { key: key.into(), value: value.into() })
            .collect();
        Ok::<_, String>(Descriptor {
            entries,
            carried: carried.transpose()?,
            hits_addend,
            is_negative: raw.is_negative_hits,
        })
    };
    let hits_addend = small(&raw.hits_addend, "hitsAddend")?;
    let descriptors = raw.descriptors.into_iter().map(descriptor).collect::<Result<_, _>>()?;
    Ok(rls::Request { domain: raw.domain.into(), descriptors, hits_addend })
}

fn written(answered: &Answered) -> Json {
    let name = |code: Code| match code {
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    };
    let status = |status: &Status| {
        let Status { code, limit, remaining, reset_after_secs } = status;
        let mut fields = Map::new();
        fields.insert("code".to_owned(), json!(name(*code)));
        if let Some(limit) = limit {
            fields.insert("currentLimit".to_owned(), shown(limit));
        }
        // What is zero is left out, as in any proto3 JSON.
        if *remaining > 0 {
            fields.insert("limitRemaining".to_owned(), json!(remaining));
        }
        if let Some(secs) = reset_after_secs {
            fields.insert("durationUntilReset".to_owned(), json!(format!("{secs}s")));
        }
        Json::Object(fields)
    };
    let mut fields = Map::new();
    fields.insert("overallCode".to_owned(), json!(name(answered.code)));
    fields.insert("statuses".to_owned(), answered.statuses.iter().map(status).collect());
    if !answered.headers.is_empty() {
        let header =
            |(name, value): &(std::sync::Arc<str>, String)| json!({ "key": &**name, "value": value });
        fields.insert("responseHeadersToAdd".to_owned(), answered.headers.iter().map(header).collect());
    }
    if let Some(metadata) = &answered.metadata {
        fields.insert("dynamicMetadata".to_owned(), map(metadata));
    }
    Json::Object(fields)
}

fn shown(limit: &Shown) -> Json {
    let mut fields = Map::new();
    if limit.requests_per_unit > 0 {
        fields.insert("requestsPerUnit".to_owned(), json!(limit.requests_per_unit));
    }
    if let Some(unit) = limit.unit {
        fields.insert("unit".to_owned(), json!(unit.name()));
    }
    if let Some(name) = &limit.name {
        fields.insert("name".to_owned(), json!(&**name));
    }
    Json::Object(fields)
}

fn map(fields: &rls::Metadata) -> Json {
    Json::Object(fields.iter().map(|(name, inner)| (name.clone(), value(inner))).collect())
}

fn value(of: &Value) -> Json {
    match of {
        Value::Null => Json::Null,
        Value::Bool(truth) => json!(truth),
        Value::Number(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::List(list) => list.iter().map(value).collect(),
        Value::Map(fields) => map(fields),
    }
}

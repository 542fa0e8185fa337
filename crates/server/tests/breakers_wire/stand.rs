//! Servers with a breaker that trips soon, and both of their doors.

use std::collections::HashMap;

use crate::common::resp::Resp;
use crate::common::{PATIENCE, Server, config};
use crate::grpc::{Called, Caller};
use crate::proto::tollgate::v1;

/// Trips after three failures in a row, is judged from half a second on, and closes after two probes.
pub(crate) const FILE: &str = "
rules: []
breakers:
  - name: payments
    failures: 3
    window: 1s
    open_for: 1500ms
    open_max: 6s
    jitter: 0%
    probes: 1
    probe_for: 5s
    successes_to_close: 2
    ramp: off
  - { name: mail, match: \"mail-*\", failures: 1, open_for: 1h, open_max: 1h }
  - { name: brief, failures: 1, open_for: 1h, open_max: 1h, report_within: 50ms }
  - { match: \"hint-*\", hint_max: 1m }
  - { match: \"slow-*\", slow_ratio: 50%, slow_after: 2s, minimum_calls: 1 }
";

/// A server and a client at each door.
pub(crate) struct Stand {
    pub(crate) server: Server,
    pub(crate) caller: Caller,
    pub(crate) resp: Resp,
}

/// On that Redis.
pub(crate) async fn sharing(url: &str) -> Stand {
    let file = config(FILE);
    let arguments = ["--config", file.path().to_str().unwrap(), "--redis", url];
    Stand::of(Server::start_with(&arguments).await).await
}

/// With the memory of its own process.
pub(crate) async fn alone() -> Stand {
    Stand::of(Server::configured(FILE, &[]).await).await
}

impl Stand {
    async fn of(server: Server) -> Stand {
        let caller = Caller::connect(server.grpc).await;
        let resp = Resp::connect(server.resp).await;
        Stand { server, caller, resp }
    }

    /// Over gRPC.
    pub(crate) async fn acquire(&self, id: &str) -> v1::AcquireResponse {
        self.caller.answer("/tollgate.v1.Breakers/Acquire", &v1::AcquireRequest { id: id.into() }).await
    }

    pub(crate) async fn report(&self, id: &str, token: &str, outcome: &str) -> v1::ReportResponse {
        self.caller.answer("/tollgate.v1.Breakers/Report", &told(id, token, outcome)).await
    }

    pub(crate) async fn state(&self, id: &str) -> v1::Breaker {
        self.caller.answer("/tollgate.v1.Breakers/State", &v1::StateRequest { id: id.into() }).await
    }

    pub(crate) async fn overrule(&self, id: &str, mode: &str, ttl_ms: u64) -> Called {
        self.caller.call("/tollgate.v1.Breakers/Override", &decided(id, mode, ttl_ms)).await
    }

    pub(crate) async fn lift(&self, id: &str) -> v1::Breaker {
        self.caller.answer("/tollgate.v1.Breakers/Lift", &v1::LiftRequest { id: id.into() }).await
    }

    /// Over RESP: a map by its names.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> HashMap<String, String> {
        let answer = self.resp.ask(words).await;
        assert!(answer.len() > 1, "{words:?}: {answer:?}");
        answer.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }

    /// Over RESP: an error.
    pub(crate) async fn fault(&mut self, words: &[&str]) -> String {
        let answer = self.resp.ask(words).await;
        assert!(answer.len() == 1 && answer[0].starts_with('-'), "{words:?}: {answer:?}");
        answer[0].clone()
    }
}

pub(crate) fn told(id: &str, token: &str, outcome: &str) -> v1::ReportRequest {
    v1::ReportRequest {
        id: id.into(),
        token: token.into(),
        outcome: outcome.into(),
        elapsed_ms: None,
        retry_after_ms: None,
    }
}

pub(crate) fn decided(id: &str, mode: &str, ttl_ms: u64) -> v1::OverrideRequest {
    v1::OverrideRequest {
        id: id.into(),
        mode: mode.into(),
        ttl_ms,
        reason: "a test".into(),
        who: "me".into(),
    }
}

/// Asks until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("never: {what}"))
}

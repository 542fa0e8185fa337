//! Servers with a breaker that trips soon, and its callers.

use std::future::Future;

use serde_json::{Value, json};

use crate::common::{Answer, Client, PATIENCE, Server, config};

/// Trips after three failures in a row, is judged from half a second on, and closes after two probes.
pub(crate) const FILE: &str = "
rules: []
breakers:
  - name: payments
    failures: 3
    window: 1s
    open_for: 400ms
    open_max: 2s
    jitter: 0%
    probes: 1
    probe_for: 2s
    successes_to_close: 2
    ramp: off
  - { name: mail, match: \"mail-*\", failures: 1, open_for: 1h, open_max: 1h }
";

/// A server on that Redis.
pub(crate) async fn serving(url: &str, more: &[&str]) -> Server {
    let file = config(FILE);
    let arguments = [&["--config", file.path().to_str().unwrap(), "--redis", url], more].concat();
    Server::start_with(&arguments).await
}

pub(crate) async fn acquire(server: &Server, id: &str) -> Value {
    server.json("/v1/breakers/acquire", &json!({ "id": id }).to_string()).await
}

pub(crate) async fn report(server: &Server, id: &str, token: &Value, outcome: &str) -> Value {
    let body = json!({ "id": id, "token": token, "outcome": outcome });
    server.json("/v1/breakers/report", &body.to_string()).await
}

/// One call that ends so, if it is allowed; whether it was.
pub(crate) async fn call(server: &Server, id: &str, outcome: &str) -> bool {
    let acquired = acquire(server, id).await;
    if acquired["allowed"] == true {
        report(server, id, &acquired["token"], outcome).await;
    }
    acquired["allowed"] == true
}

pub(crate) async fn seen(server: &Server, id: &str) -> Value {
    let answer = Client::connect(server.http).await.send("GET", &format!("/v1/breakers/{id}"), "", b"").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Asks something of the override of a breaker.
pub(crate) async fn overriding(
    server: &Server,
    method: &str,
    id: &str,
    headers: &str,
    body: &Value,
) -> Answer {
    let path = format!("/v1/breakers/{id}/override");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    Client::connect(server.http).await.send(method, &path, headers, body.as_bytes()).await
}

/// Waits until it is so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let waiting = async { while !is_so().await {} };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

pub(crate) async fn until_state(server: &Server, id: &str, state: &str) {
    until(state, || async { seen(server, id).await["state"] == state }).await;
}

/// Fails until the fleet's record says that it is open, and not only the instance's own.
pub(crate) async fn trip(here: &Server, there: &Server, id: &str) {
    until("it trips", || async {
        call(here, id, "failure").await;
        seen(there, id).await["state"] == "open"
    })
    .await;
}

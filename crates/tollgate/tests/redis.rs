//! The Redis store against a real Redis: every way to reach it, every verb, every refusal to work.

use testkit::RedisServer;
use tollgate::core::check::Check;
use tollgate::core::key::{Key, Scope};
use tollgate::core::store::Store;
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Cost, Kind, Rate};

#[tokio::test]
async fn smoke() {
    let server = RedisServer::start().await;
    for layout in [tollgate::store::redis::Layout::Packed, tollgate::store::redis::Layout::Hash] {
        let mut config = RedisConfig::new(RedisUrl::parse(&server.url()).unwrap());
        config.layout = layout;
        let store = RedisStore::new(config).unwrap();
        for kind in Kind::ALL {
            let algorithm = Algorithm::try_new(kind, Rate::parse("3/min").unwrap(), None, 100).unwrap();
            let scope = Scope::of_rule("r", 0, kind);
            let check =
                Check { key: Key { scope: &scope, subject: b"me" }, algorithm: &algorithm, cost: Cost::ONE };
            for _ in 0..4 {
                println!("{kind} {:?}", store.take(&[check]).await);
            }
            println!("{kind} {:?}", store.peek(&[check]).await);
        }
    }
    for key in server.command(&["KEYS", "*"]).await.array() {
        println!("{} {:?}", key.text(), server.command(&["PTTL", &key.text()]).await);
    }
}

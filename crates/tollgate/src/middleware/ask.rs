//! The one place where a layer turns what is known about a request into an ask.

use sha2::{Digest as _, Sha256};
use tollgate_core::address::Grouping;
use tollgate_core::ask::{Ask, By, Want};
use tollgate_core::attributes::Attributes as _;
use tollgate_core::store::Store;
use tollgate_core::units::Cost;
use tollgate_core::verdict::Verdict;

use crate::engine::Engine;
use crate::identity::HttpAttributes;

/// Callers of whom nothing is known, neither token nor address: counted together, so that nobody gains by
/// hiding.
const NOBODY: &str = "nobody";

/// Asks for one more call under a rule: by token if there is one, else by address.
pub(super) async fn ask<S: Store>(
    engine: &Engine<S>,
    rule: &str,
    cost: Cost,
    attributes: &HttpAttributes<'_>,
) -> Verdict {
    let key = key(attributes);
    let want = Want { by: By::Rule(rule), key: key.as_bytes(), cost, takes: &[] };
    engine.decide(&Ask { wants: &[want] }).await
}

fn key(attributes: &HttpAttributes<'_>) -> String {
    if let Some(token) = attributes.token() {
        // Hashed: a key is shown to whoever may look into the store.
        let hash = Sha256::digest(token.as_bytes());
        let mut key = String::with_capacity(6 + 64);
        key.push_str("token:");
        for byte in hash {
            let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
            key.extend([digit(byte >> 4), digit(byte & 15)]);
        }
        return key;
    }
    let Some(address) = attributes.address() else { return NOBODY.to_owned() };
    let mut key = String::from("address:");
    Grouping::default().write(address, &mut key);
    key
}

//! Pushes: heard by all that listen, as they were called out.

use std::sync::{Arc, Mutex};

use tollgate_core::push::{Heard, Listener, PUSH_BYTES_MAX, Push, Topic};
use tollgate_core::store::Store;

use crate::eventually;

/// Remembers what it hears; a gap is `None`.
#[derive(Debug, Default)]
struct Ear(Mutex<Vec<Option<Vec<u8>>>>);

impl Ear {
    fn heard(&self) -> Vec<Option<Vec<u8>>> {
        self.0.lock().expect("nobody panics while holding it").clone()
    }
}

impl Listener for Ear {
    fn heard(&self, heard: Heard<'_>) {
        let text = match heard {
            Heard::Push(push) => Some(push.text.to_vec()),
            Heard::Gap => None,
        };
        self.0.lock().expect("nobody panics while holding it").push(text);
    }
}

pub(super) async fn what_is_called_out_is_heard_by_all_in_order(store: &impl Store) {
    let ears = [Arc::new(Ear::default()), Arc::new(Ear::default())];
    for ear in &ears {
        store.listen(Arc::<Ear>::clone(ear));
    }
    store.heartbeat().await.expect("the store answers");
    for ear in &ears {
        eventually("pushes are heard from now on", || ear.heard().contains(&None)).await;
    }
    let texts = [b"\0\r\n\xff".to_vec(), Vec::new(), vec![b'x'; PUSH_BYTES_MAX - 2]];
    for text in &texts {
        store.publish(Push { topic: Topic::Eased, text }).await.expect("the store answers");
    }
    for ear in &ears {
        eventually("all are heard", || ear.heard().iter().flatten().count() >= texts.len()).await;
        assert_eq!(ear.heard().into_iter().flatten().collect::<Vec<_>>(), texts);
    }
}

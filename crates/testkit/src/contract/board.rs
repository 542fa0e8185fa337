//! The notice board: what is up, for how long, and how much of it.

use std::time::Duration;

use tollgate_core::board::{BOARD_BYTES_MAX, NOTICE_BYTES_MAX, NOTICE_OVERHEAD, NOTICES_MAX, Notice, Post};
use tollgate_core::store::Store;

use super::TestTime;
use crate::unique_prefix;

const HOUR: Duration = Duration::from_hours(1);

/// A version that no board has.
const UNSEEN: u64 = u64::MAX;

async fn post(store: &impl Store, name: &str, text: &[u8], keep_for: Duration) -> Post {
    store.post(name.as_bytes(), Some(Notice { text, keep_for })).await.expect("the store answers")
}

async fn take_down(store: &impl Store, name: &str) {
    let done = store.post(name.as_bytes(), None).await.expect("the store answers");
    assert_eq!(done, Post::Done);
}

/// What stands under a name, and how long it will.
async fn up(store: &impl Store, name: &str) -> Option<(Vec<u8>, Duration)> {
    let board = store.board(UNSEEN).await.expect("the store answers").expect("nobody has seen it");
    let mut found = board.notices.into_iter().filter(|notice| notice.name == name.as_bytes());
    let notice = found.next();
    assert_eq!(found.next(), None, "one notice of one name");
    notice.map(|notice| (notice.text, notice.left))
}

async fn version(store: &impl Store) -> u64 {
    store.board(UNSEEN).await.expect("the store answers").expect("nobody has seen it").version
}

pub(super) async fn a_notice_is_up_until_it_ends_or_is_taken_down(store: &impl Store, time: &impl TestTime) {
    let (one, two) = (unique_prefix(), unique_prefix());
    assert_eq!(post(store, &one, b"first\0\r\n", HOUR).await, Post::Done);
    assert_eq!(post(store, &two, b"", HOUR * 2).await, Post::Done);
    assert_eq!(up(store, &one).await, Some((b"first\0\r\n".to_vec(), HOUR)));
    assert_eq!(post(store, &one, b"second", HOUR * 3).await, Post::Done);
    assert_eq!(up(store, &one).await, Some((b"second".to_vec(), HOUR * 3)), "in the place of the first");

    time.forward(HOUR);
    assert_eq!(up(store, &two).await, Some((Vec::new(), HOUR)));
    time.forward(HOUR.saturating_sub(Duration::from_micros(1)));
    assert_eq!(up(store, &two).await, Some((Vec::new(), Duration::from_micros(1))));
    time.forward(Duration::from_micros(1));
    assert_eq!(up(store, &two).await, None, "it has ended");
    assert_eq!(up(store, &one).await, Some((b"second".to_vec(), HOUR)));
    take_down(store, &one).await;
    take_down(store, &two).await;
    assert_eq!(up(store, &one).await, None);
}

pub(super) async fn a_board_is_given_once_for_every_change(store: &impl Store) {
    let name = unique_prefix();
    let mut seen = version(store).await;
    for text in [&b"one"[..], b"two", b"two"] {
        post(store, &name, text, HOUR).await;
        let board = store.board(seen).await.expect("the store answers").expect("it changed");
        assert!(board.version != seen && board.notices.iter().any(|notice| notice.text == text));
        seen = board.version;
        assert_eq!(store.board(seen).await, Ok(None), "nothing changed since");
    }
    take_down(store, &name).await;
    let board = store.board(seen).await.expect("the store answers").expect("it changed");
    assert!(board.notices.iter().all(|notice| notice.name != name.as_bytes()));
    assert_eq!(store.board(board.version).await, Ok(None));
}

pub(super) async fn a_board_has_room_for_so_much(store: &impl Store, time: &impl TestTime) {
    let name = unique_prefix();
    let text = vec![b'x'; NOTICE_BYTES_MAX - name.len()];
    assert_eq!(post(store, &name, &[&text[..], b"x"].concat(), HOUR).await, Post::TooLong);
    assert_eq!(up(store, &name).await, None);
    assert_eq!(post(store, &name, &text, HOUR).await, Post::Done, "exactly as long as it may be");

    // By bytes.
    let mut ours = vec![name];
    while ours.len() < BOARD_BYTES_MAX / (NOTICE_BYTES_MAX + NOTICE_OVERHEAD) {
        ours.push(unique_prefix());
        let text = &text[..NOTICE_BYTES_MAX - ours[ours.len() - 1].len()];
        assert_eq!(post(store, &ours[ours.len() - 1], text, HOUR).await, Post::Done, "{} are up", ours.len());
    }
    let before = version(store).await;
    let last = unique_prefix();
    assert_eq!(post(store, &last, &text[..NOTICE_BYTES_MAX - last.len()], HOUR).await, Post::Full);
    assert_eq!((up(store, &last).await, version(store).await), (None, before), "nothing changed");
    assert_eq!(post(store, &ours[0], &text[..1], HOUR).await, Post::Done, "another in its place fits");
    assert_eq!(post(store, &last, &text[..8], HOUR).await, Post::Done, "and leaves room");

    // By number, once those have ended.
    time.forward(HOUR);
    let name = unique_prefix();
    for at in 0..NOTICES_MAX {
        assert_eq!(post(store, &format!("{name}-{at}"), b"", HOUR).await, Post::Done, "{at} are up");
    }
    assert_eq!(post(store, &name, b"", HOUR).await, Post::Full);
    assert_eq!(post(store, &format!("{name}-0"), b"again", HOUR).await, Post::Done);
    take_down(store, &format!("{name}-1")).await;
    assert_eq!(post(store, &name, b"", HOUR).await, Post::Done);
    let board = store.board(UNSEEN).await.expect("the store answers").expect("nobody has seen it");
    assert_eq!(board.notices.len(), NOTICES_MAX);
    time.forward(HOUR);
    let board = store.board(UNSEEN).await.expect("the store answers").expect("nobody has seen it");
    assert_eq!(board.notices, []);
}

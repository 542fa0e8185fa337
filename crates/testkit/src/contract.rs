//! What every store promises, as one suite over the `Store` trait.
//!
//! A store is asked as the engine asks it, and its clock is moved by the test; nothing here knows
//! where state lives. Each case has subjects of its own, so the store may be used by others.

mod board;
mod cases;
mod limits;
mod push;

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::algorithm::Kind;
use tollgate_core::store::Store;

use crate::ClockShim;

/// Moves the clock that a store reads its state by.
///
/// The clock stands still between two moves: the contract is exact to the microsecond.
pub trait TestTime {
    /// Moves it forward.
    fn forward(&self, by: Duration);

    /// Moves it back.
    fn back(&self, by: Duration);
}

/// A Redis on a frozen clock.
impl TestTime for ClockShim {
    fn forward(&self, by: Duration) {
        self.step(by);
    }

    fn back(&self, by: Duration) {
        self.step_back(by);
    }
}

/// Holds a store to its contract, on a clock that stands still until it is moved.
///
/// Panics at the first promise that is broken, and says which.
pub async fn store_contract<S: Store>(store: &Arc<S>, time: &(impl TestTime + Sync)) {
    for kind in Kind::ALL {
        kind_contract(store, time, kind).await;
    }
    asks_contract(store, time).await;
    board::a_notice_is_up_until_it_ends_or_is_taken_down(&**store, time).await;
    board::a_board_is_given_once_for_every_change(&**store).await;
    board::a_board_has_room_for_so_much(&**store, time).await;
    push::what_is_called_out_is_heard_by_all_in_order(&**store).await;
}

/// What it promises for one algorithm.
pub async fn kind_contract<S: Store>(store: &Arc<S>, time: &(impl TestTime + Sync), kind: Kind) {
    cases::a_new_limit_is_whole(&**store, kind).await;
    cases::a_limit_is_spent_and_comes_back(&**store, time, kind).await;
    cases::a_refusal_changes_nothing(&**store, time, kind).await;
    cases::a_peek_spends_nothing(&**store, kind).await;
    cases::a_cost_above_the_limit_is_never(&**store, kind).await;
    cases::a_refund_gives_back_and_never_above_the_limit(&**store, kind).await;
    cases::a_refund_of_an_older_window_gives_nothing(&**store, time, kind).await;
    cases::forgetting_makes_whole(&**store, kind).await;
    cases::a_changed_limit_keeps_its_state(&**store, kind).await;
    cases::a_small_step_back_neither_admits_nor_locks_out(&**store, time, kind).await;
    cases::a_large_step_back_locks_nobody_out(&**store, time, kind).await;
    cases::many_at_once_admit_exactly_the_limit(store, kind).await;
}

/// What it promises for asks of several checks, the algorithms mixed.
pub async fn asks_contract<S: Store>(store: &Arc<S>, time: &(impl TestTime + Sync)) {
    cases::all_or_nothing(&**store).await;
    cases::answers_come_in_the_order_asked(&**store).await;
    cases::a_refund_of_a_log_is_done_once(&**store).await;
    cases::sixty_four_checks_are_one_ask(&**store).await;
    cases::each_by_itself_is_one_after_the_other(&**store, time).await;
    cases::many_at_once_spend_all_or_nothing(store).await;
}

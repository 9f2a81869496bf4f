//! Where a session starts to look for messages.

use std::cell::Cell;

use idem_rules::action::{Span, Time};
use idem_rules::outbox::SHORTEST_REST;

/// Rows of outboxes are looked for from here on.
///
/// Claims that looked from the start would walk through what was delivered while an old snapshot keeps VACUUM from
/// removing it. The cursor is a hint in this session's memory: every so often a claim looks from the start, so nothing
/// rests on it.
pub struct Cursor {
    pub(super) low: Cell<i64>,
    /// No message before this place will still be put, once every transaction with an id below the second number has
    /// ended.
    pub(super) next: Cell<Option<(i64, u64)>>,
    /// Where looking may start once this transaction, which had changed something before it looked, has committed.
    pub(super) promised: Cell<Option<i64>>,
    pub(super) claims: Cell<u64>,
    pub(super) looked_from_start: Cell<Time>,
    pub(super) looked_for_retries: Cell<Time>,
}

/// Claims between two looks at the cursor.
pub(super) const CURSOR_EVERY: u64 = 8;

/// How often a claim looks from the start.
pub(super) const FROM_START_EVERY: Span = 60 * 1_000_000;

impl Cursor {
    /// True when nobody in this session has looked for messages that failed before within the shortest time that one
    /// rests: there can hardly be new ones.
    pub fn is_time_for_retries(&self, now: Time) -> bool {
        let since = now.saturating_sub(self.looked_for_retries.get());
        let time = !(0..SHORTEST_REST).contains(&since);
        if time {
            self.looked_for_retries.set(now);
        }
        time
    }

    /// A message was found there, before the place that looking started from.
    pub(super) fn lower(&self, seq: i64) {
        self.low.set(self.low.get().min(seq));
        self.promised.set(self.promised.get().map(|place| place.min(seq)));
    }

    pub(super) fn wants_a_place(&self) -> bool {
        self.next.get().is_none()
    }
}

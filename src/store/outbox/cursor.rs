//! Where a session starts to look for messages.

use std::cell::Cell;

use idem_rules::action::{Span, Time};
use idem_rules::outbox::SHORTEST_REST;

use super::Outbox;
use crate::server;

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
const CURSOR_EVERY: u64 = 8;

/// How often a claim looks from the start.
const FROM_START_EVERY: Span = 60 * 1_000_000;

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

    fn wants_a_place(&self) -> bool {
        self.next.get().is_none()
    }
}

impl Outbox {
    /// Where this claim looks from, and its number.
    pub fn begin_claim(&self, now: Time) -> (i64, u64) {
        let cursor = &self.cursor;
        let claims = cursor.claims.get();
        cursor.claims.set(claims + 1);
        if claims.is_multiple_of(CURSOR_EVERY) {
            self.move_cursor();
        }
        let since = now.saturating_sub(cursor.looked_from_start.get());
        if !(0..FROM_START_EVERY).contains(&since) {
            cursor.looked_from_start.set(now);
            return (i64::MIN, claims);
        }
        (cursor.low.get(), claims)
    }

    /// Moves the cursor to the first message that is not delivered, once nobody can still commit one before it.
    fn move_cursor(&self) {
        let cursor = &self.cursor;
        // An older snapshot does not see what was committed late.
        if server::repeatable_read() {
            return;
        }
        let Some((place, xid)) = cursor.next.get() else { return };
        // Whoever could still commit a message before that place took his id before it was seen.
        if server::oldest_running().0 < xid {
            return;
        }
        // What this transaction has delivered counts from its commit. What a savepoint may still take back never does.
        let has_changed = server::has_transaction_id();
        if has_changed && server::in_subtransaction() {
            return;
        }
        // What those committed since then is seen by a statement that begins now.
        let first = self.first(cursor.low.get());
        let place = first.map_or(place, |first| first.min(place));
        cursor.next.set(None);
        match has_changed {
            true => cursor.promised.set(Some(place)),
            false => cursor.low.set(place),
        }
    }

    /// Looks, now and then, where the cursor may stand.
    pub fn mind_cursor(&self, from: i64, turn: u64) {
        let cursor = &self.cursor;
        if !turn.is_multiple_of(CURSOR_EVERY) || !cursor.wants_a_place() {
            return;
        }
        if let Some(seq) = self.first(from) {
            cursor.next.set(Some((seq, server::oldest_running().1)));
        }
    }
}

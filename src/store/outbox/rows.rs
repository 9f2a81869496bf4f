//! Messages put, claimed and acknowledged without a statement, where the table needs none.

use idem_rules::action::Time;
use idem_rules::outbox::ClaimId;
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use crate::server;
use crate::server::Changed;
use crate::server::direct::{Direct, Shown, Wanted, made_visible};
use crate::server::query::Relation;

use super::message::{COLUMNS, Claiming, Content, Found, GIVEN, New, at};

const WANTED: Wanted = Wanted {
    columns: &COLUMNS,
    given: GIVEN,
    at_times_null: &[at::HEADERS, at::ACTION_ID, at::DUE_AT],
    ascending: at::SEQ,
    unique: at::ID,
};

/// The rows of an outbox.
pub(super) struct Rows(Direct);

impl Rows {
    /// Those of `table`, which is locked and fits; `None` where they have to be reached by statements.
    pub fn of(table: Relation) -> Option<Rows> {
        Direct::of(table, &WANTED).map(Rows)
    }

    /// Adds messages, which go without their action's key.
    pub fn insert(&self, messages: &[(New, Content)]) {
        if messages.is_empty() {
            return;
        }
        let rows: Vec<_> = messages.iter().map(|(new, content)| content.given(new)).collect();
        self.0.open().insert(&rows);
    }

    /// Up to `max` messages that were never kept from delivery and that nobody holds, from place `from` on. Those that
    /// somebody was at before are locked.
    pub fn new_ones(&self, from: i64, now: Time, max: i64) -> Vec<Found> {
        let (open, mut found) = (self.0.open(), Vec::new());
        if max <= 0 {
            return found;
        }
        open.each_from(from, |shown| {
            let lease_expires_at = shown.column(at::LEASE_EXPIRES_AT).map(server::time_of);
            let is_held = lease_expires_at.is_some_and(|end| now < end);
            if is_held || shown.column(at::DUE_AT).is_some() {
                return true;
            }
            let is_free = shown.is_free();
            if is_free || shown.lock() == Changed::Done {
                let version = shown.version();
                found.push(Found::as_it_stands(open.read(&version), version, !is_free));
            }
            (found.len() as i64) < max
        });
        found
    }

    /// The place of the first message from `from` on that is not delivered and was never kept from it.
    pub fn first(&self, from: i64) -> Option<i64> {
        let (open, mut first) = (self.0.open(), None);
        open.each_from(from, |shown| {
            if shown.column(at::DUE_AT).is_none() {
                first = seq(shown);
            }
            first.is_none()
        });
        first
    }

    /// Locks a message, unless somebody else is at it.
    pub fn hold(&self, message: &Found) -> bool {
        message.version().is_some_and(|version| self.0.open().lock(version) == Changed::Done)
    }

    /// Gives messages to a claim: those that nobody else had got hold of.
    pub fn take(&self, messages: Vec<Found>, claim: &Claiming) -> Vec<Found> {
        let open = self.0.open();
        let until = Some(server::time_datum(claim.until));
        let taken = messages
            .into_iter()
            .filter(|message| {
                let changes = [
                    (at::ATTEMPTS, Some(Datum::from(message.message.attempts + 1))),
                    (at::CLAIM_ID, Some(server::uuid_datum(claim.claim_id))),
                    (at::LEASE_EXPIRES_AT, until),
                    (at::RELAY, claim.relay),
                ];
                message.version().is_some_and(|version| open.update(version, &changes) == Changed::Done)
            })
            .collect();
        made_visible();
        taken
    }

    /// Removes messages of a claim that carry nothing: the ids of those that were. Waits for nobody.
    pub fn remove_plain(&self, ids: &[Uuid], claim_id: Uuid) -> Vec<Uuid> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return ids;
        }
        let mut removed = Vec::with_capacity(ids.len());
        let mut remove = |id, shown: &Shown| {
            let is_its = shown.column(at::CLAIM_ID).map(server::uuid_of) == Some(claim_id);
            let carries = shown.column(at::CARRIES).is_some_and(|carries| carries.value() != 0);
            let is_delivered = shown.column(at::DELIVERED_AT).is_some();
            if is_its && !carries && !is_delivered && shown.delete() == Changed::Done {
                removed.push(id);
            }
        };
        let (open, (first, last)) = (self.0.open(), ClaimId(claim_id).places());
        // A claim's messages mostly stand in a row: walking along it takes less than looking each of them up.
        let (mut seen, mut steps) = (Vec::with_capacity(ids.len()), 2 * ids.len());
        if first > i64::MIN {
            open.each_from(first, |shown| {
                if seq(shown).is_none_or(|seq| seq > last) {
                    return false;
                }
                let id = shown.column(at::ID).map(server::uuid_of);
                if let Some(id) = id.filter(|id| ids.binary_search(id).is_ok()) {
                    seen.push(id);
                    remove(id, shown);
                }
                steps -= 1;
                steps > 0 && seen.len() < ids.len()
            });
        }
        seen.sort_unstable();
        ids.retain(|id| seen.binary_search(id).is_err());
        open.each_of(&ids, remove);
        made_visible();
        removed
    }
}

fn seq(shown: &Shown) -> Option<i64> {
    shown.column(at::SEQ).map(|seq| seq.value() as i64)
}

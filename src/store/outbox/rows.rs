//! Messages put, claimed and acknowledged without a statement, where the table needs none.

use idem_rules::action::Time;
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use crate::server;
use crate::server::Changed;
use crate::server::direct::{Direct, Wanted, made_visible};
use crate::server::query::Relation;

use super::message::{COLUMNS, Claiming, Content, Found, GIVEN, New, at};

const WANTED: Wanted = Wanted {
    columns: &COLUMNS,
    given: GIVEN,
    at_times_null: &[at::HEADERS - 1, at::ACTION_ID - 1, at::DUE_AT - 1],
    ascending: at::SEQ - 1,
    unique: at::ID - 1,
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
        let rows: Vec<[Option<Datum>; GIVEN]> = messages
            .iter()
            .map(|(new, content)| {
                [
                    Some(server::uuid_datum(new.id)),
                    content.aggregatetype,
                    content.aggregateid,
                    content.r#type,
                    content.payload,
                    content.headers,
                    content.action_id.map(server::uuid_datum),
                    Some(Datum::from(new.carries)),
                    content.available_at.map(server::time_datum),
                ]
            })
            .collect();
        self.0.open().insert(&rows);
    }

    /// Up to `max` messages that were never kept from delivery and that nobody holds, from place `from` on. Those that
    /// somebody was at before are locked.
    pub fn new_ones(&self, from: i64, now: Time, max: i64) -> Vec<Found> {
        let (open, mut found) = (self.0.open(), Vec::new());
        if max <= 0 {
            return found;
        }
        open.each_from(from, |version| {
            let row = open.read(version);
            let is_held = row.time(at::LEASE_EXPIRES_AT).is_some_and(|end| now < end);
            if row.time(at::DUE_AT).is_some() || is_held {
                return true;
            }
            let is_free = version.is_free();
            if is_free || open.lock(version) == Changed::Done {
                let version = version.copied();
                found.push(Found::as_it_stands(open.read(&version), version, !is_free));
            }
            (found.len() as i64) < max
        });
        found
    }

    /// The place of the first message from `from` on that is not delivered and was never kept from it.
    pub fn first(&self, from: i64) -> Option<i64> {
        let (open, mut first) = (self.0.open(), None);
        open.each_from(from, |version| {
            let row = open.read(version);
            first = row.big(at::SEQ).filter(|_| row.time(at::DUE_AT).is_none());
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
                    (at::ATTEMPTS - 1, Some(Datum::from(message.message.attempts + 1))),
                    (at::CLAIM_ID - 1, Some(server::uuid_datum(claim.claim_id))),
                    (at::LEASE_EXPIRES_AT - 1, until),
                    (at::RELAY - 1, claim.relay),
                ];
                message.version().is_some_and(|version| open.update(version, &changes) == Changed::Done)
            })
            .collect();
        made_visible();
        taken
    }

    /// Removes messages of a claim that carry nothing: the ids of those that were. Waits for nobody.
    pub fn remove_plain(&self, ids: &[Uuid], claim_id: Uuid) -> Vec<Uuid> {
        // In the order in which everybody gets hold of several.
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let (open, mut removed) = (self.0.open(), Vec::with_capacity(ids.len()));
        open.each_of(&ids, |id, version| {
            let row = open.read(version);
            let is_its = row.uuid(at::CLAIM_ID) == Some(claim_id);
            let is_plain = !row.flag(at::CARRIES) && row.time(at::DELIVERED_AT).is_none();
            if is_its && is_plain && open.delete(version) == Changed::Done {
                removed.push(id);
            }
        });
        made_visible();
        removed
    }
}

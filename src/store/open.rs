//! Actions off the hot path: `idem_open`, a narrow table with the queues' indexes.
//!
//! A place in it is a hint, judged again by the ledger's row whenever somebody comes by. Whoever changes an
//! action's row also sets its place; a sweep that finds a row held by another transaction notes it here.

use std::time::Duration;

use idem_rules::action::Time;
use idem_rules::error::Result;
use idem_rules::expiry::Open;
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use crate::server::{self, Bound, Call, Changed, Column, Key, Row, Spec, Table, Tick, Type, Values};

const SPEC: Spec = Spec {
    place: 1,
    name: c"idem_open",
    columns: &[
        Column("action_id", Type::Uuid),
        Column("queue", Type::Text),
        Column("due_at", Type::Time),
        Column("visit_at", Type::Time),
        Column("tenant", Type::Text),
        Column("action_type", Type::Text),
    ],
    indexes: &[c"idem_open_pkey", c"idem_open_visit_at", c"idem_open_queue"],
};

const ACTION_ID: usize = 0;
const QUEUE: usize = 1;
const DUE_AT: usize = 2;
const VISIT_AT: usize = 3;
const TENANT: usize = 4;
const ACTION_TYPE: usize = 5;

/// The table of open actions, open.
pub struct OpenActions(Table);

impl OpenActions {
    /// Opens it.
    pub fn open(call: &Call) -> Result<OpenActions> {
        Table::open(call, &SPEC).map(OpenActions)
    }

    fn find(&self, action_id: Uuid) -> Option<Row> {
        self.0.find(0, &key(action_id))
    }

    /// Gives the action the place `open`, or takes its place away. The caller holds the ledger's row.
    ///
    /// Only a sweep writes here without holding the ledger's row. There is one sweep at a time and it never waits for
    /// a ledger row, so waiting for its transaction here cannot close a circle.
    pub fn set(
        &self,
        action_id: Uuid,
        open: Option<Open>,
        tenant: Option<Datum>,
        action_type: Option<Datum>,
    ) -> Result<()> {
        let new = open.map(|open| values(action_id, open, tenant, action_type));
        let mut pace = Tick::default();
        loop {
            let row = self.find(action_id);
            let changed = match (&row, &new) {
                (None, None) => Changed::Done,
                (None, Some(new)) if self.0.insert_unless_present(new) => Changed::Done,
                (None, Some(_)) if self.0.is_being_written(0, &key(action_id)) => Changed::Busy,
                (None, Some(_)) => Changed::Gone,
                (Some(row), None) => self.0.delete(row),
                (Some(row), Some(new)) => self.0.update(row, new),
            };
            match changed {
                Changed::Done => return Ok(()),
                Changed::Gone if server::repeatable_read() => return Err(server::serialization()),
                Changed::Gone => {}
                Changed::Busy => server::tick(&mut pace, Duration::MAX),
            }
        }
    }

    /// Notes an action that a sweep could not judge because another transaction holds its row. Does not wait.
    pub fn note(&self, action_id: Uuid, open: Open, tenant: Option<Datum>, action_type: Option<Datum>) {
        if self.find(action_id).is_none() {
            self.0.insert_unless_present(&values(action_id, open, tenant, action_type));
        }
    }

    /// Sets right a place that a sweep found out of date. Does not wait; the next sweep comes by again.
    pub fn mend(
        &self,
        action_id: Uuid,
        open: Option<Open>,
        tenant: Option<Datum>,
        action_type: Option<Datum>,
    ) {
        let Some(row) = self.find(action_id) else { return };
        match open {
            Some(open) => self.0.update(&row, &values(action_id, open, tenant, action_type)),
            None => self.0.delete(&row),
        };
    }

    /// Identities whose place has to be visited by `up_to`, earliest first, at most `max`.
    pub fn to_visit(&self, up_to: Time, max: usize) -> Result<Vec<Uuid>> {
        let mut found = Vec::new();
        self.0.each(1, &[Key(1, Bound::UpTo(up_to))], |row| {
            found.extend(row.values.uuid(ACTION_ID));
            Ok(found.len() < max)
        })?;
        Ok(found)
    }

    /// Puts off the visit of an action that cannot be judged. Does not wait.
    pub fn put_off(&self, action_id: Uuid, until: Time) {
        if let Some(row) = self.find(action_id) {
            let mut values = row.values.clone();
            values.set_time(VISIT_AT, Some(until));
            self.0.update(&row, &values);
        }
    }

    /// Takes a place away whose action is gone. True unless another transaction holds it.
    pub fn forget(&self, action_id: Uuid) -> bool {
        self.find(action_id).is_none_or(|row| self.0.delete(&row) != Changed::Busy)
    }
}

fn key(action_id: Uuid) -> [Key; 1] {
    [Key(1, Bound::Uuid(action_id))]
}

fn values(action_id: Uuid, open: Open, tenant: Option<Datum>, action_type: Option<Datum>) -> Values {
    let mut values = Values::new();
    values.set_uuid(ACTION_ID, Some(action_id));
    values.set_text(QUEUE, Some(open.queue.word()));
    values.set_time(DUE_AT, Some(open.due_at));
    values.set_time(VISIT_AT, open.visit_at);
    values.set(TENANT, tenant);
    values.set(ACTION_TYPE, action_type);
    values
}

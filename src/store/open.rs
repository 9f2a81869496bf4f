//! Actions off the hot path: `idem_open`, a narrow table with the queues' indexes.
//!
//! A place in it is a hint, judged again by the ledger's row whenever somebody comes by. Whoever changes an
//! action's row also sets its place; a sweep that finds a row held by another transaction notes it here.

use std::borrow::Cow;

use idem_rules::action::Time;
use idem_rules::error::Result;
use idem_rules::expiry::{Open, QUEUES, Queue};
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use crate::server::{
    self, Bound, Call, Changed, Column, Index, Key, Row, Spec, Table, Tick, Type, Values, text_datum,
};

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
    indexes: &[
        Index::unique(c"idem_open_pkey", &["action_id"]),
        Index::plain(c"idem_open_visit", &["queue", "visit_at", "due_at"]),
        Index::plain(c"idem_open_queue", &["queue", "due_at"]),
    ],
};

const ACTION_ID: usize = 0;
const QUEUE: usize = 1;
const DUE_AT: usize = 2;
const VISIT_AT: usize = 3;
const TENANT: usize = 4;
const ACTION_TYPE: usize = 5;

/// Index of (queue, visit_at, due_at).
const VISIT: usize = 1;
/// Index of (queue, due_at).
const QUEUED: usize = 2;

/// One place in a queue.
pub struct Place(Row);

impl Place {
    /// Whose place it is.
    pub fn action_id(&self) -> Uuid {
        self.0.values.uuid(ACTION_ID).unwrap_or_default()
    }

    /// The action's tenant, in the database's encoding.
    pub fn tenant(&self) -> &[u8] {
        self.0.values.raw_text(TENANT).unwrap_or_default()
    }

    /// The action's type.
    pub fn action_type_name(&self) -> Result<Cow<'_, str>> {
        Ok(self.0.values.text(ACTION_TYPE)?.unwrap_or_default())
    }

    /// The action's type, in the database's encoding.
    pub fn action_type(&self) -> &[u8] {
        self.0.values.raw_text(ACTION_TYPE).unwrap_or_default()
    }
}

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
    /// Only a sweep writes here without holding the ledger's row, and it never waits for one. Its transaction can go on to
    /// do so; two that wait for each other end in 40P01. True when there was nothing to wait for.
    pub fn set(
        &self,
        action_id: Uuid,
        open: Option<Open>,
        tenant: Option<Datum>,
        action_type: Option<Datum>,
    ) -> Result<bool> {
        let new = open.map(|open| values(action_id, open, tenant, action_type));
        let (mut at_once, mut pace) = (true, Tick::default());
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
                Changed::Done => return Ok(at_once),
                Changed::Gone if server::repeatable_read() => return Err(server::serialization()),
                Changed::Gone => {}
                Changed::Busy => {
                    at_once = false;
                    self.wait_for(action_id, row.as_ref(), &mut pace);
                }
            }
        }
    }

    /// Holds an action's place without waiting, so that [`OpenActions::set`] will hardly have to wait for a sweep whose
    /// transaction goes on. Not [`Changed::Done`] where somebody has it.
    pub fn hold(&self, action_id: Uuid) -> Changed {
        match self.find(action_id) {
            Some(row) => self.0.lock(&row, false),
            None if self.0.is_being_written(0, &key(action_id)) => Changed::Busy,
            None => Changed::Done,
        }
    }

    /// Waits for whoever has the place of an action.
    pub fn wait(&self, action_id: Uuid) {
        self.wait_for(action_id, self.find(action_id).as_ref(), &mut Tick::default());
    }

    fn wait_for(&self, action_id: Uuid, row: Option<&Row>, pace: &mut Tick) {
        match row {
            Some(row) => drop(self.0.lock(row, true)),
            None => drop(self.0.wait_for_writer(0, &key(action_id), pace)),
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
        for queue in QUEUES {
            let mut taken = 0;
            self.0.each(VISIT, &[in_queue(queue), Key(2, Bound::UpTo(up_to))], |row| {
                found.extend(row.values.time(VISIT_AT).zip(row.values.uuid(ACTION_ID)));
                taken += 1;
                Ok(taken < max)
            })?;
        }
        found.sort_unstable();
        Ok(found.into_iter().take(max).map(|(_, action_id)| action_id).collect())
    }

    /// Places in `queue` that are due at `now`, the longest due first, until `take` says false.
    pub fn each_due(
        &self,
        queue: Queue,
        now: Time,
        mut take: impl FnMut(Place) -> Result<bool>,
    ) -> Result<()> {
        self.0.each(QUEUED, &[in_queue(queue), Key(2, Bound::UpTo(now))], |row| take(Place(row)))
    }

    /// Places in `queue` that are due at `now` and to be visited later than that, the earliest visit first, until
    /// `take` says false. For the queue of reconciliation: those before their deadline, the nearest first.
    pub fn each_due_by_visit(
        &self,
        queue: Queue,
        now: Time,
        mut take: impl FnMut(Place) -> Result<bool>,
    ) -> Result<()> {
        let keys = [in_queue(queue), Key(2, Bound::After(now)), Key(3, Bound::UpTo(now))];
        self.0.each(VISIT, &keys, |row| take(Place(row)))
    }

    /// Puts off the visit of an action that cannot be judged. Does not wait.
    pub fn put_off(&self, action_id: Uuid, until: Time) {
        if let Some(row) = self.find(action_id) {
            let mut values = row.values.clone();
            values.set_time(VISIT_AT, Some(until));
            self.0.update(&row, &values);
        }
    }

    /// Puts an action where only its client comes for it. Does not wait; a change of the action puts it back.
    pub fn leave_to_client(&self, place: &Place) {
        let mut values = place.0.values.clone();
        values.set_text(QUEUE, Some(Queue::Client.word()));
        self.0.update(&place.0, &values);
    }

    /// Takes a place away whose action is gone. True unless another transaction holds it.
    pub fn forget(&self, action_id: Uuid) -> bool {
        self.find(action_id).is_none_or(|row| self.0.delete(&row) != Changed::Busy)
    }
}

fn in_queue(queue: Queue) -> Key {
    Key(1, Bound::Text(text_datum(queue.word())))
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

//! A message as it is stored, and as it is put.

use idem_rules::action::Time;
use idem_rules::outbox::Message;
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use crate::server::Values;

/// A message as a statement returned it.
pub struct Found {
    row: Values,
    /// What the rules see of it.
    pub message: Message,
}

/// The columns that every look at messages returns, in the order of [`Found`]'s getters.
pub(super) const COLUMNS: &str = "m.ctid, m.id, m.aggregatetype, m.aggregateid, m.type, m.payload, m.headers, m.action_id, \
     m.carries, m.created_at, m.seq, m.attempts, m.due_at, m.claim_id, m.lease_expires_at, m.fence, m.delivered_at, \
     m.dead_at";

impl Found {
    pub(super) fn read(row: Values) -> Found {
        let message = Message {
            attempts: row.count(11),
            lease_expires_at: row.time(14),
            delivered: row.time(16).is_some(),
            dead: row.time(17).is_some(),
        };
        Found { row, message }
    }

    /// Where the row's version stands: valid while this transaction holds its lock.
    pub(super) fn place(&self) -> Datum {
        self.row.datum(0).unwrap_or(Datum::from(0))
    }

    /// The message's id.
    pub fn id(&self) -> Uuid {
        self.row.uuid(1).unwrap_or_default()
    }

    /// aggregatetype, aggregateid, type, payload or headers, as stored.
    pub fn content(&self, n: usize) -> Option<Datum> {
        self.row.datum(2 + n)
    }

    /// The action it is linked to.
    pub fn action_id(&self) -> Option<Uuid> {
        self.row.uuid(7)
    }

    /// The action it carries.
    pub fn carries(&self) -> Option<Uuid> {
        self.action_id().filter(|_| self.row.flag(8))
    }

    /// When it was put.
    pub fn created_at(&self) -> Time {
        self.row.time(9).unwrap_or(Time::MIN)
    }

    /// Its place in the order of messages.
    pub fn seq(&self) -> i64 {
        self.row.big(10).unwrap_or(0)
    }

    /// The last claim's token.
    pub fn claim_id(&self) -> Option<Uuid> {
        self.row.uuid(13)
    }

    /// The fence of the attempt that the last claim was granted.
    pub fn fence(&self) -> Option<i64> {
        self.row.big(15)
    }
}

/// A message to be put.
#[derive(Clone, Copy)]
pub struct New {
    /// Its id.
    pub id: Uuid,
    /// Whether it carries its action.
    pub carries: bool,
}

/// What a message says, checked, as datums to be stored.
#[derive(Clone, Copy)]
pub struct Content {
    /// The message's columns in the order of [`COLUMNS`].
    pub aggregatetype: Option<Datum>,
    /// See above.
    pub aggregateid: Option<Datum>,
    /// See above.
    pub r#type: Option<Datum>,
    /// See above.
    pub payload: Option<Datum>,
    /// See above.
    pub headers: Option<Datum>,
    /// The action's key, for the headers.
    pub key: Option<Datum>,
    /// See above.
    pub action_id: Option<Uuid>,
    /// Not before then.
    pub available_at: Option<Time>,
}

/// Who claims.
pub struct Claiming {
    /// The claim's token.
    pub claim_id: Uuid,
    /// Until when it holds.
    pub until: Time,
    /// Who says so.
    pub relay: Option<Datum>,
}

//! A message as it is stored, and as it is put.

use idem_rules::action::Time;
use idem_rules::outbox::Message;
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use crate::server::direct::Version;
use crate::server::{self, Values};

/// The columns of a message. New ones are given the first [`GIVEN`] of them.
pub(super) const COLUMNS: [&str; 18] = [
    "id",
    "aggregatetype",
    "aggregateid",
    "type",
    "payload",
    "headers",
    "action_id",
    "carries",
    "due_at",
    "created_at",
    "seq",
    "attempts",
    "claim_id",
    "lease_expires_at",
    "fence",
    "delivered_at",
    "dead_at",
    "relay",
];

/// How many columns a new message is given.
pub(super) const GIVEN: usize = 9;

/// Where columns stand among [`COLUMNS`], and so in a message that was read; behind them stands the row's own place.
pub(super) mod at {
    pub const ID: usize = 0;
    pub const AGGREGATETYPE: usize = 1;
    pub const HEADERS: usize = 5;
    pub const ACTION_ID: usize = 6;
    pub const CARRIES: usize = 7;
    pub const DUE_AT: usize = 8;
    pub const CREATED_AT: usize = 9;
    pub const SEQ: usize = 10;
    pub const ATTEMPTS: usize = 11;
    pub const CLAIM_ID: usize = 12;
    pub const LEASE_EXPIRES_AT: usize = 13;
    pub const FENCE: usize = 14;
    pub const DELIVERED_AT: usize = 15;
    pub const DEAD_AT: usize = 16;
    pub const RELAY: usize = 17;
    pub const PLACE: usize = super::COLUMNS.len();
}

/// A message as it was read.
pub struct Found {
    row: Values,
    /// What the rules see of it.
    pub message: Message,
    /// The row itself, of one that was read without a statement.
    version: Option<Version>,
    is_locked: bool,
}

impl Found {
    /// One that a statement has locked and returned.
    pub(super) fn read(row: Values) -> Found {
        Found { message: judged(&row), row, version: None, is_locked: true }
    }

    /// One that was read without a statement.
    pub(super) fn as_it_stands(row: Values, version: Version, is_locked: bool) -> Found {
        Found { message: judged(&row), row, version: Some(version), is_locked }
    }

    /// The row, of one that was read without a statement.
    pub(super) fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// False while others can still get hold of it: what is decided about it may come to nothing.
    pub(super) fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Where the row's version stands: valid while this transaction holds its lock.
    pub(super) fn place(&self) -> Datum {
        self.row.datum(at::PLACE).unwrap_or(Datum::from(0))
    }

    /// The message's id.
    pub fn id(&self) -> Uuid {
        self.row.uuid(at::ID).unwrap_or_default()
    }

    /// aggregatetype, aggregateid, type, payload or headers, as stored.
    pub fn content(&self, n: usize) -> Option<Datum> {
        self.row.datum(at::AGGREGATETYPE + n)
    }

    /// The action it is linked to.
    pub fn action_id(&self) -> Option<Uuid> {
        self.row.uuid(at::ACTION_ID)
    }

    /// The action it carries.
    pub fn carries(&self) -> Option<Uuid> {
        self.action_id().filter(|_| self.row.flag(at::CARRIES))
    }

    /// When it was put.
    pub fn created_at(&self) -> Time {
        self.row.time(at::CREATED_AT).unwrap_or(Time::MIN)
    }

    /// Its place in the order of messages.
    pub fn seq(&self) -> i64 {
        self.row.big(at::SEQ).unwrap_or(0)
    }

    /// The last claim's token.
    pub fn claim_id(&self) -> Option<Uuid> {
        self.row.uuid(at::CLAIM_ID)
    }

    /// The fence of the attempt that the last claim was granted.
    pub fn fence(&self) -> Option<i64> {
        self.row.big(at::FENCE)
    }
}

fn judged(row: &Values) -> Message {
    Message {
        attempts: row.count(at::ATTEMPTS),
        lease_expires_at: row.time(at::LEASE_EXPIRES_AT),
        delivered: row.time(at::DELIVERED_AT).is_some(),
        dead: row.time(at::DEAD_AT).is_some(),
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

impl Content {
    /// What the first [`GIVEN`] columns of a new message are given.
    pub(super) fn given(&self, new: &New) -> [Option<Datum>; GIVEN] {
        [
            Some(server::uuid_datum(new.id)),
            self.aggregatetype,
            self.aggregateid,
            self.r#type,
            self.payload,
            self.headers,
            self.action_id.map(server::uuid_datum),
            Some(Datum::from(new.carries)),
            self.available_at.map(server::time_datum),
        ]
    }
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

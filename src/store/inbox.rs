//! Messages that consumers have seen: `idem_inbox`.

use idem_rules::action::Time;
use idem_rules::error::Result;
use pgrx::pg_sys::Datum;

use crate::server::{self, Bound, Call, Changed, Column, Key, Spec, Table, Tick, Type, Values};

const SPEC: Spec = Spec {
    place: 14,
    name: c"idem_inbox",
    columns: &[
        Column("message_id", Type::Text),
        Column("consumer", Type::Text),
        Column("tenant", Type::Text),
        Column("first_seen_at", Type::Time),
        Column("payload", Type::Bytes),
    ],
    indexes: &[c"idem_inbox_pkey", c"idem_inbox_first_seen_at"],
};

/// The inbox, open.
pub struct Inbox(Table);

/// Which message, to whom; as stored.
#[derive(Clone, Copy)]
pub struct Name {
    /// The message's id.
    pub message_id: Datum,
    /// Who consumes it.
    pub consumer: Datum,
    /// Whose message it is.
    pub tenant: Datum,
}

/// A message seen before.
pub struct Seen {
    /// When it was accepted.
    pub first_seen_at: Time,
    /// Its payload's digest, where one was given.
    pub payload: Option<Vec<u8>>,
}

impl Inbox {
    /// Opens it.
    pub fn open(call: &Call) -> Result<Inbox> {
        Table::open(call, &SPEC).map(Inbox)
    }

    /// Remembers a message unless it is known: then what is known of it. Waits for a transaction that has not ended and
    /// accepts the same one; two that wait for each other end in 40P01.
    pub fn remember(&self, name: Name, now: Time, payload: Option<&[u8]>) -> Result<Option<Seen>> {
        let keys = [
            Key(1, Bound::Text(name.message_id)),
            Key(2, Bound::Text(name.consumer)),
            Key(3, Bound::Text(name.tenant)),
        ];
        let mut pace = Tick::default();
        let mut contested = false;
        loop {
            server::serve_interrupts();
            if let Some(row) = self.0.find(0, &keys) {
                let first_seen_at = row.values.time(3).unwrap_or(now);
                return Ok(Some(Seen { first_seen_at, payload: row.values.bytes(4).map(<[u8]>::to_vec) }));
            }
            let mut values = Values::new();
            values.set(0, Some(name.message_id));
            values.set(1, Some(name.consumer));
            values.set(2, Some(name.tenant));
            values.set_time(3, Some(now));
            values.set_bytes(4, payload);
            // Once a rival was met, look for one before inserting again: an insertion that is taken back leaves a dead row.
            if contested && self.0.wait_for_writer(0, &keys, &mut pace) {
                continue;
            }
            if self.0.insert_unless_present(&values) {
                return Ok(None);
            }
            contested = true;
            if !self.0.wait_for_writer(0, &keys, &mut pace) && server::repeatable_read() {
                return Err(server::serialization());
            }
        }
    }

    /// Forgets at most `max` messages that were seen by `up_to`. How many.
    pub fn forget(&self, up_to: Time, max: usize) -> Result<usize> {
        let mut forgotten = 0;
        self.0.each(1, &[Key(1, Bound::UpTo(up_to))], |row| {
            if forgotten < max && self.0.delete(&row) == Changed::Done {
                forgotten += 1;
            }
            Ok(forgotten < max)
        })?;
        Ok(forgotten)
    }
}

//! How far the worker has come along the ledger: `idem_cursor`, one row a purpose.
//!
//! A cursor at time t says: every row with `visit_at` up to t has been visited. A row's `visit_at` lies after the
//! moment its transaction got its id (see [`crate::server::assign_transaction_id`]), so t is safe once every
//! transaction that had an id at t has ended, prepared ones included. Therefore a cursor keeps a horizon: a time,
//! and the first transaction id that had not been given out then. Cursors are not dumped: transaction ids mean
//! nothing in another cluster, and starting over only costs time.
//!
//! The inbox has no index to follow. Its cursor says what the last pass over its pages was for, and how far it has come.

use idem_rules::action::Time;
use idem_rules::error::{Code, Error, Result};

use crate::server::{Bound, Call, Changed, Column, Index, Key, Row, Spec, Table, Type, text_datum};

const SPEC: Spec = Spec {
    place: 6,
    name: c"idem_cursor",
    columns: &[
        Column("purpose", Type::Text),
        Column("visited_to", Type::Time),
        Column("horizon_at", Type::Time),
        Column("horizon_xid", Type::Big),
        Column("page", Type::Big),
    ],
    indexes: &[Index::unique(c"idem_cursor_pkey", &["purpose"])],
};

/// A purpose's cursor, locked for this transaction.
pub struct Cursor {
    table: Table,
    row: Row,
    /// Rows up to this `visit_at` have been visited.
    pub visited_to: Time,
}

impl Cursor {
    /// How far the cursor of `purpose` has come, as of now.
    pub fn peek(call: &Call, purpose: &str) -> Result<Time> {
        let keys = [Key(1, Bound::Text(text_datum(purpose)))];
        let row = Table::open(call, &SPEC)?.find(0, &keys);
        Ok(row.and_then(|row| row.values.time(1)).unwrap_or(Time::MIN))
    }

    /// Locks the cursor of `purpose`; `None` when another sweep has it, or it is missing.
    pub fn lock(call: &Call, purpose: &str) -> Result<Option<Cursor>> {
        let table = Table::open(call, &SPEC)?;
        let keys = [Key(1, Bound::Text(text_datum(purpose)))];
        let Some(row) = table.find(0, &keys) else { return Ok(None) };
        if table.lock(&row, false) != Changed::Done {
            return Ok(None);
        }
        let visited_to = row.values.time(1).unwrap_or(Time::MIN);
        Ok(Some(Cursor { table, row, visited_to }))
    }

    /// How far it is safe to go at `now`: every transaction that could still add a row before that has ended.
    ///
    /// `running` is what [`crate::server::oldest_running`] said after `now` was read. Also sets the next horizon.
    pub fn horizon(&mut self, now: Time, running: (u64, u64)) -> Time {
        let (oldest, next) = running;
        if oldest == next {
            return now;
        }
        let values = &mut self.row.values;
        let set = values.time(2).zip(values.big(3)).filter(|(at, _)| *at <= now);
        let reached = set.filter(|(_, xid)| *xid as u64 <= oldest);
        if reached.is_some() || set.is_none() {
            values.set_time(2, Some(now));
            values.set_big(3, Some(next as i64));
        }
        reached.map_or(Time::MIN, |(at, _)| at)
    }

    /// The page that a pass over a table has come to, where one is under way.
    pub fn page(&self) -> Option<u32> {
        self.row.values.big(4).map(|page| u32::try_from(page).unwrap_or(u32::MAX))
    }

    /// Stores how far the cursor has come.
    pub fn advance(self, visited_to: Time) -> Result<()> {
        self.turn(visited_to, None)
    }

    /// Stores what a pass began for, and the page that it has come to, `None` at its end.
    pub fn turn(self, began_for: Time, page: Option<u32>) -> Result<()> {
        let mut values = self.row.values.clone();
        values.set_time(1, Some(began_for));
        values.set_big(4, page.map(i64::from));
        match self.table.update(&self.row, &values) {
            Changed::Done => Ok(()),
            // Locked by this transaction, so nobody can have.
            _ => Err(Error::new(Code::Corrupted, "a locked cursor of the sweep has changed")),
        }
    }
}

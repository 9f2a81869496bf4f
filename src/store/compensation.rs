//! Which action compensates which: `idem_compensation`, one row a compensation.
//!
//! That an action has one live compensation at most rests on a unique index, on a column that names the parent as
//! long as the compensation is the live one. Whoever writes here holds the parent's row in the ledger, and that of the
//! compensation whose place is taken. Holding them changes neither, so who holds them afterwards has to look as of that
//! moment: an older snapshot of his would miss what was written.

use idem_rules::action::Time;
use idem_rules::error::{Code, Error, Result};
use uuid::Uuid;

use crate::server::{Bound, Call, Changed, Column, Index, Key, Row, Spec, Table, Type, Values};

const SPEC: Spec = Spec {
    place: 7,
    name: c"idem_compensation",
    columns: &[
        Column("action_id", Type::Uuid),
        Column("parent_id", Type::Uuid),
        Column("live_for", Type::Uuid),
        Column("made_at", Type::Time),
    ],
    indexes: &[
        Index::unique(c"idem_compensation_pkey", &["action_id"]),
        Index::unique(c"idem_compensation_live_for", &["live_for"]),
    ],
};

const ACTION_ID: usize = 0;
const PARENT_ID: usize = 1;
const LIVE_FOR: usize = 2;
const MADE_AT: usize = 3;

/// One compensation's tie to what it compensates.
pub struct Link {
    row: Row,
    /// The compensation.
    pub action_id: Uuid,
    /// What it compensates.
    pub parent_id: Uuid,
    /// No other one has taken its place.
    pub is_live: bool,
}

impl Link {
    fn read(row: Row) -> Link {
        let values = &row.values;
        Link {
            action_id: values.uuid(ACTION_ID).unwrap_or_default(),
            parent_id: values.uuid(PARENT_ID).unwrap_or_default(),
            is_live: values.uuid(LIVE_FOR).is_some(),
            row,
        }
    }
}

/// The tie of the compensation `action_id`; `None` when it is none.
pub fn of(call: &Call, action_id: Uuid) -> Result<Option<Link>> {
    Ok(Table::open(call, &SPEC)?.find_now(0, &[Key(1, Bound::Uuid(action_id))]).map(Link::read))
}

/// The tie of the compensation that stands for `parent_id`.
pub fn live(call: &Call, parent_id: Uuid) -> Result<Option<Link>> {
    Ok(Table::open(call, &SPEC)?.find_now(1, &[Key(1, Bound::Uuid(parent_id))]).map(Link::read))
}

/// Ties `action_id` to `parent_id`, in the place of `before`. False when another transaction is tying it just now.
pub fn tie(call: &Call, action_id: Uuid, parent_id: Uuid, before: Option<Link>, now: Time) -> Result<bool> {
    let table = Table::open(call, &SPEC)?;
    if let Some(before) = before {
        let mut values = before.row.values.clone();
        values.set_uuid(LIVE_FOR, None);
        if table.update(&before.row, &values) != Changed::Done {
            // The parent's row is held, so nobody can have.
            return Err(Error::new(Code::Corrupted, "the tie of a held action has changed"));
        }
    }
    let mut values = Values::new();
    values.set_uuid(ACTION_ID, Some(action_id));
    values.set_uuid(PARENT_ID, Some(parent_id));
    values.set_uuid(LIVE_FOR, Some(parent_id));
    values.set_time(MADE_AT, Some(now));
    Ok(table.insert_unless_present(&values))
}

/// Removes the tie of a compensation that is removed itself.
pub fn remove(call: &Call, action_id: Uuid) -> Result<()> {
    if let Some(link) = of(call, action_id)? {
        Table::open(call, &SPEC)?.delete(&link.row);
    }
    Ok(())
}

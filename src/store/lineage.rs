//! Which messages an action came from, and which came from it: `idem_link`.

use idem_rules::action::Time;
use idem_rules::error::Result;
use pgrx::pg_sys::Datum;
use uuid::Uuid;

use crate::server::query::Relation;
use crate::server::{self, Bound, Call, Column, Index, Key, Spec, Table, Type, Values};

const SPEC: Spec = Spec {
    place: 11,
    name: c"idem_link",
    columns: &[
        Column("action_id", Type::Uuid),
        Column("direction", Type::Text),
        Column("message_id", Type::Text),
        Column("place", Type::Text),
        Column("tenant", Type::Text),
        Column("at", Type::Time),
        Column("carrier_in", Type::Table),
    ],
    indexes: &[
        Index::unique(c"idem_link_pkey", &["action_id", "direction", "message_id"]),
        Index::plain(c"idem_link_message_id", &["message_id"]),
    ],
};

/// Which way a message went.
#[derive(Clone, Copy)]
pub enum Direction {
    /// The action was reserved by whoever accepted the message.
    In,
    /// The message was put into an outbox with the action's id: into that one, where it carries the action.
    Out(Option<Relation>),
}

/// The word of messages that came from actions.
const OUT: &str = "out";

impl Direction {
    fn word(self) -> &'static str {
        match self {
            Direction::In => "in",
            Direction::Out(_) => OUT,
        }
    }
}

/// Writes down that a message and an action belong together. `place` is the consumer or the outbox.
pub fn link(
    call: &Call,
    action_id: Uuid,
    direction: Direction,
    message_id: &str,
    place: &str,
    tenant: Option<Datum>,
    now: Time,
) -> Result<()> {
    let mut values = Values::new();
    values.set_uuid(0, Some(action_id));
    values.set_text(1, Some(direction.word()));
    values.set_text(2, Some(message_id));
    values.set_text(3, Some(place));
    values.set(4, tenant.or_else(|| Some(server::text_datum(""))));
    values.set_time(5, Some(now));
    if let Direction::Out(Some(outbox)) = direction {
        values.set_table(6, outbox);
    }
    Table::open(call, &SPEC)?.insert_unless_present(&values);
    Ok(())
}

/// True when it was written down that the message carries the action in `outbox`. The table counts, not its name.
pub fn is_carrier(call: &Call, action_id: Uuid, message_id: Uuid, outbox: Relation) -> Result<bool> {
    let text = |value: &str| Bound::Text(server::text_datum(value));
    let keys = [Key(1, Bound::Uuid(action_id)), Key(2, text(OUT)), Key(3, text(&message_id.to_string()))];
    let link = Table::open(call, &SPEC)?.find(0, &keys);
    Ok(link.is_some_and(|link| link.values.table(6) == Some(outbox)))
}

/// The messages that carry or have carried the action, and their outboxes.
pub fn carriers(call: &Call, action_id: Uuid) -> Result<Vec<(Relation, Uuid)>> {
    let mut carriers = Vec::new();
    let out = Bound::Text(server::text_datum(OUT));
    Table::open(call, &SPEC)?.each(0, &[Key(1, Bound::Uuid(action_id)), Key(2, out)], |row| {
        let message_id = row.values.text(2)?.and_then(|text| Uuid::parse_str(&text).ok());
        carriers.extend(row.values.table(6).zip(message_id));
        Ok(true)
    })?;
    Ok(carriers)
}

/// Removes the links of an action that is removed itself.
pub fn remove(call: &Call, action_id: Uuid) -> Result<()> {
    let table = Table::open(call, &SPEC)?;
    table.each(0, &[Key(1, Bound::Uuid(action_id))], |row| {
        table.delete(&row);
        Ok(true)
    })
}

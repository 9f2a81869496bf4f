//! The options of each outbox, `idem_outbox`, and what a table has to have.

use idem_rules::action::Span;
use idem_rules::error::{Code, Error, Result};
use pgrx::pg_sys::Datum;

use crate::server::query::Relation;
use crate::server::user_table::{self, Fit};
use crate::server::{self, Bound, Call, Changed, Column, Index, Key, Spec, Table, Type, Values};

const SPEC: Spec = Spec {
    place: 15,
    name: c"idem_outbox",
    columns: &[
        Column("outbox", Type::Table),
        Column("ordered", Type::Bool),
        Column("max_attempts", Type::Int),
        Column("keep_delivered", Type::Big),
        Column("notify_channel", Type::Text),
    ],
    indexes: &[Index::unique(c"idem_outbox_pkey", &["outbox"])],
};

/// What the owner of an outbox has chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Messages of one aggregateid are delivered in the order in which they were committed.
    pub ordered: bool,
    /// Claims before a message is a dead letter.
    pub max_attempts: i32,
    /// How long delivered messages stay.
    pub keep_delivered: Option<Span>,
    /// Listeners are told there when a message was put.
    pub notify_channel: Option<String>,
}

pub(super) fn options(call: &Call, table: Relation) -> Result<Option<Options>> {
    let row = Table::open(call, &SPEC)?.find(0, &key(table));
    row.map(|row| {
        Ok(Options {
            ordered: row.values.flag(1),
            max_attempts: row.values.count(2),
            keep_delivered: row.values.span(3),
            notify_channel: row.values.text(4)?.map(|channel| channel.into_owned()),
        })
    })
    .transpose()
}

fn key(table: Relation) -> [Key; 1] {
    [Key(1, Bound::Table(table))]
}

/// Without these a table would fit, and lose messages: what is NULL where it must not be, no claim finds.
const FIT: Fit = Fit {
    row_type: c"idem_outbox_message",
    not_null: &["id", "seq", "attempts", "created_at", "carries"],
    filled: &["seq", "attempts", "created_at"],
    unique: "id",
};

/// Refuses a table whose columns are not those of an outbox. Errors: 42809.
pub fn check_columns(call: &Call, table: Relation, name: &str) -> Result<()> {
    match user_table::column_difference(call, table, &FIT)? {
        None => Ok(()),
        Some(difference) => Err(Error::new(Code::WrongObject, format!("{name} does not fit as an outbox"))
            .detail(format!("Compared with the type idem_outbox_message: {difference}."))
            .hint(
                "Change its columns. In a new outbox, made with idem_create_outbox, messages that carry an action \
                 would carry it no more.",
            )),
    }
}

/// Keeps the options of an outbox: registered, changed or unchanged.
pub fn register(call: &Call, table: Relation, options: &Options) -> Result<&'static str> {
    let registry = Table::open(call, &SPEC)?;
    let mut values = Values::new();
    values.set_table(0, table);
    values.set_flag(1, options.ordered);
    values.set(2, Some(Datum::from(options.max_attempts)));
    values.set_big(3, options.keep_delivered);
    values.set_text(4, options.notify_channel.as_deref());
    loop {
        let present = registry.find(0, &key(table));
        let before = self::options(call, table)?;
        let done = match &present {
            Some(_) if before.as_ref() == Some(options) => return Ok("unchanged"),
            Some(row) => registry.update(row, &values),
            None if registry.insert_unless_present(&values) => Changed::Done,
            None => Changed::Gone,
        };
        match done {
            Changed::Done => {
                registry.invalidate();
                return Ok(if present.is_some() { "changed" } else { "registered" });
            }
            _ if server::repeatable_read() => return Err(server::serialization()),
            _ => server::serve_interrupts(),
        }
    }
}

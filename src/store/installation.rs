//! The installation's identity, which provider keys are derived from: `idem_installation`.
//!
//! It is one row and travels with a dump: loading a row takes the place of the one that was there.

use std::cell::Cell;

use idem_rules::action::Time;
use idem_rules::error::{Code, Error, Result};
use uuid::Uuid;

use crate::server::{self, Call, Changed, Column, Index, Spec, Table, Type};

const SPEC: Spec = Spec {
    place: 5,
    name: c"idem_installation",
    columns: &[Column("installation_id", Type::Uuid), Column("made_at", Type::Time)],
    indexes: &[Index::unique(c"idem_installation_pkey", &["installation_id"])],
};

thread_local! {
    static CACHE: Cell<(u64, Uuid)> = const { Cell::new((0, Uuid::nil())) };
}

/// The random id of this installation. Errors: XX001 when there is none.
pub fn id(call: &Call) -> Result<Uuid> {
    let (generation, id) = CACHE.get();
    if generation == server::generation() {
        return Ok(id);
    }
    let table = Table::open(call, &SPEC)?;
    let generation = server::generation();
    let id = table.find_now(0, &[]).and_then(|row| row.values.uuid(0)).ok_or_else(missing)?;
    CACHE.set((generation, id));
    Ok(id)
}

/// Takes a new identity: this database is a copy, whose provider keys must not be those of the original.
pub fn renew(call: &Call, now: Time) -> Result<()> {
    let table = Table::open(call, &SPEC)?;
    let row = table.find(0, &[]).ok_or_else(missing)?;
    let mut values = row.values.clone();
    values.set_uuid(0, Some(server::random_uuid()));
    values.set_time(1, Some(now));
    if table.update(&row, &values) != Changed::Done {
        return Err(server::serialization());
    }
    table.invalidate();
    Ok(())
}

fn missing() -> Error {
    Error::new(Code::Corrupted, "idem_installation is empty")
}

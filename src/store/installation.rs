//! The installation's identity, which provider keys are derived from: `idem_installation`.
//!
//! It travels with a dump: the row of the highest epoch counts, and of several the oldest, so that a restored row
//! outranks the one its new database was born with. A copy that must not speak for the original adds an epoch.

use std::cell::Cell;

use idem_rules::error::{Code, Error, Result};
use uuid::Uuid;

use crate::server::{self, Bound, Call, Column, Key, Spec, Table, Type};

const SPEC: Spec = Spec {
    place: 5,
    name: c"idem_installation",
    columns: &[
        Column("epoch", Type::Int),
        Column("made_at", Type::Time),
        Column("installation_id", Type::Uuid),
    ],
    indexes: &[c"idem_installation_pkey"],
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
    let id = read(&table).ok_or_else(|| Error::new(Code::Corrupted, "idem_installation is empty"))?;
    if !server::repeatable_read() {
        CACHE.set((generation, id));
    }
    Ok(id)
}

fn read(table: &Table) -> Option<Uuid> {
    let newest = table.find_last(0, &[])?;
    let oldest = table.find(0, &[Key(1, Bound::Int(newest.values.count(0)))])?;
    oldest.values.uuid(2)
}

/// Tells every session, at commit, to read the identity again.
pub fn changed(call: &Call) -> Result<()> {
    Table::open(call, &SPEC)?.invalidate();
    Ok(())
}

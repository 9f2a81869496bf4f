//! Operators' holds: `idem_held`, one row a change, of which the last is in force. Read once a session and again
//! after a change.
//!
//! A hold reaches every grant that starts after its COMMIT, whatever snapshot that grant's transaction has and
//! whatever locks it took before. So what other sessions sent is taken in before the cache is believed, and the
//! table is read as it is at the moment.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use idem_rules::action::Time;
use idem_rules::error::Result;
use idem_rules::hold::{Hold, Scope};
use pgrx::pg_sys::Datum;

use crate::server::{self, Bound, Call, Column, Index, Key, Row, Spec, Table, Type, Values};

const SPEC: Spec = Spec {
    place: 12,
    name: c"idem_held",
    columns: &[
        Column("scope", Type::Text),
        Column("value", Type::Text),
        Column("n", Type::Int),
        Column("held", Type::Bool),
        Column("at", Type::Time),
        Column("role", Type::Text),
        Column("session_role", Type::Text),
        Column("note", Type::Text),
    ],
    indexes: &[Index::unique(c"idem_held_pkey", &["scope", "value", "n"])],
};

const SCOPE: usize = 0;
const VALUE: usize = 1;
const N: usize = 2;
const HELD: usize = 3;
const AT: usize = 4;
const ROLE: usize = 5;
const SESSION_ROLE: usize = 6;
const NOTE: usize = 7;

/// Holds by what they cover; the text is in the database's encoding.
type Holds = HashMap<(Scope, Vec<u8>), Rc<Hold>>;

#[derive(Default)]
struct Cache {
    generation: u64,
    holds: Holds,
}

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
}

/// The hold that covers an action of `tenant` and `action_type`, texts in the database's encoding.
pub fn covering(call: &Call, tenant: &[u8], action_type: &[u8]) -> Result<Option<Rc<Hold>>> {
    server::take_in_changes();
    if CACHE.with_borrow(|cache| cache.generation != server::generation()) {
        load(call)?;
    }
    Ok(CACHE.with_borrow(|cache| {
        if cache.holds.is_empty() {
            return None;
        }
        let by = |scope, value: &[u8]| cache.holds.get(&(scope, value.to_vec())).cloned();
        by(Scope::Tenant, tenant).or_else(|| by(Scope::ActionType, action_type))
    }))
}

fn load(call: &Call) -> Result<()> {
    // Opening the table takes its lock, and with it every message sent before; what is read afterwards is cached
    // under the generation that holds then.
    let table = Table::open(call, &SPEC)?;
    let generation = server::generation();
    let mut holds = Holds::new();
    table.each_now(0, &[], |row| {
        let values = &row.values;
        let scope = Scope::from_word(&values.text(SCOPE)?.unwrap_or_default())?;
        let covers = (scope, values.raw_text(VALUE).unwrap_or_default().to_vec());
        match values.flag(HELD) {
            true => {
                let role = values.text(ROLE)?.unwrap_or_default().into_owned();
                let since = server::time_text(values.time(AT).unwrap_or(Time::MIN));
                holds.insert(covers, Rc::new(Hold::By { scope, role, since }))
            }
            false => holds.remove(&covers),
        };
        Ok(true)
    })?;
    CACHE.set(Cache { generation, holds });
    Ok(())
}

/// Writes down that `scope` `value` is held from the COMMIT of this transaction on, or no more. False when there was
/// no such hold to lift.
pub fn change(call: &Call, scope: Scope, value: Datum, held: bool, note: Option<Datum>) -> Result<bool> {
    let table = Table::open(call, &SPEC)?;
    // One change at a time, so that changes of one hold follow one another.
    table.lock_changes();
    let keys = [Key(1, Bound::Text(server::text_datum(scope.word()))), Key(2, Bound::Text(value))];
    let mut last: Option<Row> = None;
    table.each_now(0, &keys, |row| {
        last = Some(row);
        Ok(true)
    })?;
    if !held && !last.as_ref().is_some_and(|row| row.values.flag(HELD)) {
        return Ok(false);
    }
    let mut values = Values::new();
    values.set_text(SCOPE, Some(scope.word()));
    values.set(VALUE, Some(value));
    values.set(N, Some(Datum::from(last.map_or(1, |row| row.values.count(N) + 1))));
    values.set_flag(HELD, held);
    values.set_time(AT, Some(server::clock()));
    values.set_text(ROLE, Some(&call.recorded_as().name()));
    values.set_text(SESSION_ROLE, Some(&server::session_user_name()));
    values.set(NOTE, note);
    table.insert(&values);
    table.invalidate();
    Ok(true)
}

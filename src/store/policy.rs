//! Action types: `idem_action_type`, one row a version, read once a session and again after a change.
//!
//! A change reaches every grant that starts after its COMMIT, whatever snapshot that grant's transaction has: so the
//! table is read as it is at the moment, as holds are.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use idem_rules::error::{Code, Error, Result};
use idem_rules::policy::{Class, Distinct, Effect, Policy};
use pgrx::pg_sys::Datum;

use crate::server::{self, Bound, Call, Column, Index, Key, Row, Spec, Table, Type};

const SPEC: Spec = Spec {
    place: 4,
    name: c"idem_action_type",
    columns: &[
        Column("name", Type::Text),
        Column("policy_version", Type::Int),
        Column("class", Type::Text),
        Column("effect", Type::Text),
        Column("lease", Type::Big),
        Column("max_lease", Type::Big),
        Column("ttl", Type::Big),
        Column("tombstone_ttl", Type::Big),
        Column("max_attempts", Type::Int),
        Column("backoff_base", Type::Big),
        Column("backoff_cap", Type::Big),
        Column("requires_approval", Type::Bool),
        Column("approval_ttl", Type::Big),
        Column("distinct_approver", Type::Text),
        Column("marks_dispatch", Type::Bool),
        Column("provider_key_window", Type::Big),
        Column("settle_delay", Type::Big),
        Column("probe_interval", Type::Big),
        Column("probes_required", Type::Int),
        Column("resolve_deadline", Type::Big),
        Column("lookup_hint", Type::Text),
        Column("compensation_type", Type::Text),
        Column("registered_at", Type::Time),
        Column("registered_by", Type::Text),
    ],
    indexes: &[Index::unique(c"idem_action_type_pkey", &["name", "policy_version"])],
};

/// Names kept at a time; callers may make up any number of them.
const CACHED_NAMES: usize = 1000;

#[derive(Default)]
struct Cache {
    generation: u64,
    current: HashMap<String, Rc<Policy>>,
}

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
}

/// The present policy of the type `name`; the one of an unregistered name when nobody registered it.
pub fn current(call: &Call, name: &str) -> Result<Rc<Policy>> {
    let cached = CACHE.with_borrow_mut(|cache| {
        if cache.generation != server::generation() || cache.current.len() >= CACHED_NAMES {
            cache.current.clear();
            cache.generation = server::generation();
        }
        cache.current.get(name).cloned()
    });
    if let Some(policy) = cached {
        return Ok(policy);
    }
    // Opening the table takes its lock, and with it every invalidation sent before; what is read afterwards is
    // cached under the generation that holds then.
    let table = Table::open(call, &SPEC)?;
    let generation = server::generation();
    let found = table.find_last_now(0, &named(name)).map(read).transpose()?;
    let policy = Rc::new(found.unwrap_or(Policy::UNREGISTERED));
    CACHE.with_borrow_mut(|cache| {
        if cache.generation == generation {
            cache.current.insert(name.to_owned(), Rc::clone(&policy));
        }
    });
    Ok(policy)
}

/// The policy of the type `name` as it was in `version`. Errors: XX001 when that version is missing.
pub fn version(call: &Call, name: &str, version: i32) -> Result<Rc<Policy>> {
    if version == 0 {
        return Ok(Rc::new(Policy::UNREGISTERED));
    }
    let [by_name] = named(name);
    let keys = [by_name, Key(2, Bound::Int(version))];
    Table::open(call, &SPEC)?.find_now(0, &keys).map(|row| read(row).map(Rc::new)).unwrap_or_else(|| {
        Err(Error::new(Code::Corrupted, format!("version {version} of an action type is missing"))
            .hint("Rows of idem_action_type are never removed; restore them from a dump."))
    })
}

/// How a reconciler finds out about an action of the type `name`, as the type says.
pub fn lookup_hint(call: &Call, name: &str) -> Result<Option<String>> {
    let row = Table::open(call, &SPEC)?.find_last(0, &named(name));
    row.map_or(Ok(None), |row| Ok(row.values.text(20)?.map(Cow::into_owned)))
}

/// The type that compensates actions of the type `name`, as stored.
pub fn compensation_type(call: &Call, name: &str) -> Result<Option<Datum>> {
    let row = Table::open(call, &SPEC)?.find_last(0, &named(name));
    Ok(row.and_then(|row| row.values.datum(21)))
}

fn named(name: &str) -> [Key; 1] {
    [Key(1, Bound::Text(server::text_datum(name)))]
}

fn read(row: Row) -> Result<Policy> {
    let values = row.values;
    let span = |n| values.span(n).unwrap_or(0);
    let class = values.text(2)?.and_then(|word| Class::from_word(&word));
    let effect = match values.text(3)?.as_deref() {
        Some("local") => Effect::Local,
        _ => Effect::External,
    };
    Ok(Policy {
        version: values.count(1),
        class: class.ok_or_else(|| Error::new(Code::Corrupted, "an action type's class is not known"))?,
        effect,
        lease: span(4),
        max_lease: span(5),
        ttl: span(6),
        tombstone_ttl: span(7),
        max_attempts: values.count(8),
        backoff_base: span(9),
        backoff_cap: span(10),
        requires_approval: values.flag(11),
        approval_ttl: span(12),
        distinct_approver: Distinct::from_word(values.text(13)?.as_deref().unwrap_or_default()),
        marks_dispatch: values.flag(14),
        provider_key_window: span(15),
        settle_delay: span(16),
        probe_interval: span(17),
        probes_required: values.count(18),
        resolve_deadline: span(19),
    })
}

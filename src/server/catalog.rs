//! Finding our tables in the catalog once a session, and noticing when that has to be done again.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;

use idem_rules::error::{Code, Error, Result};
use pgrx::pg_sys;

use super::additions;
use super::call::{Call, ascii};
use super::values::MAX_COLUMNS;

/// The column types our tables use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// uuid
    Uuid,
    /// timestamptz
    Time,
    /// bigint
    Big,
    /// integer
    Int,
    /// smallint
    Small,
    /// "char"
    Letter,
    /// text
    Text,
    /// bytea
    Bytes,
    /// jsonb
    Jsonb,
    /// boolean
    Bool,
    /// regrole
    Role,
    /// regclass
    Table,
    /// tid
    Place,
}

impl Type {
    pub(super) fn oid(self) -> pg_sys::Oid {
        match self {
            Type::Uuid => pg_sys::UUIDOID,
            Type::Time => pg_sys::TIMESTAMPTZOID,
            Type::Big => pg_sys::INT8OID,
            Type::Int => pg_sys::INT4OID,
            Type::Small => pg_sys::INT2OID,
            Type::Letter => pg_sys::CHAROID,
            Type::Text => pg_sys::TEXTOID,
            Type::Bytes => pg_sys::BYTEAOID,
            Type::Jsonb => pg_sys::JSONBOID,
            Type::Bool => pg_sys::BOOLOID,
            Type::Role => pg_sys::REGROLEOID,
            Type::Table => pg_sys::REGCLASSOID,
            Type::Place => pg_sys::TIDOID,
        }
    }
}

/// A column as the library expects it.
pub struct Column(pub &'static str, pub Type);

/// An index as the library expects it: a btree of all rows, ascending, whose texts are compared as in collation "C".
pub struct Index {
    pub(super) name: &'static CStr,
    pub(super) columns: &'static [&'static str],
    pub(super) is_unique: bool,
}

impl Index {
    /// One that has each combination of values once, checked at once.
    pub const fn unique(name: &'static CStr, columns: &'static [&'static str]) -> Index {
        Index { name, columns, is_unique: true }
    }

    /// One that gives an order.
    pub const fn plain(name: &'static CStr, columns: &'static [&'static str]) -> Index {
        Index { name, columns, is_unique: false }
    }
}

/// A table as the library expects it.
pub struct Spec {
    /// Its place in the session's cache; each spec has its own, below [`SPECS`].
    pub place: usize,
    /// Its name in the extension's schema.
    pub name: &'static CStr,
    /// Its columns, in order.
    pub columns: &'static [Column],
    /// Its indexes, the primary key first.
    pub indexes: &'static [Index],
}

/// Columns at the end of a table that the last release did not have. Until the extension is updated they read as NULL.
const ADDED: [(&CStr, &str); 1] = [(c"idem_cursor", "page")];

/// Number of specs that can be known at a time.
const SPECS: usize = 16;

/// Number of indexes a table of ours can have: twice that of [`additions::MAX_VALID`], while all are rebuilt.
pub(super) const MAX_INDEXES: usize = 24;

#[derive(Clone, Copy)]
pub(super) struct Known {
    name: &'static CStr,
    pub(super) table: pg_sys::Oid,
    /// Those of the spec, then the further ones.
    pub(super) indexes: [pg_sys::Oid; MAX_INDEXES],
    /// How many there are.
    pub(super) count: usize,
}

thread_local! {
    static KNOWN: RefCell<[Option<Known>; SPECS]> = const { RefCell::new([None; SPECS]) };
    static GENERATION: Cell<u64> = const { Cell::new(1) };
    static LISTENING: Cell<bool> = const { Cell::new(false) };
    /// The table that is being looked up, and whether it has changed meanwhile.
    static LOOKED_UP: Cell<(pg_sys::Oid, bool)> = const { Cell::new((pg_sys::InvalidOid, false)) };
}

/// Rises whenever one of our tables may have changed its definition, or was said to have changed by
/// [`invalidate`]. What is cached from a table holds as long as this stays the same.
pub fn generation() -> u64 {
    GENERATION.get()
}

unsafe extern "C-unwind" fn relation_changed(_arg: pg_sys::Datum, relation: pg_sys::Oid) {
    KNOWN.with_borrow_mut(|known| {
        let ours = |entry: &Option<Known>| {
            entry.is_some_and(|entry| entry.table == relation || entry.indexes.contains(&relation))
        };
        if relation == pg_sys::InvalidOid || known.iter().any(ours) {
            *known = [None; SPECS];
            GENERATION.set(GENERATION.get() + 1);
        }
    });
    let (table, changed) = LOOKED_UP.get();
    LOOKED_UP.set((table, changed || relation == table || relation == pg_sys::InvalidOid));
}

/// The object ids behind `spec`, looked up on first use. Errors: 55000 when library and SQL do not fit together, or the
/// table has something that the library would pass by, see [`additions`].
pub(super) fn resolve(call: &Call, spec: &'static Spec) -> Result<Known> {
    // The name too: two specs that were given one place by mistake would only keep pushing each other out.
    let known = KNOWN.with_borrow(|known| known[spec.place]);
    if let Some(known) = known.filter(|known| std::ptr::eq(known.name, spec.name)) {
        return Ok(known);
    }
    if !LISTENING.replace(true) {
        // SAFETY: registered once a session; the callback touches only this thread's cells and cannot raise.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(relation_changed), pg_sys::Datum::from(0)) };
    }
    // Each lock that is taken on the way lets changes in. One of this table is not heard of later, and what was seen half
    // before it and half after it is no reason to refuse: so it is looked up again.
    loop {
        let known = look_up(call.schema()?, spec);
        if !LOOKED_UP.get().1 {
            let known = known?;
            KNOWN.with_borrow_mut(|cache| cache[spec.place] = Some(known));
            return Ok(known);
        }
    }
}

fn look_up(schema: pg_sys::Oid, spec: &'static Spec) -> Result<Known> {
    // SAFETY: looks a name up; it is NUL-terminated.
    let table = unsafe { pg_sys::get_relname_relid(spec.name.as_ptr(), schema) };
    if table == pg_sys::InvalidOid {
        return Err(mismatch());
    }
    LOOKED_UP.set((table, false));
    // SAFETY: the relation is open, and locked, while it is looked at.
    let indexes = unsafe {
        let relation = pg_sys::relation_open(table, pg_sys::AccessShareLock as i32);
        let indexes = (|| {
            check_columns(spec, relation)?;
            additions::refuse_storage(relation)?;
            additions::refuse_triggers(relation)?;
            let own = |index: &Index| additions::own_index(relation, spec, index, schema);
            let mut indexes = spec.indexes.iter().map(own).collect::<Result<Vec<_>>>()?;
            indexes.extend(additions::indexes(relation, &indexes)?);
            Ok(indexes)
        })();
        pg_sys::relation_close(relation, pg_sys::AccessShareLock as i32);
        indexes?
    };
    let mut known =
        Known { name: spec.name, table, indexes: [pg_sys::InvalidOid; MAX_INDEXES], count: indexes.len() };
    known.indexes[..indexes.len()].copy_from_slice(&indexes);
    Ok(known)
}

unsafe fn check_columns(spec: &'static Spec, relation: pg_sys::Relation) -> Result<()> {
    // SAFETY: the relation is open, and so its descriptor valid.
    let tupdesc = unsafe { pgrx::PgTupleDesc::from_pg_unchecked((*relation).rd_att) };
    let (found, wanted) = (tupdesc.len(), spec.columns.len());
    let fits = spec.columns.iter().skip(found).all(|Column(name, _)| ADDED.contains(&(spec.name, *name)))
        && found <= MAX_COLUMNS
        && tupdesc.iter().skip(wanted).all(|found| found.attisdropped)
        && tupdesc.iter().zip(spec.columns).all(|(found, Column(name, r#type))| {
            !found.attisdropped && found.name() == *name && found.atttypid == r#type.oid()
        });
    if fits {
        return Ok(());
    }
    Err(mismatch().detail(format!("Table {} is not what the library expects.", ascii(spec.name))))
}

/// The refusal when the library in memory and the SQL objects in the database are of different versions.
pub(super) fn mismatch() -> Error {
    Error::new(Code::WrongState, "the library and the SQL objects of pg_idem do not fit together")
        .hint("Reconnect, or restart the server if it is preloaded; then ALTER EXTENSION pg_idem UPDATE.")
}

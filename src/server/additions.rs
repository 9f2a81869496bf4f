//! Whether our tables are as they were made, and what others have added to them. The library changes them below the
//! executor, so it adds the entries of further indexes itself: REINDEX CONCURRENTLY builds a second index beside each of
//! ours, and one that lacked a row would have it forgotten, and granted again, once it takes the place of the first. What
//! it does not serve it refuses to work beside: a trigger that does not fire is a copy, a log or a reference that lacks
//! rows without anybody knowing, and an unlogged table forgets.

use std::ffi::CStr;

use idem_rules::error::{Code, Error, Result};
use pgrx::pg_sys;

use super::catalog::{Column, Index, MAX_INDEXES, Spec, Type};
use super::user_table::{indexes as all, with_index};
use super::version::nulls_not_distinct;

/// Columns an index that we keep up can have.
pub(super) const MAX_KEYS: usize = 4;

/// Valid indexes that a table of ours can have.
pub(super) const MAX_VALID: usize = 12;

/// Our own triggers.
const TRIGGERS: [&str; 6] = [
    "idem_append_only",
    "idem_cache_changed",
    "idem_installation_loaded",
    "idem_outbox_changed",
    "idem_rows_loaded",
    "idem_rows_loaded_all",
];

/// Our only check; what it asks for is seen to before a row is made.
const CHECK: &CStr = c"idem_held_scope";

/// What a trigger fires for, other than TRUNCATE.
const ROWS: i16 =
    (pg_sys::TRIGGER_TYPE_INSERT | pg_sys::TRIGGER_TYPE_UPDATE | pg_sys::TRIGGER_TYPE_DELETE) as i16;

/// The index of `table`, open, that the library calls by its name. Errors: 55000 where it is another table's, not valid, or
/// not as expected: rows would be looked for, and added, in the wrong place.
///
/// # Safety
/// The table must be locked, and so its indexes there.
pub(super) unsafe fn own_index(
    table: pg_sys::Relation,
    spec: &Spec,
    index: &Index,
    schema: pg_sys::Oid,
) -> Result<pg_sys::Oid> {
    // SAFETY: looks a name up; it is NUL-terminated.
    let found = unsafe { pg_sys::get_relname_relid(index.name.as_ptr(), schema) };
    // SAFETY: as required; the index is open while it is looked at.
    let fits = unsafe {
        all(table).any(|one| one == found) && with_index(found, |found| is_as_expected(found, spec, index))
    };
    if fits {
        return Ok(found);
    }
    let kind = if index.is_unique { "unique btree" } else { "btree" };
    Err(refusal(table, "index", &index.name.to_string_lossy(), "is not what the library expects")
        .detail(format!("It has to be a valid {kind} on ({}).", index.columns.join(", ")))
        .hint(
            "REINDEX it if it is invalid. Otherwise build a right one under another name, and give it this name with \
             ALTER TABLE ADD CONSTRAINT USING INDEX, or ALTER INDEX RENAME.",
        ))
}

/// True for a valid index, open, on the expected columns, in their order and compared as expected.
unsafe fn is_as_expected(found: pg_sys::Relation, spec: &Spec, index: &Index) -> bool {
    // SAFETY: the descriptor of an open index, which has a collation and an option for each column.
    unsafe {
        let form = (*found).rd_index;
        let has_column = |n: usize, name: &str| {
            let number = (*form).indkey.values.as_slice(index.columns.len())[n];
            let column = spec.columns.get(number as usize - 1);
            let collation = *(*found).rd_indcollation.add(n);
            column.is_some_and(|Column(found, r#type)| {
                *found == name && (*r#type != Type::Text || collation == pg_sys::C_COLLATION_OID)
            }) && *(*found).rd_indoption.add(n) == 0
        };
        (*form).indisvalid
            && (*form).indisready
            && (*form).indimmediate
            && (*form).indisunique == index.is_unique
            && !nulls_not_distinct(form)
            && is_plain(found)
            && (*form).indnatts as usize == index.columns.len()
            && index.columns.iter().enumerate().all(|(n, name)| has_column(n, name))
    }
}

/// The indexes of `table`, open, that are not among `ours`. Errors: 55000 for one that the library does not keep up.
///
/// # Safety
/// The table must be locked, and so its indexes there.
pub(super) unsafe fn indexes(table: pg_sys::Relation, ours: &[pg_sys::Oid]) -> Result<Vec<pg_sys::Oid>> {
    // SAFETY: as required.
    let further: Vec<_> = unsafe { all(table) }.filter(|index| !ours.contains(index)).collect();
    for index in &further {
        // SAFETY: as required; each index is open while it is looked at.
        let kept_up = unsafe {
            with_index(*index, |index| {
                let is_twin = |own: pg_sys::Relation| is_alike(index, own);
                is_plain(index)
                    && (!(*(*index).rd_index).indisunique || ours.iter().any(|own| with_index(*own, is_twin)))
            })
        };
        if !kept_up {
            return Err(refusal(table, "index", &name_of(*index), "is not kept up by the library").hint(
                "Drop it. Further indexes can be btrees on columns, without UNIQUE, WHERE and expressions.",
            ));
        }
    }
    // SAFETY: as above. Those that are being built, or were left behind, do not count yet.
    let is_valid =
        |index: &&pg_sys::Oid| unsafe { with_index(**index, |index| (*(*index).rd_index).indisvalid) };
    let valid = ours.len() + further.iter().filter(is_valid).count();
    if valid > MAX_VALID || ours.len() + further.len() > MAX_INDEXES {
        let names = further.iter().map(|index| name_of(*index)).collect::<Vec<_>>().join(", ");
        return Err(refusal(table, "indexes", &names, "are more than the library keeps up")
            .hint("Drop some of them; those that a failed REINDEX CONCURRENTLY left behind are invalid."));
    }
    Ok(further)
}

/// True for a btree of all rows on columns as they are.
unsafe fn is_plain(index: pg_sys::Relation) -> bool {
    // SAFETY: the index is open.
    unsafe {
        let form = (*index).rd_index;
        (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
            && (*form).indnatts as usize <= MAX_KEYS
            && !(*form).indisexclusion
            && pg_sys::RelationGetIndexExpressions(index).is_null()
            && pg_sys::RelationGetIndexPredicate(index).is_null()
    }
}

/// True when two indexes, open and plain, are about the same columns, compared alike, and unique or not.
///
/// # Safety
/// Both must be open.
pub(super) unsafe fn is_alike(one: pg_sys::Relation, other: pg_sys::Relation) -> bool {
    // SAFETY: the descriptors of open indexes; there are as many families and collations as key columns.
    unsafe {
        let (a, b) = ((*one).rd_index, (*other).rd_index);
        let (columns, keys) = ((*a).indnatts as usize, (*a).indnkeyatts as usize);
        (*a).indisunique == (*b).indisunique
            && (*a).indimmediate == (*b).indimmediate
            && nulls_not_distinct(a) == nulls_not_distinct(b)
            && (*a).indnatts == (*b).indnatts
            && (*a).indnkeyatts == (*b).indnkeyatts
            && (*a).indkey.values.as_slice(columns) == (*b).indkey.values.as_slice(columns)
            && (0..keys).all(|n| {
                *(*one).rd_opfamily.add(n) == *(*other).rd_opfamily.add(n)
                    && *(*one).rd_indcollation.add(n) == *(*other).rd_indcollation.add(n)
            })
    }
}

/// Errors: 55000 when `table`, open, has an enabled trigger that is not one of ours.
///
/// # Safety
/// The table must be open.
pub(super) unsafe fn refuse_triggers(table: pg_sys::Relation) -> Result<()> {
    // SAFETY: the descriptor of an open relation is NULL or has as many triggers as it says, each with its name.
    unsafe {
        let triggers = (*table).trigdesc;
        let count = if triggers.is_null() { 0 } else { (*triggers).numtriggers as usize };
        for trigger in (0..count).map(|n| &*(*triggers).triggers.add(n)) {
            let name = CStr::from_ptr(trigger.tgname).to_string_lossy();
            if trigger.tgenabled as u8 == b'D' || trigger.tgtype & ROWS == 0 || TRIGGERS.contains(&&*name) {
                continue;
            }
            let hint = match trigger.tgisinternal {
                true => {
                    "Drop the constraint that it belongs to, a foreign key or a deferrable one: rows come, change and leave \
                     without asking it."
                }
                false => {
                    "Drop it, or disable it. To get rid of bloat, REINDEX CONCURRENTLY and VACUUM are safe; copies that \
                     triggers keep up are not."
                }
            };
            return Err(refusal(table, "trigger", &name, "would not fire").hint(hint));
        }
    }
    Ok(())
}

/// Errors: 55000 when `table`, open, is not written to the log, not stored as a heap, or has what only the executor applies.
///
/// # Safety
/// The table must be open.
pub(super) unsafe fn refuse_storage(table: pg_sys::Relation) -> Result<()> {
    // SAFETY: as required.
    let (name, form) = unsafe { (name_of((*table).rd_id), &*(*table).rd_rel) };
    let refusal = |what, hint| {
        let error = Error::new(Code::WrongState, format!("table {name} {what}"));
        Err(error.hint(format!("ALTER TABLE {name} {hint}.")))
    };
    if form.relpersistence as u8 != pg_sys::RELPERSISTENCE_PERMANENT {
        return refusal("is unlogged: a crash would empty it", "SET LOGGED");
    }
    // SAFETY: the descriptor of an open relation, and as many checks as it says, each with its name.
    let is_checked = unsafe {
        let constraints = (*(*table).rd_att).constr;
        let count = if constraints.is_null() { 0 } else { (*constraints).num_check as usize };
        (0..count).any(|n| CStr::from_ptr((*(*constraints).check.add(n)).ccname) != CHECK)
    };
    if is_checked || form.relhasrules || form.relispartition {
        return Err(Error::new(
            Code::WrongState,
            format!("table {name} has a check or a rule, or is a partition"),
        )
        .detail("The library changes its tables below the executor, which would apply them.")
        .hint(format!("Drop them from {name}, or detach it.")));
    }
    if form.relam != pg_sys::HEAP_TABLE_AM_OID {
        return refusal("is stored by another access method than heap", "SET ACCESS METHOD heap");
    }
    Ok(())
}

fn refusal(table: pg_sys::Relation, kind: &str, name: &str, what: &str) -> Error {
    // SAFETY: the relation is open.
    let table = unsafe { name_of((*table).rd_id) };
    Error::new(Code::WrongState, format!("{kind} {name} of table {table} {what}"))
        .detail("The library changes its tables below the executor.")
}

fn name_of(relation: pg_sys::Oid) -> String {
    // SAFETY: returns NULL for what is not there, else a palloc'd string.
    unsafe {
        let name = pg_sys::get_rel_name(relation);
        match name.is_null() {
            true => relation.to_u32().to_string(),
            false => CStr::from_ptr(name).to_string_lossy().into_owned(),
        }
    }
}

//! What others have added to our tables. The library changes them below the executor, so it adds the entries of further
//! indexes itself: REINDEX CONCURRENTLY builds a second index beside each of ours, and one that lacked a row would have it
//! forgotten, and granted again, once it takes the place of the first. What it does not serve it refuses to work beside:
//! a trigger that does not fire is a copy, a log or a reference that lacks rows without anybody knowing, and an unlogged
//! table forgets.

use std::ffi::CStr;

use idem_rules::error::{Code, Error, Result};
use pgrx::pg_sys;

use super::catalog::MAX_INDEXES;
use super::user_table::{indexes as all, with_index};

/// Columns an index that we keep up can have.
pub(super) const MAX_KEYS: usize = 4;

/// Our own triggers, and functions for them, begin with this.
const OURS: &str = "idem_";

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
    if ours.len() + further.len() > MAX_INDEXES {
        let names = further.iter().map(|index| name_of(*index)).collect::<Vec<_>>().join(", ");
        return Err(refusal(table, "indexes", &names, "are more than the library keeps up")
            .hint("Drop some of them, those first that REINDEX CONCURRENTLY left behind invalid."));
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
unsafe fn is_alike(one: pg_sys::Relation, other: pg_sys::Relation) -> bool {
    // SAFETY: the descriptors of open indexes; there are as many families and collations as key columns.
    unsafe {
        let (a, b) = ((*one).rd_index, (*other).rd_index);
        let (columns, keys) = ((*a).indnatts as usize, (*a).indnkeyatts as usize);
        (*a).indisunique == (*b).indisunique
            && (*a).indimmediate == (*b).indimmediate
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
            if trigger.tgenabled as u8 == b'D' || name.starts_with(OURS) {
                continue;
            }
            let hint = match trigger.tgisinternal {
                true => {
                    "Drop the foreign key that refers to the table: its rows leave with their retention, and ask nobody."
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

/// Errors: 55000 when `table`, open, is not written to the log, or not stored as a heap.
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

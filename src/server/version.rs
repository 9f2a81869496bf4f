//! What differs between PostgreSQL majors, and nothing else.

use pgrx::pg_sys;

#[cfg(not(feature = "pg18"))]
pub(super) unsafe fn begin_scan(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    keys: i32,
) -> pg_sys::IndexScanDesc {
    // SAFETY: passed through.
    unsafe { pg_sys::index_beginscan(table, index, snapshot, keys, 0) }
}

#[cfg(feature = "pg18")]
pub(super) unsafe fn begin_scan(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    keys: i32,
) -> pg_sys::IndexScanDesc {
    // SAFETY: passed through; no instrumentation is wanted.
    unsafe { pg_sys::index_beginscan(table, index, snapshot, std::ptr::null_mut(), keys, 0) }
}

/// Which indexes of the table need an entry for the new version of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entries {
    /// None: the new version is found by the old one's entries.
    None,
    /// Those that summarize ranges of pages.
    #[cfg(not(any(feature = "pg14", feature = "pg15")))]
    Summarizing,
    /// All.
    All,
}

#[cfg(any(feature = "pg14", feature = "pg15"))]
pub(super) unsafe fn heap_update(
    relation: pg_sys::Relation,
    old: pg_sys::ItemPointer,
    new: pg_sys::HeapTuple,
    wait: bool,
) -> (pg_sys::TM_Result::Type, Entries) {
    let mut failure = pg_sys::TM_FailureData::default();
    let mut mode = pg_sys::LockTupleMode::LockTupleNoKeyExclusive;
    // SAFETY: passed through; no crosscheck snapshot. The header of the new tuple says how it was stored.
    unsafe {
        let command = pg_sys::GetCurrentCommandId(true);
        let nothing = std::ptr::null_mut();
        let result = pg_sys::heap_update(relation, old, new, command, nothing, wait, &mut failure, &mut mode);
        let heap_only = (*(*new).t_data).t_infomask2 & pg_sys::HEAP_ONLY_TUPLE as u16 != 0;
        (result, if heap_only { Entries::None } else { Entries::All })
    }
}

#[cfg(not(any(feature = "pg14", feature = "pg15")))]
pub(super) unsafe fn heap_update(
    relation: pg_sys::Relation,
    old: pg_sys::ItemPointer,
    new: pg_sys::HeapTuple,
    wait: bool,
) -> (pg_sys::TM_Result::Type, Entries) {
    use pg_sys::TU_UpdateIndexes;
    let mut failure = pg_sys::TM_FailureData::default();
    let mut mode = pg_sys::LockTupleMode::LockTupleNoKeyExclusive;
    let mut indexes = TU_UpdateIndexes::TU_None;
    // SAFETY: passed through; no crosscheck snapshot.
    unsafe {
        let command = pg_sys::GetCurrentCommandId(true);
        let nothing = std::ptr::null_mut();
        let result = pg_sys::heap_update(
            relation,
            old,
            new,
            command,
            nothing,
            wait,
            &mut failure,
            &mut mode,
            &mut indexes,
        );
        let entries = match indexes {
            TU_UpdateIndexes::TU_None => Entries::None,
            TU_UpdateIndexes::TU_Summarizing => Entries::Summarizing,
            _ => Entries::All,
        };
        (result, entries)
    }
}

/// Adds the entries of a row version that stands in `slot` to the table's indexes. Raises 23505.
pub(super) unsafe fn insert_index_entries(
    table: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    state: *mut pg_sys::EState,
    is_update: bool,
    entries: Entries,
) {
    let (nothing, none) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: passed through; no arbiter, no speculation.
    unsafe {
        #[cfg(any(feature = "pg14", feature = "pg15"))]
        if entries != Entries::None {
            pg_sys::ExecInsertIndexTuples(table, slot, state, is_update, false, nothing, none);
        }
        #[cfg(not(any(feature = "pg14", feature = "pg15")))]
        if entries != Entries::None {
            let summarizing = entries == Entries::Summarizing;
            pg_sys::ExecInsertIndexTuples(table, slot, state, is_update, false, nothing, none, summarizing);
        }
    }
}

/// True for a unique index in which NULL clashes with NULL.
///
/// # Safety
/// The row must be an index's in the relation cache.
pub(super) unsafe fn nulls_not_distinct(index: pg_sys::Form_pg_index) -> bool {
    // SAFETY: as required.
    #[cfg(not(feature = "pg14"))]
    return unsafe { (*index).indnullsnotdistinct };
    #[cfg(feature = "pg14")]
    return {
        let _ = index;
        false
    };
}

/// True when the current role may execute the only function called `name` in `schema`.
pub(super) fn may_execute(schema: pg_sys::Oid, name: &'static std::ffi::CStr) -> bool {
    // SAFETY: builds a two-part name in PostgreSQL's memory and looks it up; any number of arguments matches.
    unsafe {
        let mut names = std::ptr::null_mut();
        for part in [pg_sys::get_namespace_name(schema).cast_const(), name.as_ptr()] {
            names = pg_sys::lappend(names, pg_sys::makeString(pg_sys::pstrdup(part)).cast());
        }
        let function = pg_sys::LookupFuncName(names, -1, std::ptr::null(), true);
        function != pg_sys::InvalidOid && function_allows(function)
    }
}

#[cfg(any(feature = "pg14", feature = "pg15"))]
unsafe fn function_allows(function: pg_sys::Oid) -> bool {
    // SAFETY: looks an existing function's privileges up.
    unsafe {
        let mode = pg_sys::ACL_EXECUTE as pg_sys::AclMode;
        pg_sys::pg_proc_aclcheck(function, pg_sys::GetUserId(), mode) == pg_sys::AclResult::ACLCHECK_OK
    }
}

#[cfg(not(any(feature = "pg14", feature = "pg15")))]
unsafe fn function_allows(function: pg_sys::Oid) -> bool {
    // SAFETY: looks an existing function's privileges up.
    unsafe {
        let mode = pg_sys::ACL_EXECUTE as pg_sys::AclMode;
        let user = pg_sys::GetUserId();
        pg_sys::object_aclcheck(pg_sys::ProcedureRelationId, function, user, mode)
            == pg_sys::AclResult::ACLCHECK_OK
    }
}

/// True when the current role owns `table`.
pub(super) fn owns_table(table: pg_sys::Oid) -> bool {
    // SAFETY: looks an existing table's owner up; raises for one that has been dropped.
    unsafe {
        #[cfg(any(feature = "pg14", feature = "pg15"))]
        return pg_sys::pg_class_ownercheck(table, pg_sys::GetUserId());
        #[cfg(not(any(feature = "pg14", feature = "pg15")))]
        return pg_sys::object_ownercheck(pg_sys::RelationRelationId, table, pg_sys::GetUserId());
    }
}

/// Refuses settings of ours that do not exist, so that a misspelt one does not pass in silence.
pub fn reserve_setting_names(prefix: &'static std::ffi::CStr) {
    // SAFETY: the name is NUL-terminated; called once, from _PG_init, after the settings are defined.
    unsafe {
        #[cfg(feature = "pg14")]
        pg_sys::EmitWarningsOnPlaceholders(prefix.as_ptr());
        #[cfg(not(feature = "pg14"))]
        pg_sys::MarkGUCPrefixReserved(prefix.as_ptr());
    }
}

/// Has SIGTERM end this background process at the next look for interrupts, as it ends a session.
pub(super) fn end_at_sigterm() {
    let signal = 15;
    // SAFETY: the server's own handler, set before signals are let through.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        pg_sys::pqsignal(signal, Some(terminated));
        #[cfg(feature = "pg18")]
        pg_sys::pqsignal_be(signal, Some(terminated));
    }
}

unsafe extern "C-unwind" fn terminated(signal: std::ffi::c_int) {
    // SAFETY: made to run in a signal handler: it sets flags and the latch.
    unsafe { pg_sys::die(signal) }
}

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

#[cfg(any(feature = "pg14", feature = "pg15"))]
pub(super) unsafe fn heap_update(
    relation: pg_sys::Relation,
    old: pg_sys::ItemPointer,
    new: pg_sys::HeapTuple,
    wait: bool,
    failure: &mut pg_sys::TM_FailureData,
    mode: &mut pg_sys::LockTupleMode::Type,
) -> pg_sys::TM_Result::Type {
    // SAFETY: passed through; no crosscheck snapshot.
    unsafe {
        let command = pg_sys::GetCurrentCommandId(true);
        pg_sys::heap_update(relation, old, new, command, std::ptr::null_mut(), wait, failure, mode)
    }
}

#[cfg(not(any(feature = "pg14", feature = "pg15")))]
pub(super) unsafe fn heap_update(
    relation: pg_sys::Relation,
    old: pg_sys::ItemPointer,
    new: pg_sys::HeapTuple,
    wait: bool,
    failure: &mut pg_sys::TM_FailureData,
    mode: &mut pg_sys::LockTupleMode::Type,
) -> pg_sys::TM_Result::Type {
    let mut indexes = pg_sys::TU_UpdateIndexes::TU_None;
    // SAFETY: passed through; no crosscheck snapshot. None of our indexes is summarizing, so the
    // heap-only bit of the new tuple says all there is to say about index entries.
    unsafe {
        let command = pg_sys::GetCurrentCommandId(true);
        pg_sys::heap_update(
            relation,
            old,
            new,
            command,
            std::ptr::null_mut(),
            wait,
            failure,
            mode,
            &mut indexes,
        )
    }
}

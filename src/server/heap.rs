//! One version of a row in a table's heap: changed, removed or locked below the executor, without waiting for anybody.

use pgrx::pg_sys;

use super::version::{Entries, heap_update};

/// What became of a change to a row version that was read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// It is done.
    Done,
    /// Another transaction that has not ended yet holds the row.
    Busy,
    /// There is a newer version by now, or none any more.
    Gone,
}

fn changed(result: pg_sys::TM_Result::Type) -> Changed {
    match result {
        pg_sys::TM_Result::TM_Ok => Changed::Done,
        pg_sys::TM_Result::TM_BeingModified | pg_sys::TM_Result::TM_WouldBlock => Changed::Busy,
        _ => Changed::Gone,
    }
}

/// Puts `new` in the place of the version at `old`. What the indexes need counts when it is done.
///
/// # Safety
/// `relation` is an open heap, `old` a place in it that was read before, `new` a tuple formed by its descriptor.
pub(super) unsafe fn update(
    relation: pg_sys::Relation,
    old: pg_sys::ItemPointerData,
    new: pg_sys::HeapTuple,
) -> (Changed, Entries) {
    let mut entries = Entries::None;
    // SAFETY: as required.
    let done = unsafe {
        without_waiting(relation, old, |place, wait| {
            let (result, needed) = heap_update(relation, place, new, wait);
            entries = needed;
            result
        })
    };
    (done, entries)
}

/// Removes the version at `place`.
///
/// # Safety
/// `relation` is an open heap, `place` one in it that was read before.
pub(super) unsafe fn delete(relation: pg_sys::Relation, place: pg_sys::ItemPointerData) -> Changed {
    // SAFETY: as required.
    unsafe {
        without_waiting(relation, place, |place, wait| {
            let mut failure = pg_sys::TM_FailureData::default();
            let command = pg_sys::GetCurrentCommandId(true);
            pg_sys::heap_delete(relation, place, command, std::ptr::null_mut(), wait, &mut failure, false)
        })
    }
}

/// Makes a change that waits for nobody. A lock of this very transaction counts as somebody's at first; with the lock
/// known to be ours, the change may "wait".
unsafe fn without_waiting(
    relation: pg_sys::Relation,
    mut place: pg_sys::ItemPointerData,
    mut change: impl FnMut(pg_sys::ItemPointer, bool) -> pg_sys::TM_Result::Type,
) -> Changed {
    match changed(change(&mut place, false)) {
        // SAFETY: as required of the callers.
        Changed::Busy => match unsafe { lock(relation, place, false) } {
            Changed::Done => changed(change(&mut place, true)),
            other => other,
        },
        other => other,
    }
}

/// Locks the version at `place` against change until the transaction ends. `wait`: for whoever holds it now.
///
/// # Safety
/// As for [`delete`].
pub(super) unsafe fn lock(relation: pg_sys::Relation, place: pg_sys::ItemPointerData, wait: bool) -> Changed {
    let policy =
        if wait { pg_sys::LockWaitPolicy::LockWaitBlock } else { pg_sys::LockWaitPolicy::LockWaitSkip };
    // SAFETY: heap_lock_tuple reads the item pointer of the tuple given and pins its page into `buffer`.
    unsafe {
        let mut tuple = pg_sys::HeapTupleData { t_self: place, ..Default::default() };
        let mut buffer: pg_sys::Buffer = 0;
        let mut failure = pg_sys::TM_FailureData::default();
        let result = pg_sys::heap_lock_tuple(
            relation,
            &mut tuple,
            pg_sys::GetCurrentCommandId(true),
            pg_sys::LockTupleMode::LockTupleNoKeyExclusive,
            policy,
            false,
            &mut buffer,
            &mut failure,
        );
        if buffer != 0 {
            pg_sys::ReleaseBuffer(buffer);
        }
        changed(result)
    }
}

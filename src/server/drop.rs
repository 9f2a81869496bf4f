//! The guard against dropping a ledger that is in use: a hook that sees every object before it is dropped, whatever the
//! command was.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};

use idem_rules::action::State;
use idem_rules::error::{Code, Error};
use pgrx::pg_sys;

use super::raise::Raised;
use super::values::{MAX_COLUMNS, Values};
use crate::settings;

thread_local! {
    static PREVIOUS: Cell<pg_sys::object_access_hook_type> = const { Cell::new(None) };
}

/// Guards drops from now on.
pub fn guard_drops() {
    // SAFETY: called once, from _PG_init. The hook that was there is called first.
    unsafe {
        PREVIOUS.set(pg_sys::object_access_hook);
        pg_sys::object_access_hook = Some(accessed);
    }
}

unsafe extern "C-unwind" fn accessed(
    access: pg_sys::ObjectAccessType::Type,
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    column: c_int,
    argument: *mut c_void,
) {
    // SAFETY: passed through.
    unsafe {
        if let Some(previous) = PREVIOUS.get() {
            previous(access, class, object, column, argument);
        }
    }
    let table = class == pg_sys::RelationRelationId && column == 0;
    if access != pg_sys::ObjectAccessType::OAT_DROP || !table || settings::allow_drop() {
        return;
    }
    // SAFETY: the look is guarded as an SQL function is, and its refusal leaves the guard as plain data.
    let refused = unsafe {
        pg_sys::panic::pgrx_extern_c_guard(|| {
            (is_ledger(object) && has_live_rows(object)).then(|| Raised::from(in_use()))
        })
    };
    if let Some(refused) = refused {
        // SAFETY: nothing on this frame has a destructor.
        unsafe { refused.report(pgrx::PgLogLevel::ERROR as i32) }
    }
}

fn in_use() -> Error {
    Error::new(Code::WrongState, "the ledger of pg_idem has actions that have not ended; it is not dropped")
        .detail("What they did or may have done would be forgotten, and done again by whoever asks for them.")
        .hint("Look at idem_actions. To drop it all the same: SET pg_idem.allow_drop = on.")
}

/// True for the extension's own idem_action.
unsafe fn is_ledger(table: pg_sys::Oid) -> bool {
    // SAFETY: looks an existing relation up; the members of an extension are dropped before it is.
    unsafe {
        let name = pg_sys::get_rel_name(table);
        if name.is_null() || CStr::from_ptr(name) != c"idem_action" {
            return false;
        }
        let extension = pg_sys::get_extension_oid(c"pg_idem".as_ptr(), true);
        extension != pg_sys::InvalidOid
            && pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, table) == extension
    }
}

/// True when an action in the ledger has not ended. A state that nobody knows counts as that.
unsafe fn has_live_rows(table: pg_sys::Oid) -> bool {
    // SAFETY: a scan of the heap as of now; the indexes may be gone already. It is ended and the table closed before
    // anything is refused. The arrays hold as many entries as the table has columns.
    unsafe {
        let relation = pg_sys::table_open(table, pg_sys::AccessShareLock as i32);
        let state = pg_sys::get_attnum(table, c"state".as_ptr());
        let columns = (*(*relation).rd_att).natts as usize;
        let mut live = state <= 0 || columns > MAX_COLUMNS;
        let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
        while !live {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let mut values = Values::new();
            pg_sys::heap_deform_tuple(
                tuple,
                (*relation).rd_att,
                values.datums.as_mut_ptr(),
                values.nulls.as_mut_ptr(),
            );
            let state = State::from_code(values.letter(state as usize - 1));
            live = state.is_none_or(|state| !state.is_terminal());
        }
        pg_sys::heap_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
        live
    }
}

//! Raising errors and warnings with our own SQLSTATEs.

use std::ffi::{CString, c_char, c_int};

use idem_rules::error::Error;
use pgrx::pg_sys;

// pgrx's own reporting knows a closed list of SQLSTATEs, and class ID is not on it. These are PostgreSQL's entry
// points behind the ereport macro (utils/elog.h), declared here because the bindings leave them out.
unsafe extern "C-unwind" {
    fn errstart(elevel: c_int, domain: *const c_char) -> bool;
    fn errcode(sqlerrcode: c_int) -> c_int;
    fn errmsg_internal(fmt: *const c_char, ...) -> c_int;
    fn errdetail_internal(fmt: *const c_char, ...) -> c_int;
    fn errhint(fmt: *const c_char, ...) -> c_int;
    fn errhidestmt(hide_stmt: bool) -> c_int;
    fn errhidecontext(hide_ctx: bool) -> c_int;
    fn errfinish(filename: *const c_char, lineno: c_int, funcname: *const c_char);
}

/// A refusal in memory that PostgreSQL owns: plain data, so that a long jump may pass over it.
#[derive(Clone, Copy)]
pub(super) struct Raised {
    sqlstate: c_int,
    message: *const c_char,
    detail: *const c_char,
    hint: *const c_char,
}

fn owned_by_postgres(text: &str) -> *const c_char {
    let text = CString::new(text.replace('\0', "")).unwrap_or_default();
    // SAFETY: pstrdup copies a NUL-terminated string into the current memory context.
    unsafe { pg_sys::pstrdup(text.as_ptr()) }
}

impl From<Error> for Raised {
    fn from(error: Error) -> Raised {
        let optional = |text: &Option<_>| text.as_deref().map_or(std::ptr::null(), owned_by_postgres);
        Raised {
            sqlstate: error.code.packed(),
            message: owned_by_postgres(&error.message),
            detail: optional(&error.detail),
            hint: optional(&error.hint),
        }
    }
}

impl Raised {
    /// Reports at `level`; does not return when that is ERROR.
    ///
    /// # Safety
    /// At ERROR this jumps: no frame between here and the caller in PostgreSQL may hold anything with a destructor.
    pub(super) unsafe fn report(self, level: c_int) {
        let text = c"%s".as_ptr();
        // SAFETY: the sequence is what the ereport macro expands to; every pointer is NUL-terminated and lives in
        // a PostgreSQL memory context.
        unsafe {
            if !errstart(level, std::ptr::null()) {
                return;
            }
            errcode(self.sqlstate);
            errmsg_internal(text, self.message);
            if !self.detail.is_null() {
                errdetail_internal(text, self.detail);
            }
            if !self.hint.is_null() {
                errhint(text, self.hint);
            }
            // The server would add the statement to a line of its log, and with it a payload.
            if level == LOG {
                errhidestmt(true);
                errhidecontext(true);
            }
            errfinish(c"pg_idem".as_ptr(), 0, c"pg_idem".as_ptr());
        }
    }
}

const LOG: c_int = pgrx::PgLogLevel::LOG as c_int;

/// Sends a WARNING to the client.
pub fn warn(warning: &Error) {
    let raised = Raised::from(warning.clone());
    // SAFETY: a report below ERROR returns.
    unsafe { raised.report(pgrx::PgLogLevel::WARNING as i32) }
}

/// Writes a line to the server's log, without the statement that led to it.
pub fn log(line: Error) {
    // SAFETY: a report below ERROR returns.
    unsafe { Raised::from(line).report(LOG) }
}

//! Roles: who calls, who logged in, and whose privileges they have.

use std::cell::Cell;
use std::ffi::CStr;

use idem_rules::error::{Code, Error, Result};
use pgrx::pg_sys;

/// A role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Role(u32);

thread_local! {
    static GENERATION: Cell<u64> = const { Cell::new(1) };
    static LISTENING: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C-unwind" fn roles_changed(_arg: pg_sys::Datum, _cache: i32, _hash: u32) {
    GENERATION.set(GENERATION.get() + 1);
}

/// Rises whenever any role or membership has changed. What is cached of them holds as long as this stays the same.
pub fn role_generation() -> u64 {
    if !LISTENING.replace(true) {
        use pg_sys::SysCacheIdentifier::{AUTHMEMROLEMEM, AUTHOID};
        for cache in [AUTHMEMROLEMEM, AUTHOID] {
            // SAFETY: registered once a session; the callback touches only this thread's cell and cannot raise.
            unsafe {
                pg_sys::CacheRegisterSyscacheCallback(
                    cache as i32,
                    Some(roles_changed),
                    pg_sys::Datum::from(0),
                )
            };
        }
    }
    GENERATION.get()
}

/// The role that called the outermost function: neither SECURITY DEFINER nor a wrapper changes it.
pub fn outer_role() -> Role {
    // SAFETY: reads a variable of the backend.
    Role(unsafe { pg_sys::GetOuterUserId() }.to_u32())
}

/// The role that logged in.
pub fn session_role() -> Role {
    // SAFETY: reads a variable of the backend.
    Role(unsafe { pg_sys::GetSessionUserId() }.to_u32())
}

/// The role whose rights are used now.
pub(super) fn current_role() -> Role {
    // SAFETY: reads a variable of the backend.
    Role(unsafe { pg_sys::GetUserId() }.to_u32())
}

/// The role that a call is recorded as: the one that called the outermost function. In a trigger that works as its table's
/// owner it is that owner: whoever set the trigger off has not asked for what it does.
pub(super) fn recorded_role() -> Role {
    // SAFETY: reads a variable of the backend.
    match unsafe { pg_sys::InSecurityRestrictedOperation() } {
        true => current_role(),
        false => outer_role(),
    }
}

/// Refuses a person's decision in a trigger that works as its table's owner: it would stand on record as made by whoever
/// set the trigger off. Errors: 42501.
pub fn refuse_as_somebody_else() -> Result<()> {
    // SAFETY: reads a variable of the backend.
    if !unsafe { pg_sys::InSecurityRestrictedOperation() } {
        return Ok(());
    }
    Err(Error::new(
        Code::NotAllowed,
        "nothing is decided inside an operation that runs with somebody else's rights",
    )
    .detail("It would be recorded as decided by who set the trigger off, not by its owner.")
    .hint(
        "Decide in a statement of your own, not in a trigger of an outbox, an index or a materialized view.",
    ))
}

/// True when `role` has the privileges of `of`, as its own or by membership. A superuser has only its own here.
pub fn inherits(role: Role, of: Role) -> bool {
    // SAFETY: looks roles up in the catalog.
    !role.is_superuser() && unsafe { pg_sys::has_privs_of_role(role.oid(), of.oid()) }
}

impl Role {
    pub(super) fn from_datum(datum: pg_sys::Datum) -> Role {
        Role(datum.value() as u32)
    }

    pub(super) fn datum(self) -> pg_sys::Datum {
        pg_sys::Datum::from(self.oid())
    }

    fn oid(self) -> pg_sys::Oid {
        pg_sys::Oid::from(self.0)
    }

    /// Its name. Raises for a role that was dropped.
    pub fn name(self) -> String {
        // SAFETY: the look-up returns a palloc'd string, or raises.
        let name = unsafe { CStr::from_ptr(pg_sys::GetUserNameFromId(self.oid(), false)) };
        name.to_string_lossy().into_owned()
    }

    /// True unless it was dropped.
    pub fn exists(self) -> bool {
        // SAFETY: returns null for a role that is not there.
        unsafe { !pg_sys::GetUserNameFromId(self.oid(), true).is_null() }
    }

    /// True for a superuser.
    pub fn is_superuser(self) -> bool {
        // SAFETY: looks the role up; false for one that is not there.
        unsafe { pg_sys::superuser_arg(self.oid()) }
    }
}

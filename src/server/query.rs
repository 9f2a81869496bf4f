//! Statements on tables that belong to users: prepared once, run with the rights of the table's owner.
//!
//! Our own tables are read below the executor. A user's table has columns, triggers and policies of its own, so it is
//! reached the way PostgreSQL's foreign keys reach theirs (ri_triggers.c): by qualified statements, as its owner, under
//! SECURITY_RESTRICTED_OPERATION, after the caller's own privileges were checked.

use std::cell::OnceCell;
use std::ffi::{CStr, CString};

use idem_rules::error::Result;
use pgrx::pg_sys;

use super::catalog::Type;
use super::values::{Values, uuid_datum};

/// A table of a user's.
pub type Relation = pg_sys::Oid;

/// A parameter of a statement.
#[derive(Clone, Copy)]
pub enum Parameter {
    /// One value.
    One(Type),
    /// An array of uuids.
    Uuids,
    /// An array of row places.
    Places,
}

impl Parameter {
    fn oid(self) -> pg_sys::Oid {
        match self {
            Parameter::One(r#type) => r#type.oid(),
            Parameter::Uuids => pg_sys::UUIDARRAYOID,
            Parameter::Places => pg_sys::TIDARRAYOID,
        }
    }
}

/// A statement of a session, prepared at its first use.
pub struct Statement {
    sql: CString,
    parameters: Vec<Parameter>,
    plan: OnceCell<pg_sys::SPIPlanPtr>,
}

impl Statement {
    /// A statement with its parameters' types.
    pub fn new(sql: String, parameters: &[Parameter]) -> Statement {
        let sql = CString::new(sql).unwrap_or_default();
        Statement { sql, parameters: parameters.to_vec(), plan: OnceCell::new() }
    }

    /// Runs it inside [`as_owner`]: how many rows of the table it has changed.
    pub fn change(&self, arguments: &[Option<pg_sys::Datum>]) -> u64 {
        self.execute(arguments).0
    }

    /// Runs it inside [`as_owner`]. The rows live as long as the call.
    pub fn run(&self, arguments: &[Option<pg_sys::Datum>]) -> Vec<Values> {
        self.execute(arguments).1
    }

    fn execute(&self, arguments: &[Option<pg_sys::Datum>]) -> (u64, Vec<Values>) {
        debug_assert_eq!(arguments.len(), self.parameters.len());
        let mut types: Vec<pg_sys::Oid> = self.parameters.iter().map(|parameter| parameter.oid()).collect();
        let mut datums: Vec<pg_sys::Datum> =
            arguments.iter().map(|argument| argument.unwrap_or(pg_sys::Datum::from(0))).collect();
        let nulls: Vec<std::ffi::c_char> =
            arguments.iter().map(|argument| if argument.is_some() { b' ' } else { b'n' } as _).collect();
        // SAFETY: connected and finished once; an error in between leaves that to the end of the (sub)transaction. The plan
        // is kept in memory of its own; arrays have one entry for each parameter. Rows are copied into the memory of the
        // call before SPI lets go of them. The statement returns at most as many columns as Values has room for: they
        // are ours.
        unsafe {
            let memory = pg_sys::CurrentMemoryContext;
            let nesting = pg_sys::NewGUCNestLevel();
            // The owner's triggers must not find the caller's objects.
            set_for_now(c"search_path", c"pg_catalog, pg_temp");
            assert_eq!(pg_sys::SPI_connect(), pg_sys::SPI_OK_CONNECT as i32, "SPI_connect failed");
            let plan = *self.plan.get_or_init(|| {
                let options = pg_sys::CURSOR_OPT_GENERIC_PLAN as i32;
                let count = types.len() as i32;
                let plan = pg_sys::SPI_prepare_cursor(self.sql.as_ptr(), count, types.as_mut_ptr(), options);
                assert!(!plan.is_null(), "SPI_prepare failed");
                assert_eq!(pg_sys::SPI_keepplan(plan), 0, "SPI_keepplan failed");
                plan
            });
            if !is_planned(plan) {
                make_plan(plan);
            }
            let done = pg_sys::SPI_execute_plan(plan, datums.as_mut_ptr(), nulls.as_ptr(), false, 0);
            assert!(done > 0, "SPI_execute_plan failed: {done}");
            pg_sys::MemoryContextSwitchTo(memory);
            let (processed, table) = (pg_sys::SPI_processed, pg_sys::SPI_tuptable);
            let count = if table.is_null() { 0 } else { processed as usize };
            let rows = (0..count)
                .map(|n| {
                    let tuple = pg_sys::heap_copytuple(*(*table).vals.add(n));
                    let mut values = Values::new();
                    let (datums, nulls) = (values.datums.as_mut_ptr(), values.nulls.as_mut_ptr());
                    pg_sys::heap_deform_tuple(tuple, (*table).tupdesc, datums, nulls);
                    values
                })
                .collect();
            pg_sys::SPI_finish();
            pg_sys::AtEOXact_GUC(false, nesting);
            pg_sys::MemoryContextSwitchTo(memory);
            (processed, rows)
        }
    }
}

/// True where running the statement would not make a plan first.
unsafe fn is_planned(plan: pg_sys::SPIPlanPtr) -> bool {
    // SAFETY: a kept plan has a list of sources, one for each of its statements, and ours are single ones.
    unsafe {
        let source: *mut pg_sys::CachedPlanSource =
            (*(*pg_sys::SPI_plan_get_plan_sources(plan)).elements).ptr_value.cast();
        (*source).is_valid && !(*source).gplan.is_null() && (*(*source).gplan).is_valid
    }
}

/// Has the planner read the queues along their indexes, whatever an empty table's statistics say.
unsafe fn make_plan(plan: pg_sys::SPIPlanPtr) {
    // SAFETY: connected to SPI; the plan is kept, so making it leaves it there; the reference to it is let go.
    unsafe {
        let nesting = pg_sys::NewGUCNestLevel();
        // What is turned off looks dear to the planner, and dear plans are compiled: hence jit.
        for name in [c"enable_seqscan", c"enable_bitmapscan", c"enable_sort", c"jit"] {
            set_for_now(name, c"off");
        }
        let made = pg_sys::SPI_plan_get_cached_plan(plan);
        if !made.is_null() {
            pg_sys::ReleaseCachedPlan(made, pg_sys::CurrentResourceOwner);
        }
        pg_sys::AtEOXact_GUC(false, nesting);
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        if let Some(plan) = self.plan.get().filter(|_| !std::thread::panicking()) {
            // SAFETY: the plan was kept and is let go once.
            unsafe { pg_sys::SPI_freeplan(*plan) };
        }
    }
}

/// Runs `work` with the rights of the owner of `table`. What it allocates lives as long as the call.
///
/// An error on its way through needs nothing here: the end of the (sub)transaction puts the user back.
pub fn as_owner<T>(table: Relation, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let (mut user, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: the relation is locked, so its descriptor can be read; the user is put back below.
    unsafe {
        let relation = pg_sys::relation_open(table, pg_sys::NoLock as i32);
        let owner = (*(*relation).rd_rel).relowner;
        pg_sys::relation_close(relation, pg_sys::NoLock as i32);
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        let restricted = context
            | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32
            | pg_sys::SECURITY_RESTRICTED_OPERATION as i32;
        pg_sys::SetUserIdAndSecContext(owner, restricted);
    }
    let done = work();
    // SAFETY: puts back what was read above.
    unsafe { pg_sys::SetUserIdAndSecContext(user, context) };
    done
}

fn set_for_now(name: &CStr, value: &CStr) {
    // SAFETY: names and values are NUL-terminated and valid for these settings, which anybody may set.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
    }
}

/// An array of uuids.
pub fn uuids_datum(uuids: &[uuid::Uuid]) -> pg_sys::Datum {
    let elements: Vec<_> = uuids.iter().map(|uuid| uuid_datum(*uuid)).collect();
    array(elements, pg_sys::UUIDOID, 16, b'c')
}

/// An array of row places, which a statement has returned as ctid.
pub fn places_datum(places: Vec<pg_sys::Datum>) -> pg_sys::Datum {
    array(places, pg_sys::TIDOID, size_of::<pg_sys::ItemPointerData>() as i32, b's')
}

fn array(mut elements: Vec<pg_sys::Datum>, of: pg_sys::Oid, length: i32, align: u8) -> pg_sys::Datum {
    // SAFETY: the elements are datums of the type `of`, passed by reference, of that length and alignment.
    unsafe {
        let count = elements.len() as i32;
        pg_sys::Datum::from(pg_sys::construct_array(
            elements.as_mut_ptr(),
            count,
            of,
            length,
            false,
            align as std::ffi::c_char,
        ))
    }
}

/// Waits for the lock `key` and keeps it until the transaction ends. Two that wait for each other end in 40P01.
pub fn lock_until_end(key: i64) {
    // SAFETY: takes one bigint.
    unsafe {
        pgrx::direct_function_call::<()>(
            pg_sys::pg_advisory_xact_lock_int8,
            &[Some(pg_sys::Datum::from(key))],
        );
    }
}

/// Tells listeners at commit. A transaction that has done so cannot be prepared. Raises 22023 for an over-long name.
pub fn notify(channel: &str, payload: &str) {
    let arguments = [channel, payload].map(|text| Some(super::values::text_datum(text)));
    // SAFETY: takes two texts.
    unsafe {
        pgrx::direct_function_call::<()>(pg_sys::pg_notify, &arguments);
    }
}

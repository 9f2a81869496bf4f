//! Background processes: registration, shared memory, and the little SQL they run.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BackgroundWorkerStatus, BgWorkerStartTime, SignalWakeFlags,
};
use pgrx::{IntoDatum, PgLwLock, Spi, pg_guard, pg_sys};

use crate::{settings, worker};

/// A database by its object id.
pub type Database = pg_sys::Oid;

/// What a visit came to.
pub enum Visit {
    /// The extension is there, and what was due is done, or time was up.
    Done,
    /// The extension is not there.
    Absent,
    /// No worker process could be had.
    Refused,
    /// The server is stopping.
    Over,
}

// SAFETY: no other library uses this name for a lock of its own.
/// Written by a worker that found the extension, read by the launcher that waits for it: a worker's exit says
/// nothing by itself.
static FOUND: PgLwLock<bool> = unsafe { PgLwLock::new(c"pg_idem found") };

/// Registers the launcher and its shared memory, unless the server only runs pg_upgrade.
pub fn register_launcher() {
    // SAFETY: plain variables, set by the postmaster before it loads libraries.
    let (preloading, upgrading) =
        unsafe { (pg_sys::process_shared_preload_libraries_in_progress, pg_sys::IsBinaryUpgrade) };
    if !preloading || upgrading {
        return;
    }
    pgrx::pg_shmem_init!(FOUND);
    BackgroundWorkerBuilder::new("pg_idem launcher")
        .set_type("pg_idem launcher")
        .set_library("pg_idem")
        .set_function("idem_launcher_main")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(Duration::from_secs(5)))
        .load();
}

/// Entry point of the launcher process.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn idem_launcher_main(_argument: pg_sys::Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    BackgroundWorker::connect_worker_to_spi_by_oid(None, None);
    worker::launch();
    // SAFETY: the end of the process. Code 1 has the postmaster start it again, unless the server is stopping; 0 would
    // mean that it is done for good.
    unsafe { pg_sys::proc_exit(1) };
}

/// Entry point of a worker process; the argument is its database.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn idem_worker_main(database: pg_sys::Datum) {
    super::version::end_at_sigterm();
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(pg_sys::Oid::from(database.value() as u32)), None);
    // What somebody set for the database is meant for his own sessions. No flush and no standby is waited for: what a
    // sweep did and a crash forgets, the next sweep does again; sessions that wait for their own flush come first,
    // and a shutdown does not hang here.
    for (name, value) in [
        (c"default_transaction_isolation", c"read committed"),
        (c"default_transaction_read_only", c"off"),
        (c"synchronous_commit", c"off"),
        (c"search_path", c"pg_catalog"),
        (c"row_security", c"off"),
        (c"lock_timeout", c"1s"),
        (c"role", c"none"),
    ] {
        set(name, value);
    }
    worker::work();
}

fn set(name: &CStr, value: &CStr) {
    // SAFETY: names and values are NUL-terminated and valid for these settings.
    unsafe {
        pg_sys::SetConfigOption(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        )
    }
}

/// Sleeps; false when the process has to end. A reload of the configuration is taken over here.
pub fn sleep(time: Duration) -> bool {
    let go_on = BackgroundWorker::wait_latch(Some(time));
    if BackgroundWorker::sighup_received() {
        // SAFETY: this process is at the top of its loop, where settings may change.
        unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
    }
    go_on
}

/// The databases that can be visited, with their names.
pub fn databases() -> Vec<(Database, String)> {
    BackgroundWorker::transaction(|| {
        let mut found = Vec::new();
        // SAFETY: as the autovacuum launcher does it: pg_database is shared and can be read without a database.
        // The scan is ended and the relation closed before the transaction ends.
        unsafe {
            let relation = pg_sys::table_open(pg_sys::DatabaseRelationId, pg_sys::AccessShareLock as i32);
            let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
            loop {
                let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
                if tuple.is_null() {
                    break;
                }
                let form = pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_database>();
                // A limit of -2 marks what an interrupted DROP DATABASE left.
                if (*form).datallowconn && !(*form).datistemplate && (*form).datconnlimit != -2 {
                    let name = CStr::from_ptr((*form).datname.data.as_ptr());
                    found.push(((*form).oid, name.to_string_lossy().into_owned()));
                }
            }
            pg_sys::heap_endscan(scan);
            pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
        }
        found
    })
}

/// Longer than any visit takes: what lasts longer hangs, at the door of a database that somebody holds locked.
const LONGEST_VISIT: Duration = Duration::from_secs(4);

/// Sends a worker to `database` and waits until it has left.
pub fn visit(database: Database) -> Visit {
    *FOUND.exclusive() = false;
    let started = BackgroundWorkerBuilder::new("pg_idem worker")
        .set_type("pg_idem worker")
        .set_library("pg_idem")
        .set_function("idem_worker_main")
        .enable_spi_access()
        .set_argument(database.into_datum())
        // SAFETY: this process's own id.
        .set_notify_pid(unsafe { pg_sys::MyProcPid })
        .load_dynamic();
    let Ok(worker) = started else { return Visit::Refused };
    let arrived = Instant::now();
    while !matches!(worker.pid(), Err(BackgroundWorkerStatus::Stopped)) {
        if !sleep(Duration::from_millis(100)) {
            worker.terminate();
            return Visit::Over;
        }
        if arrived.elapsed() > LONGEST_VISIT {
            worker.terminate();
            return Visit::Absent;
        }
    }
    if *FOUND.share() { Visit::Done } else { Visit::Absent }
}

/// The function that sweeps a batch, where the extension is installed: the extension's own member, whatever else is
/// called like it.
pub fn visit_function() -> Option<pg_sys::Oid> {
    let function = BackgroundWorker::transaction(|| {
        Spi::get_one::<pg_sys::Oid>(
            "SELECT p.oid FROM pg_catalog.pg_extension AS e \
             JOIN pg_catalog.pg_depend AS d ON d.refclassid OPERATOR(pg_catalog.=) e.tableoid \
                 AND d.refobjid OPERATOR(pg_catalog.=) e.oid AND d.deptype OPERATOR(pg_catalog.=) 'e' \
             JOIN pg_catalog.pg_proc AS p ON d.classid OPERATOR(pg_catalog.=) p.tableoid \
                 AND d.objid OPERATOR(pg_catalog.=) p.oid \
             WHERE e.extname OPERATOR(pg_catalog.=) 'pg_idem' AND p.proname OPERATOR(pg_catalog.=) 'idem_visit'",
        )
    });
    let function = function.ok().flatten();
    *FOUND.exclusive() = function.is_some();
    function
}

/// Sweeps one batch in a transaction of its own. Rows visited; `None` when the batch failed.
pub fn sweep(function: pg_sys::Oid, batch: i32) -> Option<usize> {
    let naptime = settings::naptime().as_secs_f64();
    let visited = BackgroundWorker::transaction(|| {
        // SAFETY: idem_visit(integer, double precision) returns bigint and is the extension's own function; a
        // transaction is running with an active snapshot.
        unsafe {
            let (batch, naptime) = (pg_sys::Datum::from(batch), pg_sys::Datum::from(naptime.to_bits()));
            pg_sys::OidFunctionCall2Coll(function, pg_sys::InvalidOid, batch, naptime).value() as i64
        }
    });
    usize::try_from(visited).ok()
}

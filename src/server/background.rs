//! Background processes: registration, shared memory, and the little SQL they run.

use std::cell::RefCell;
use std::ffi::CStr;
use std::time::{Duration, Instant};

use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BackgroundWorkerStatus, BgWorkerStartTime, SignalWakeFlags,
};
use pgrx::{IntoDatum, PgLwLock, PgMemoryContexts, Spi, pg_guard, pg_sys};

use super::shared;
use crate::{settings, worker};

/// A database by its object id.
pub type Database = pg_sys::Oid;

/// What a visit came to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    /// The extension is there, and what was due is done.
    Done,
    /// The extension is there, and time was up before everything was done.
    Backlog,
    /// The extension is not there.
    Absent,
    /// No worker process could be had.
    Refused,
    /// The server is stopping.
    Over,
}

// SAFETY: no other library uses this name for a lock of its own.
/// What the worker of the running visit has to say, read by the launcher that waits for it: a worker's exit says
/// nothing by itself.
static SAID: PgLwLock<u8> = unsafe { PgLwLock::new(c"pg_idem visit") };

/// The extension is not there, or the worker did not get so far.
const ABSENT: u8 = 0;
/// The extension is there.
const FOUND: u8 = 1;
/// There is more to do.
const BACKLOG: u8 = 2;

/// Registers the launcher and its shared memory, unless the server only runs pg_upgrade.
pub fn register_launcher() {
    // SAFETY: plain variables, set by the postmaster before it loads libraries.
    let (preloading, upgrading) =
        unsafe { (pg_sys::process_shared_preload_libraries_in_progress, pg_sys::IsBinaryUpgrade) };
    if !preloading || upgrading {
        return;
    }
    pgrx::pg_shmem_init!(SAID);
    shared::request();
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
    // Looked at before the catalog: a database that is counted and not there afterwards was dropped.
    let counted = shared::databases();
    BackgroundWorker::transaction(|| {
        let (mut found, mut all) = (Vec::new(), Vec::new());
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
                all.push((*form).oid.to_u32());
                // A limit of -2 marks what an interrupted DROP DATABASE left.
                if (*form).datallowconn && !(*form).datistemplate && (*form).datconnlimit != -2 {
                    let name = CStr::from_ptr((*form).datname.data.as_ptr());
                    found.push(((*form).oid, name.to_string_lossy().into_owned()));
                }
            }
            pg_sys::heap_endscan(scan);
            pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
        }
        counted.iter().filter(|oid| !all.contains(oid)).for_each(|oid| shared::forget(*oid));
        found
    })
}

thread_local! {
    /// For one visit: what the server allocates for a worker would otherwise stay for the launcher's whole life.
    static MEMORY: RefCell<PgMemoryContexts> = RefCell::new(PgMemoryContexts::new("pg_idem visit"));
}

/// Longer than any visit takes: what lasts longer hangs, at the door of a database that somebody holds locked.
const LONGEST_VISIT: Duration = Duration::from_secs(4);

/// Sends a worker to `database` and waits until it has left.
///
/// `rest` is what [`rest`] tells the worker.
pub fn visit(database: Database, rest: u32) -> Visit {
    *SAID.exclusive() = ABSENT;
    let worker = BackgroundWorkerBuilder::new("pg_idem worker")
        .set_type("pg_idem worker")
        .set_library("pg_idem")
        .set_function("idem_worker_main")
        .enable_spi_access()
        .set_argument(database.into_datum())
        .set_extra(&rest.to_string())
        // SAFETY: this process's own id.
        .set_notify_pid(unsafe { pg_sys::MyProcPid });
    // SAFETY: what the visit before left here, the server's handle of its worker, is used by nobody any more.
    let started = MEMORY.with_borrow_mut(|memory| unsafe {
        memory.reset();
        memory.switch_to(|_| worker.load_dynamic())
    });
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
    match *SAID.share() {
        BACKLOG => Visit::Backlog,
        FOUND => Visit::Done,
        _ => Visit::Absent,
    }
}

/// In a worker: how many times as long as a batch took the launcher wants it to rest.
pub fn rest() -> u32 {
    BackgroundWorker::get_extra().parse().unwrap_or(1)
}

/// The worker has to go although there is more to do.
pub fn leave_backlog() {
    *SAID.exclusive() = BACKLOG;
}

/// The extension in this process's database.
#[derive(Clone, Copy)]
pub struct Installed {
    extension: pg_sys::Oid,
    /// Its function that sweeps a batch.
    visit: pg_sys::Oid,
}

/// The extension, where it is installed: its own member function, whatever else is called like it.
pub fn installed() -> Option<Installed> {
    let found = BackgroundWorker::transaction(|| {
        Spi::get_two::<pg_sys::Oid, pg_sys::Oid>(
            "SELECT e.oid, p.oid FROM pg_catalog.pg_extension AS e \
             JOIN pg_catalog.pg_depend AS d ON d.refclassid OPERATOR(pg_catalog.=) e.tableoid \
                 AND d.refobjid OPERATOR(pg_catalog.=) e.oid AND d.deptype OPERATOR(pg_catalog.=) 'e' \
             JOIN pg_catalog.pg_proc AS p ON d.classid OPERATOR(pg_catalog.=) p.tableoid \
                 AND d.objid OPERATOR(pg_catalog.=) p.oid \
             WHERE e.extname OPERATOR(pg_catalog.=) 'pg_idem' AND p.proname OPERATOR(pg_catalog.=) 'idem_visit'",
        )
    });
    let Ok((Some(extension), Some(visit))) = found else { return None };
    *SAID.exclusive() = FOUND;
    Some(Installed { extension, visit })
}

/// What became of a batch.
pub enum Batch {
    /// What it did.
    Done {
        /// Rows visited.
        visited: usize,
        /// Dead attempts among them.
        unknown: usize,
    },
    /// It was rolled back, and noted.
    Failed,
    /// Somebody is dropping or changing the extension, or has.
    Leave,
}

/// Sweeps one batch in a transaction of its own.
pub fn sweep(installed: Installed, batch: i32) -> Batch {
    let naptime = settings::naptime().as_secs_f64();
    BackgroundWorker::transaction(|| {
        // SAFETY: idem_visit(integer, double precision) returns an idem_swept, of which every member is set, and is the
        // extension's own function, which is there for as long as the lock is held; a transaction is running with an
        // active snapshot.
        unsafe {
            if !keep_from_being_dropped(installed) {
                return Batch::Leave;
            }
            let (batch, naptime) = (pg_sys::Datum::from(batch), pg_sys::Datum::from(naptime.to_bits()));
            let swept = pg_sys::OidFunctionCall2Coll(installed.visit, pg_sys::InvalidOid, batch, naptime);
            // PL/pgSQL returns a row in its expanded form.
            let swept: pg_sys::HeapTupleHeader = pg_sys::pg_detoast_datum(swept.cast_mut_ptr()).cast();
            let count = |n| {
                let mut is_null = false;
                usize::try_from(pg_sys::GetAttributeByNum(swept, n, &mut is_null).value() as i64)
            };
            match (count(1), count(2)) {
                (Ok(visited), Ok(unknown)) => Batch::Done { visited, unknown },
                _ => Batch::Failed,
            }
        }
    })
}

/// Locks the extension as DROP EXTENSION does before it locks any of its tables, so that the two cannot wait for each
/// other; false when that would mean waiting, or when the extension is gone.
unsafe fn keep_from_being_dropped(installed: Installed) -> bool {
    // SAFETY: the tag is what LockDatabaseObject (lmgr.c) makes of an object; invalidations are read after the lock
    // is had, as there, and the cache is asked after that.
    unsafe {
        let tag = pg_sys::LOCKTAG {
            locktag_field1: pg_sys::MyDatabaseId.to_u32(),
            locktag_field2: pg_sys::ExtensionRelationId.to_u32(),
            locktag_field3: installed.extension.to_u32(),
            locktag_field4: 0,
            locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
            locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
        };
        let mode = pg_sys::AccessShareLock as i32;
        let locked = pg_sys::LockAcquire(&tag, mode, false, true);
        if locked == pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL {
            return false;
        }
        pg_sys::AcceptInvalidationMessages();
        pg_sys::get_func_namespace(installed.visit) != pg_sys::InvalidOid
    }
}

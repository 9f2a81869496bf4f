//! The session's surroundings: transaction, clock, randomness, encoding, waiting.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_void};
use std::time::Duration;

use idem_rules::action::Time;
use idem_rules::jsonb::Encoding;
use pgrx::pg_sys;
use uuid::Uuid;

/// The database's clock now: clock_timestamp(), in microseconds since the Unix epoch.
pub fn clock() -> Time {
    // SAFETY: reads the clock; no arguments.
    let now = unsafe { pg_sys::GetCurrentTimestamp() };
    now + 946_684_800_000_000
}

/// A moment as this session writes times.
pub fn time_text(time: Time) -> String {
    // SAFETY: the result is NUL-terminated and stands in a buffer of the server's until the next call.
    unsafe { name_of(pg_sys::timestamptz_to_str(time.saturating_sub(946_684_800_000_000))) }
}

/// Takes in what other sessions have sent to be invalidated. A lock that is new to the transaction does this by
/// itself; a transaction that holds its locks already would not hear of anything until it ends.
pub fn take_in_changes() {
    // SAFETY: as every lock on a relation does it; allowed anywhere in a transaction.
    unsafe { pg_sys::AcceptInvalidationMessages() }
}

/// Raises 25006 in a read-only transaction and on a standby.
pub fn refuse_read_only(function: &CStr) {
    // SAFETY: the name is NUL-terminated.
    unsafe { pg_sys::PreventCommandIfReadOnly(function.as_ptr()) }
}

/// True under REPEATABLE READ and SERIALIZABLE, where one snapshot serves the whole transaction.
pub fn repeatable_read() -> bool {
    // SAFETY: a plain variable of the backend.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

/// Gives the transaction its id before the clock is read, so that a time written into a row is never older than
/// the id the row carries: the sweep's cursor relies on it.
pub fn assign_transaction_id() {
    // SAFETY: allowed in any transaction that may write.
    unsafe { pg_sys::GetCurrentTransactionId() };
}

/// True when this transaction has changed something, or has locked a row.
pub fn has_transaction_id() -> bool {
    // SAFETY: looks at the backend's own transaction state.
    unsafe { pg_sys::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

/// True when `xid` is this transaction or one of its subtransactions.
pub fn is_current_transaction(xid: u32) -> bool {
    // SAFETY: looks at the backend's own transaction state.
    unsafe { pg_sys::TransactionIdIsCurrentTransactionId(pg_sys::TransactionId::from_inner(xid)) }
}

/// The oldest transaction id that is still running, prepared ones included, and the next to be given out, as 64-bit
/// ids. They are the same when nothing is running.
pub fn oldest_running() -> (u64, u64) {
    // SAFETY: both look at shared memory under its locks. The next id is read first, so that an id given out between
    // the two looks counts as running, or as not before it.
    unsafe {
        let next = pg_sys::ReadNextFullTransactionId().value;
        let oldest = pg_sys::GetOldestActiveTransactionId().into_inner();
        // The oldest one lies within half the 32-bit circle of the next one, on either side.
        let ahead = oldest.wrapping_sub(next as u32) as i32;
        (next.saturating_add_signed(i64::from(ahead)).min(next), next)
    }
}

/// True in a subtransaction: a savepoint, or a block with an exception handler.
pub fn in_subtransaction() -> bool {
    // SAFETY: looks at the backend's own transaction state.
    unsafe { pg_sys::GetCurrentTransactionNestLevel() > 1 }
}

/// Makes this transaction's commit wait for its WAL whatever synchronous_commit says.
pub fn force_sync_commit() {
    // SAFETY: sets a flag of the running transaction.
    unsafe { pg_sys::ForceSyncCommit() }
}

/// A moment in a transaction's end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Just before a commit or a prepare, which can still fail.
    Ending,
    /// It was committed.
    Committed,
    /// It was rolled back, or was prepared and is not this session's any more.
    Gone,
}

thread_local! {
    static AT_END: Cell<Option<fn(End)>> = const { Cell::new(None) };
}

/// Has `hook` called when a transaction ends. It must not raise: an error in an abort would escalate.
pub fn on_transaction_end(hook: fn(End)) {
    AT_END.set(Some(hook));
    // SAFETY: registered once, from _PG_init; the callback lives as long as the library.
    unsafe { pg_sys::RegisterXactCallback(Some(at_end), std::ptr::null_mut()) }
}

unsafe extern "C-unwind" fn at_end(event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    use pg_sys::XactEvent::*;
    let Some(hook) = AT_END.get() else { return };
    match event {
        XACT_EVENT_PRE_COMMIT | XACT_EVENT_PRE_PREPARE => hook(End::Ending),
        XACT_EVENT_COMMIT => hook(End::Committed),
        XACT_EVENT_ABORT | XACT_EVENT_PREPARE => hook(End::Gone),
        _ => {}
    }
}

/// A random uuid of version 4.
pub fn random_uuid() -> Uuid {
    uuid::Builder::from_random_bytes(random_bytes()).into_uuid()
}

/// A random number in 0..1.
pub fn random_fraction() -> f64 {
    (u64::from_ne_bytes(random_bytes()) >> 11) as f64 / (1u64 << 53) as f64
}

/// Bytes drawn from the server's random source at a time: asking it costs the same for one as for a thousand.
const DRAWN: usize = 1024;

thread_local! {
    /// Random bytes, and how many of them are used up. A backend's own: the postmaster, which backends are copies of,
    /// never draws any.
    static POOL: RefCell<([u8; DRAWN], usize)> = const { RefCell::new(([0; DRAWN], DRAWN)) };
}

/// Fills `bytes` from the server's random source.
pub(super) fn draw(bytes: &mut [u8]) {
    // SAFETY: fills the slice of the length given.
    let drawn = unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) };
    assert!(drawn, "the server has no random source");
}

fn random_bytes<const N: usize>() -> [u8; N] {
    POOL.with_borrow_mut(|(pool, used)| {
        if *used + N > DRAWN {
            draw(pool);
            *used = 0;
        }
        let mut bytes = [0u8; N];
        let taken = &mut pool[*used..*used + N];
        bytes.copy_from_slice(taken);
        // What was given out once does not stay in memory.
        taken.fill(0);
        *used += N;
        bytes
    })
}

/// True in a database whose texts are UTF-8.
pub(super) fn is_utf8() -> bool {
    // SAFETY: reads the database's encoding.
    unsafe { pg_sys::GetDatabaseEncoding() == pg_sys::pg_enc::PG_UTF8 as i32 }
}

/// True in a database that does not say what its bytes mean.
pub(super) fn is_unlabelled() -> bool {
    // SAFETY: reads the database's encoding.
    unsafe { pg_sys::GetDatabaseEncoding() == pg_sys::pg_enc::PG_SQL_ASCII as i32 }
}

/// How strings inside documents are encoded in this database.
pub fn encoding() -> Encoding {
    if is_utf8() { Encoding::Utf8 } else { Encoding::Other }
}

/// The role that logged in.
pub fn session_user_name() -> String {
    // SAFETY: GetUserNameFromId returns a palloc'd name, or raises for a role that was dropped.
    unsafe { name_of(pg_sys::GetUserNameFromId(pg_sys::GetSessionUserId(), false)) }
}

unsafe fn name_of(name: *const std::ffi::c_char) -> String {
    // SAFETY: a NUL-terminated string from the server.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// A wait that looks again and again, a little less often each time.
#[derive(Default)]
pub struct Tick {
    round: u32,
}

/// Sleeps until the next look, but not past `left`. Interrupts (cancel, terminate, time-outs) are served.
pub fn tick(pace: &mut Tick, left: Duration) {
    let step = Duration::from_millis(1 << pace.round.min(5)).min(left).max(Duration::from_millis(1));
    pace.round += 1;
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: the backend's own latch; a set latch is reset before interrupts are looked at, so none is missed.
    unsafe {
        pg_sys::WaitLatch(pg_sys::MyLatch, events as i32, step.as_millis() as i64, pg_sys::PG_WAIT_EXTENSION);
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    serve_interrupts();
}

/// Serves a cancel, a terminate or a time-out that has come in meanwhile. Every loop that looks again calls this.
pub fn serve_interrupts() {
    pgrx::check_for_interrupts!();
}

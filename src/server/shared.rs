//! What is counted in shared memory because it must cost no write: one atomic increment each. And the last conflicts,
//! in a ring of a fixed size. Both are there only where the library is preloaded, and empty after a restart.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use idem_rules::action::Time;
use pgrx::{PGRXSharedMemory, PgAtomic, PgLwLock, pg_guard, pg_sys};
use uuid::Uuid;

use super::xact;

/// What is counted here.
#[derive(Clone, Copy)]
pub enum Count {
    /// Actions whose first attempt was granted.
    ActionsStarted,
    /// Attempts that were granted.
    AttemptsSent,
    /// Calls that were told not to carry out what another one had begun or done.
    DuplicatesSuppressed,
    /// Calls that brought another request under a key in use.
    Conflicts,
}

/// Every count with its name among the metrics.
pub const COUNTS: [(Count, &str); 4] = [
    (Count::ActionsStarted, "actions.started"),
    (Count::AttemptsSent, "attempts.sent"),
    (Count::DuplicatesSuppressed, "duplicate_requests_suppressed"),
    (Count::Conflicts, "conflicting_key_reuse"),
];

/// Databases that can be counted apart at a time; those beyond are not counted.
const DATABASES: usize = 64;

/// Conflicts that are remembered.
const REMEMBERED: usize = 512;

/// Bytes of an action type's name that are remembered.
const NAME: usize = 100;

struct Database {
    oid: AtomicU32,
    counts: [AtomicU64; COUNTS.len()],
}

struct Databases {
    /// Drawn at random when the memory is made.
    start: u64,
    places: [Database; DATABASES],
}

// SAFETY: atomics only, which processes share as threads do; no pointers.
unsafe impl PGRXSharedMemory for Databases {}

#[derive(Clone, Copy)]
struct Met {
    database: u32,
    at: Time,
    action_id: Uuid,
    length: u8,
    name: [u8; NAME],
}

struct Ring {
    met: [Met; REMEMBERED],
    next: usize,
}

// SAFETY: plain values without pointers, behind a lock.
unsafe impl PGRXSharedMemory for Ring {}

// SAFETY: no other library uses this name.
static COUNTED: PgAtomic<Databases> = unsafe { PgAtomic::new(c"pg_idem counts") };
// SAFETY: no other library uses this name for a lock of its own.
static CONFLICTS: PgLwLock<Ring> = unsafe { PgLwLock::new(c"pg_idem conflicts") };

/// Set in the postmaster, whose copies the other processes are: the memory above is there.
static PRELOADED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This session's database among those counted: not looked for yet, or not to be had, or its place.
    static PLACE: Cell<Option<Option<usize>>> = const { Cell::new(None) };
}

fn drawn() -> u64 {
    let mut bytes = [0u8; 8];
    xact::draw(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// Asks for the memory; called while the library is preloaded.
pub(super) fn request() {
    pgrx::pg_shmem_init!(
        COUNTED = Databases {
            start: drawn(),
            places: [const {
                Database { oid: AtomicU32::new(0), counts: [const { AtomicU64::new(0) }; COUNTS.len()] }
            }; DATABASES],
        }
    );
    pgrx::pg_shmem_init!(
        CONFLICTS = Ring {
            met: [Met { database: 0, at: 0, action_id: Uuid::nil(), length: 0, name: [0; NAME] }; REMEMBERED],
            next: 0,
        }
    );
    PRELOADED.store(true, Ordering::Relaxed);
}

fn this_database() -> u32 {
    // SAFETY: a plain variable of the backend.
    unsafe { pg_sys::MyDatabaseId.to_u32() }
}

/// This session's database; its place is taken on first use. `None` without preload, or when all places are taken.
fn mine() -> Option<&'static Database> {
    if !PRELOADED.load(Ordering::Relaxed) {
        return None;
    }
    let databases = &COUNTED.get().places;
    let place = PLACE.get().unwrap_or_else(|| {
        let oid = this_database();
        // Its own place if it has one, else the first free one. Two sessions that come at once may take two: what is
        // counted is added up.
        let has = |place: &Database| place.oid.load(Ordering::Acquire) == oid;
        let takes = |place: &Database| {
            let taken = place.oid.compare_exchange(0, oid, Ordering::AcqRel, Ordering::Acquire);
            taken.map_or_else(|other| other == oid, |_| true)
        };
        let place = databases.iter().position(has).or_else(|| databases.iter().position(takes));
        PLACE.set(Some(place));
        place
    })?;
    databases.get(place)
}

/// Counts one more. Costs one atomic increment; nothing without preload.
pub fn count(what: Count) {
    if let Some(database) = mine() {
        database.counts[what as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// What has been counted in this database since its counters began, and which counters these are: others after each
/// start of the server and in each database, also in a copy of one. `None` without preload, or where it is not counted.
pub fn counted() -> Option<(i64, [(&'static str, u64); COUNTS.len()])> {
    mine()?;
    let (oid, all) = (this_database(), COUNTED.get());
    let ours = || all.places.iter().filter(move |place| place.oid.load(Ordering::Acquire) == oid);
    let counts = COUNTS.map(|(what, name)| {
        (name, ours().map(|place| place.counts[what as usize].load(Ordering::Relaxed)).sum())
    });
    // An odd factor: two databases never have the same.
    let counter = all.start ^ u64::from(oid).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Some((counter as i64, counts))
}

/// The databases that are counted.
pub(super) fn databases() -> Vec<u32> {
    let oids = COUNTED.get().places.iter().map(|place| place.oid.load(Ordering::Acquire));
    oids.filter(|oid| *oid != 0).collect()
}

/// Gives back the place of a database that is there no more.
pub(super) fn forget(database: u32) {
    for place in COUNTED.get().places.iter().filter(|place| place.oid.load(Ordering::Acquire) == database) {
        place.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        place.oid.store(0, Ordering::Release);
    }
}

/// Remembers a conflict. Nothing that can fail or wait happens under the lock.
pub fn remember_conflict(action_id: Uuid, action_type: &str, at: Time) {
    if !PRELOADED.load(Ordering::Relaxed) {
        return;
    }
    let length =
        (0..=NAME.min(action_type.len())).rev().find(|n| action_type.is_char_boundary(*n)).unwrap_or(0);
    let mut name = [0; NAME];
    name[..length].copy_from_slice(&action_type.as_bytes()[..length]);
    let met = Met { database: this_database(), at, action_id, length: length as u8, name };
    let mut ring = CONFLICTS.exclusive();
    let next = ring.next % REMEMBERED;
    ring.met[next] = met;
    ring.next = (next + 1) % REMEMBERED;
}

/// The conflicts remembered of this database: action, type, time.
pub fn remembered_conflicts() -> Vec<(Uuid, String, Time)> {
    if !PRELOADED.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let database = this_database();
    // Copied under the lock, put into words after it.
    let met = CONFLICTS.share().met;
    let ours = met.iter().filter(|met| met.database == database);
    ours.map(|met| {
        let name = String::from_utf8_lossy(&met.name[..usize::from(met.length)]).into_owned();
        (met.action_id, name, met.at)
    })
    .collect()
}

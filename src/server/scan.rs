//! Index scans below the executor.

use idem_rules::action::Time;
use idem_rules::error::Result;
use pgrx::pg_sys;
use uuid::Uuid;

use super::table::{Row, Table};
use super::values::{time_datum, uuid_datum};
use super::version::begin_scan;
use super::xact::{Tick, tick};

/// How an index column is compared with a value.
#[derive(Clone, Copy)]
pub enum Bound {
    /// uuid =
    Uuid(Uuid),
    /// timestamptz >
    After(Time),
    /// timestamptz <=
    UpTo(Time),
    /// integer =
    Int(i32),
    /// bigint >=
    AtLeast(i64),
    /// regclass =
    Table(pg_sys::Oid),
    /// text = under collation "C"
    Text(pg_sys::Datum),
}

/// A condition on one column of an index, or of a table without one, counted from 1.
#[derive(Clone, Copy)]
pub struct Key(pub i16, pub Bound);

/// Conditions a scan of ours can have.
const MAX_KEYS: usize = 3;

pub(super) fn scan_keys(keys: &[Key]) -> [pg_sys::ScanKeyData; MAX_KEYS] {
    let mut entries: [pg_sys::ScanKeyData; MAX_KEYS] = Default::default();
    for (entry, Key(column, bound)) in entries.iter_mut().zip(keys) {
        let (strategy, procedure, argument) = match *bound {
            Bound::Uuid(uuid) => (pg_sys::BTEqualStrategyNumber, pg_sys::F_UUID_EQ, uuid_datum(uuid)),
            Bound::After(time) => {
                (pg_sys::BTGreaterStrategyNumber, pg_sys::F_TIMESTAMPTZ_GT, time_datum(time))
            }
            Bound::UpTo(time) => {
                (pg_sys::BTLessEqualStrategyNumber, pg_sys::F_TIMESTAMPTZ_LE, time_datum(time))
            }
            Bound::Int(value) => {
                (pg_sys::BTEqualStrategyNumber, pg_sys::F_INT4EQ, pg_sys::Datum::from(value))
            }
            Bound::AtLeast(value) => {
                (pg_sys::BTGreaterEqualStrategyNumber, pg_sys::F_INT8GE, pg_sys::Datum::from(value))
            }
            Bound::Table(table) => {
                (pg_sys::BTEqualStrategyNumber, pg_sys::F_OIDEQ, pg_sys::Datum::from(table))
            }
            Bound::Text(datum) => (pg_sys::BTEqualStrategyNumber, pg_sys::F_TEXTEQ, datum),
        };
        let collation = match bound {
            Bound::Text(_) => pg_sys::C_COLLATION_OID,
            _ => pg_sys::InvalidOid,
        };
        // SAFETY: fills one entry of our own array; the procedures are built in.
        unsafe {
            pg_sys::ScanKeyEntryInitialize(
                entry,
                0,
                *column,
                strategy as u16,
                pg_sys::InvalidOid,
                collation,
                procedure.into(),
                argument,
            )
        };
    }
    entries
}

/// What is there at this very moment.
pub enum Sight {
    /// A row, that may be about to go.
    Row(Box<Row>),
    /// The row of another transaction that has not ended yet.
    Added(Writer),
}

/// Another transaction that writes a row.
pub struct Writer {
    xid: pg_sys::TransactionId,
    /// It may still take the row back, before it ends.
    speculative: bool,
}

impl Writer {
    /// Waits for its end. Two that wait for each other end in 40P01.
    pub fn wait(&self, pace: &mut Tick) {
        if self.speculative {
            // It is being decided at this moment whether that row stays.
            return tick(pace, std::time::Duration::MAX);
        }
        let nothing = std::ptr::null_mut();
        // SAFETY: waits for a transaction's lock; without a row's place to tell of, the relation is not looked at.
        unsafe {
            pg_sys::XactLockTableWait(self.xid, nothing, nothing.cast(), pg_sys::XLTW_Oper::XLTW_None);
        }
    }
}

/// An index scan that is ended, and its snapshot let go, when it goes out of scope.
pub(super) struct Scan {
    scan: pg_sys::IndexScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
    registered: Option<pg_sys::Snapshot>,
}

impl Scan {
    /// # Safety
    /// Table and index must be open, for as long as the scan, and belong together. `snapshot` must stay valid for as
    /// long; `keys` are copied.
    unsafe fn begin(
        table: pg_sys::Relation,
        index: pg_sys::Relation,
        keys: &[Key],
        snapshot: pg_sys::Snapshot,
    ) -> Scan {
        // SAFETY: as required.
        unsafe {
            let slot = pg_sys::table_slot_create(table, std::ptr::null_mut());
            let scan = begin_scan(table, index, snapshot, keys.len() as i32);
            let scan = Scan { scan, slot, registered: None };
            scan.again(keys);
            scan
        }
    }

    /// Starts over with other values for as many keys.
    ///
    /// # Safety
    /// As for [`Scan::begin`].
    pub(super) unsafe fn again(&self, keys: &[Key]) {
        let mut entries = scan_keys(keys);
        // SAFETY: the scan is open and was begun for as many keys.
        unsafe {
            pg_sys::index_rescan(self.scan, entries.as_mut_ptr(), keys.len() as i32, std::ptr::null_mut(), 0);
        }
    }

    /// # Safety
    /// As for [`Scan::begin`].
    pub(super) unsafe fn mvcc(table: pg_sys::Relation, index: pg_sys::Relation, keys: &[Key]) -> Scan {
        // SAFETY: as required.
        unsafe { Scan::registered(table, index, keys, pg_sys::GetTransactionSnapshot()) }
    }

    unsafe fn registered(
        table: pg_sys::Relation,
        index: pg_sys::Relation,
        keys: &[Key],
        snapshot: pg_sys::Snapshot,
    ) -> Scan {
        // SAFETY: a registered snapshot lives until it is unregistered, which Drop does after the scan ended.
        unsafe {
            let snapshot = pg_sys::RegisterSnapshot(snapshot);
            let mut scan = Scan::begin(table, index, keys, snapshot);
            scan.registered = Some(snapshot);
            scan
        }
    }

    /// # Safety
    /// As for [`Scan::begin`].
    pub(super) unsafe fn next(&mut self, direction: pg_sys::ScanDirection::Type) -> bool {
        // SAFETY: the scan is open.
        unsafe { pg_sys::index_getnext_slot(self.scan, direction, self.slot) }
    }

    /// Where the row just fetched stands until the next one does.
    pub(super) fn slot(&self) -> *mut pg_sys::TupleTableSlot {
        self.slot
    }

    unsafe fn row(&self, table: &Table) -> Row {
        // SAFETY: the slot holds the tuple just fetched.
        unsafe { Row::copied(table, self.slot) }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        // An error on its way out leaves this to the transaction's resource owner.
        if std::thread::panicking() {
            return;
        }
        // SAFETY: each is released once, the scan before its snapshot.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
            pg_sys::index_endscan(self.scan);
            if let Some(snapshot) = self.registered {
                pg_sys::UnregisterSnapshot(snapshot);
            }
        }
    }
}

impl Table {
    /// The first row that meets `keys` in index order.
    pub fn find(&self, index: usize, keys: &[Key]) -> Option<Row> {
        // SAFETY: the scan is used and ended here.
        unsafe {
            let mut scan = Scan::mvcc(self.relation(), self.index(index), keys);
            scan.next(pg_sys::ScanDirection::ForwardScanDirection).then(|| scan.row(self))
        }
    }

    /// The last row that meets `keys` in index order.
    pub fn find_last(&self, index: usize, keys: &[Key]) -> Option<Row> {
        // SAFETY: as in find.
        unsafe {
            let mut scan = Scan::mvcc(self.relation(), self.index(index), keys);
            scan.next(pg_sys::ScanDirection::BackwardScanDirection).then(|| scan.row(self))
        }
    }

    /// [`Table::find`] as of this very moment, under REPEATABLE READ and SERIALIZABLE too. Not in a parallel query.
    pub fn find_now(&self, index: usize, keys: &[Key]) -> Option<Row> {
        // SAFETY: as in find.
        unsafe { self.one_now(index, keys, pg_sys::ScanDirection::ForwardScanDirection) }
    }

    /// [`Table::find_last`] as of this very moment. Not in a parallel query.
    pub fn find_last_now(&self, index: usize, keys: &[Key]) -> Option<Row> {
        // SAFETY: as in find.
        unsafe { self.one_now(index, keys, pg_sys::ScanDirection::BackwardScanDirection) }
    }

    unsafe fn one_now(
        &self,
        index: usize,
        keys: &[Key],
        direction: pg_sys::ScanDirection::Type,
    ) -> Option<Row> {
        // SAFETY: as in find.
        unsafe {
            let mut scan =
                Scan::registered(self.relation(), self.index(index), keys, pg_sys::GetLatestSnapshot());
            scan.next(direction).then(|| scan.row(self))
        }
    }

    /// Rows that meet `keys`, in index order, until `take` says false.
    pub fn each(&self, index: usize, keys: &[Key], take: impl FnMut(Row) -> Result<bool>) -> Result<()> {
        // SAFETY: as in find.
        unsafe { self.each_of(Scan::mvcc(self.relation(), self.index(index), keys), take) }
    }

    /// The same as of this very moment, under REPEATABLE READ and SERIALIZABLE too. Not in a parallel query.
    pub fn each_now(&self, index: usize, keys: &[Key], take: impl FnMut(Row) -> Result<bool>) -> Result<()> {
        // SAFETY: as in find.
        unsafe {
            self.each_of(
                Scan::registered(self.relation(), self.index(index), keys, pg_sys::GetLatestSnapshot()),
                take,
            )
        }
    }

    /// As [`Table::each`], for many rows: what is allocated for one of them is let go before the next.
    pub fn each_letting_go(
        &self,
        index: usize,
        keys: &[Key],
        mut take: impl FnMut(Row) -> Result<bool>,
    ) -> Result<()> {
        // SAFETY: the scan and what belongs to it were made before the switch and are ended after the switch back. An
        // error leaves both contexts to the transaction's end; a refusal of ours is no longer in the row's memory.
        unsafe {
            let mut scan = Scan::mvcc(self.relation(), self.index(index), keys);
            let outer = pg_sys::CurrentMemoryContext;
            let of_row = pg_sys::AllocSetContextCreateInternal(
                outer,
                c"pg_idem row".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            );
            let mut taken = Ok(true);
            while matches!(taken, Ok(true)) && scan.next(pg_sys::ScanDirection::ForwardScanDirection) {
                pg_sys::CurrentMemoryContext = of_row;
                taken = take(scan.row(self));
                pg_sys::CurrentMemoryContext = outer;
                pg_sys::MemoryContextReset(of_row);
            }
            pg_sys::MemoryContextDelete(of_row);
            taken.map(drop)
        }
    }

    unsafe fn each_of(&self, mut scan: Scan, mut take: impl FnMut(Row) -> Result<bool>) -> Result<()> {
        // SAFETY: the scan is one of this table's; `take` may open scans of its own.
        unsafe {
            while scan.next(pg_sys::ScanDirection::ForwardScanDirection) {
                if !take(scan.row(self))? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// True when another transaction that has not ended yet inserted, or changes, a row that meets `keys`.
    pub fn is_being_written(&self, index: usize, keys: &[Key]) -> bool {
        self.writer(index, keys).is_some()
    }

    /// Waits for the end of another transaction that inserted, or changes, a row that meets `keys`, as a unique index
    /// has an INSERT wait. False when there is none. Two that wait for each other end in 40P01.
    pub fn wait_for_writer(&self, index: usize, keys: &[Key], pace: &mut Tick) -> bool {
        let writer = self.writer(index, keys);
        writer.iter().for_each(|writer| writer.wait(pace));
        writer.is_some()
    }

    /// The row that meets `keys` at this very moment, whatever the transaction's snapshot, or who is adding one.
    pub fn look(&self, index: usize, keys: &[Key]) -> Option<Sight> {
        self.dirty(index, keys, |scan, adds, _| {
            // SAFETY: the scan has just fetched the row.
            Some(adds.map_or_else(|| Sight::Row(Box::new(unsafe { scan.row(self) })), Sight::Added))
        })
    }

    /// The transaction that is adding, or changing, a row that meets `keys`.
    fn writer(&self, index: usize, keys: &[Key]) -> Option<Writer> {
        self.dirty(index, keys, |_, adds, changes| adds.or(changes))
    }

    /// What `take` makes of the first row that meets `keys` of which it makes something, also of those of transactions that
    /// have not ended yet: who is adding it, and who is changing it.
    fn dirty<T>(
        &self,
        index: usize,
        keys: &[Key],
        take: impl Fn(&Scan, Option<Writer>, Option<Writer>) -> Option<T>,
    ) -> Option<T> {
        let mut dirty = pg_sys::SnapshotData {
            snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY,
            ..Default::default()
        };
        let writer =
            |xid, speculative| (xid != pg_sys::InvalidTransactionId).then_some(Writer { xid, speculative });
        let mut taken = None;
        // SAFETY: a dirty snapshot needs no registration (snapmgr.h); it lives on this frame longer than the scan.
        unsafe {
            let mut scan = Scan::begin(self.relation(), self.index(index), keys, &mut dirty);
            while taken.is_none() && scan.next(pg_sys::ScanDirection::ForwardScanDirection) {
                let adds = writer(dirty.xmin, dirty.speculativeToken != 0);
                taken = take(&scan, adds, writer(dirty.xmax, false));
            }
        }
        taken
    }
}

//! The rows of a table that needs no statements.

use std::cell::Cell;

use pgrx::pg_sys;

use super::shape::{Default, Direct};
use crate::server::heap::{self, Changed};
use crate::server::scan::{Bound, Key, Scan};
use crate::server::values::{MAX_COLUMNS, Values};
use crate::server::version::{Entries, insert_index_entries};
use crate::server::xact::serve_interrupts;

/// A row that a scan shows, which is there until the scan goes on.
pub struct Shown<'a> {
    open: &'a Open<'a>,
    slot: *mut pg_sys::TupleTableSlot,
}

/// A row version, as it was read: a copy that lives as long as the call.
pub struct Version {
    tuple: pg_sys::HeapTuple,
}

impl Shown<'_> {
    /// One of the wanted columns.
    pub fn column(&self, n: usize) -> Option<pg_sys::Datum> {
        let column = self.open.direct.columns[n];
        // SAFETY: the slot holds the row, and knows as many columns as its descriptor, once they are asked for.
        unsafe {
            if (*self.slot).tts_nvalid as usize <= column {
                pg_sys::slot_getsomeattrs_int(self.slot, column as i32 + 1);
            }
            (!*(*self.slot).tts_isnull.add(column)).then(|| *(*self.slot).tts_values.add(column))
        }
    }

    fn tuple(&self) -> pg_sys::HeapTuple {
        let mut should_free = false;
        // SAFETY: the slot holds the row, and a pin on its page.
        unsafe { pg_sys::ExecFetchSlotHeapTuple(self.slot, false, &mut should_free) }
    }

    /// True when no transaction has locked or changed it, as far as it says itself.
    pub fn is_free(&self) -> bool {
        // SAFETY: the header of the row.
        unsafe { (*(*self.tuple()).t_data).t_infomask & pg_sys::HEAP_XMAX_INVALID as u16 != 0 }
    }

    /// A copy of it.
    pub fn version(&self) -> Version {
        // SAFETY: the slot holds the row.
        Version { tuple: unsafe { pg_sys::heap_copytuple(self.tuple()) } }
    }

    /// Locks it until the transaction ends, without waiting for anybody.
    pub fn lock(&self) -> Changed {
        self.open.lock_at(self.tuple())
    }

    /// Removes it, without waiting for anybody.
    pub fn delete(&self) -> Changed {
        // SAFETY: the row is one of this table's.
        unsafe {
            pg_sys::CheckCmdReplicaIdentity(self.open.relation, pg_sys::CmdType::CMD_DELETE);
            heap::delete(self.open.relation, (*self.tuple()).t_self)
        }
    }
}

/// A user's table, open.
pub struct Open<'a> {
    direct: &'a Direct,
    relation: pg_sys::Relation,
    /// What the executor needs for index entries, once one is added.
    executor: Cell<Option<Executor>>,
}

#[derive(Clone, Copy)]
struct Executor {
    state: *mut pg_sys::EState,
    table: *mut pg_sys::ResultRelInfo,
}

impl Direct {
    /// Opens the table, which is locked, for reading and changing rows, inside [`crate::server::query::as_owner`].
    pub fn open(&self) -> Open<'_> {
        // SAFETY: the caller has locked the table as any statement that writes does.
        let relation = unsafe { pg_sys::relation_open(self.table, pg_sys::NoLock as i32) };
        Open { direct: self, relation, executor: Cell::new(None) }
    }
}

impl Open<'_> {
    /// Adds rows that are given the first of the wanted columns. Raises 23505.
    pub fn insert<const N: usize>(&self, rows: &[[Option<pg_sys::Datum>; N]]) {
        let mut slots = Vec::with_capacity(rows.len());
        // SAFETY: tuples are formed by the table's descriptor and stored in slots for it, which outlive the insert; entries
        // are added for what was stored.
        unsafe {
            for row in rows {
                let descriptor = (*self.relation).rd_att;
                let tuple = self.form(row);
                let slot = pg_sys::MakeSingleTupleTableSlot(descriptor, &pg_sys::TTSOpsHeapTuple);
                pg_sys::ExecStoreHeapTuple(tuple, slot, false);
                slots.push(slot);
            }
            let command = pg_sys::GetCurrentCommandId(true);
            let nothing = std::ptr::null_mut();
            pg_sys::heap_multi_insert(
                self.relation,
                slots.as_mut_ptr(),
                slots.len() as i32,
                command,
                0,
                nothing,
            );
            for slot in slots {
                self.add_entries(slot, false, Entries::All);
                pg_sys::ExecDropSingleTupleTableSlot(slot);
            }
            pg_sys::CommandCounterIncrement();
        }
    }

    unsafe fn form(&self, given: &[Option<pg_sys::Datum>]) -> pg_sys::HeapTuple {
        let mut values = Values::new();
        for (column, datum) in self.direct.columns.iter().zip(given) {
            values.set(*column, *datum);
        }
        for (column, default) in &self.direct.defaults {
            // SAFETY: the functions were looked at when the default was read. The sequence is asked with the rights of the
            // table's owner, as its default would be.
            let datum = unsafe {
                match *default {
                    Default::Constant(datum) => datum,
                    Default::Call(function) => pg_sys::OidFunctionCall0Coll(function, pg_sys::InvalidOid),
                    Default::Next(sequence) => pg_sys::OidFunctionCall1Coll(
                        pg_sys::F_NEXTVAL.into(),
                        pg_sys::InvalidOid,
                        pg_sys::Datum::from(sequence),
                    ),
                }
            };
            values.set(*column, Some(datum));
        }
        // SAFETY: the arrays hold as many entries as the descriptor names.
        unsafe {
            pg_sys::heap_form_tuple(
                (*self.relation).rd_att,
                values.datums.as_mut_ptr(),
                values.nulls.as_mut_ptr(),
            )
        }
    }

    /// Shows the rows whose ascending column is at least `from`, in its order, until `take` says false.
    pub fn each_from(&self, from: i64, mut take: impl FnMut(&Shown) -> bool) {
        // SAFETY: table and index are open for as long as the scan.
        unsafe {
            let index = pg_sys::index_open(self.direct.ascending, pg_sys::AccessShareLock as i32);
            let mut scan = Scan::mvcc(self.relation, index, &[Key(1, Bound::AtLeast(from))]);
            let shown = Shown { open: self, slot: scan.slot() };
            while scan.next(pg_sys::ScanDirection::ForwardScanDirection) && take(&shown) {
                serve_interrupts();
            }
            drop(scan);
            pg_sys::index_close(index, pg_sys::NoLock as i32);
        }
    }

    /// Shows the rows that have the unique column's values, where there is one.
    pub fn each_of(&self, ids: &[uuid::Uuid], mut show: impl FnMut(uuid::Uuid, &Shown)) {
        let Some(first) = ids.first() else { return };
        let key = |id: &uuid::Uuid| [Key(1, Bound::Uuid(*id))];
        // SAFETY: as in each_from.
        unsafe {
            let index = pg_sys::index_open(self.direct.unique, pg_sys::AccessShareLock as i32);
            let mut scan = Scan::mvcc(self.relation, index, &key(first));
            let shown = Shown { open: self, slot: scan.slot() };
            for (n, id) in ids.iter().enumerate() {
                serve_interrupts();
                if n > 0 {
                    scan.again(&key(id));
                }
                if scan.next(pg_sys::ScanDirection::ForwardScanDirection) {
                    show(*id, &shown);
                }
            }
            drop(scan);
            pg_sys::index_close(index, pg_sys::NoLock as i32);
        }
    }

    /// The wanted columns of a row, and behind them its place, as a statement returns ctid.
    pub fn read(&self, version: &Version) -> Values {
        let mut all = Values::new();
        // SAFETY: the tuple is one of this table's, whose columns are no more than Values has room for.
        unsafe {
            pg_sys::heap_deform_tuple(
                version.tuple,
                (*self.relation).rd_att,
                all.datums.as_mut_ptr(),
                all.nulls.as_mut_ptr(),
            );
        }
        let mut values = Values::new();
        for (n, column) in self.direct.columns.iter().enumerate() {
            values.set(n, all.datum(*column));
        }
        // SAFETY: only an address is taken, which lives as long as the call.
        let place = unsafe { &raw mut (*version.tuple).t_self };
        values.set(self.direct.columns.len(), Some(pg_sys::Datum::from(place)));
        values
    }

    /// Puts other values, by their places among the wanted columns, into a row, without waiting for anybody.
    pub fn update(&self, version: &Version, changes: &[(usize, Option<pg_sys::Datum>)]) -> Changed {
        let mut values = Values::new();
        let mut replaced = [false; MAX_COLUMNS];
        for (column, datum) in changes {
            let column = self.direct.columns[*column];
            values.set(column, *datum);
            replaced[column] = true;
        }
        // SAFETY: the version is one of this table's, and the arrays hold as many entries as its descriptor names.
        unsafe {
            pg_sys::CheckCmdReplicaIdentity(self.relation, pg_sys::CmdType::CMD_UPDATE);
            let descriptor = (*self.relation).rd_att;
            let (datums, nulls) = (values.datums.as_mut_ptr(), values.nulls.as_mut_ptr());
            let tuple =
                pg_sys::heap_modify_tuple(version.tuple, descriptor, datums, nulls, replaced.as_mut_ptr());
            let (changed, entries) = heap::update(self.relation, (*version.tuple).t_self, tuple);
            if changed == Changed::Done && entries != Entries::None {
                let slot = pg_sys::MakeSingleTupleTableSlot(descriptor, &pg_sys::TTSOpsHeapTuple);
                pg_sys::ExecStoreHeapTuple(tuple, slot, false);
                self.add_entries(slot, true, entries);
                pg_sys::ExecDropSingleTupleTableSlot(slot);
            }
            changed
        }
    }

    /// Locks a row until the transaction ends, without waiting for anybody.
    pub fn lock(&self, version: &Version) -> Changed {
        self.lock_at(version.tuple)
    }

    fn lock_at(&self, tuple: pg_sys::HeapTuple) -> Changed {
        // SAFETY: the row is one of this table's.
        unsafe { heap::lock(self.relation, (*tuple).t_self, false) }
    }

    /// Adds the index entries of what stands in `slot`.
    unsafe fn add_entries(&self, slot: *mut pg_sys::TupleTableSlot, is_update: bool, entries: Entries) {
        // SAFETY: the table is open; indexes are opened once and closed with it.
        unsafe {
            let executor = self.executor.get().unwrap_or_else(|| {
                let state = pg_sys::CreateExecutorState();
                let size = size_of::<pg_sys::ResultRelInfo>();
                let table: *mut pg_sys::ResultRelInfo = pg_sys::palloc0(size).cast();
                (*table).type_ = pg_sys::NodeTag::T_ResultRelInfo;
                pg_sys::InitResultRelInfo(table, self.relation, 0, std::ptr::null_mut(), 0);
                pg_sys::ExecOpenIndices(table, false);
                let executor = Executor { state, table };
                self.executor.set(Some(executor));
                executor
            });
            insert_index_entries(executor.table, slot, executor.state, is_update, entries);
        }
    }
}

/// What has been changed is seen by what follows.
pub fn made_visible() {
    // SAFETY: as after any statement that changes something.
    unsafe { pg_sys::CommandCounterIncrement() }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        // An error on its way out leaves this to the transaction's resource owner.
        if std::thread::panicking() {
            return;
        }
        // SAFETY: each is closed once; the table's lock stays.
        unsafe {
            if let Some(executor) = self.executor.get() {
                pg_sys::ExecCloseIndices(executor.table);
                pg_sys::FreeExecutorState(executor.state);
            }
            pg_sys::relation_close(self.relation, pg_sys::NoLock as i32);
        }
    }
}

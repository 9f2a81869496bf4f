//! Our tables: opening them, and changing one row with its index entries.

use std::cell::Cell;

use idem_rules::error::{Code, Error, Result};
use pgrx::pg_sys;

use super::additions::{MAX_KEYS, is_alike};
use super::call::Call;
use super::catalog::{self, Known, MAX_INDEXES, Spec};
use super::heap::{self, Changed};
use super::values::Values;
use super::version::Entries;

/// A table of ours, open; its indexes are opened when they are used. The locks stay until the transaction ends, as
/// for any statement.
pub struct Table {
    relation: pg_sys::Relation,
    known: Known,
    indexes: [Cell<pg_sys::Relation>; MAX_INDEXES],
    /// How many of the indexes the spec names; the further ones are only kept up.
    own: usize,
}

/// The lock of any statement that writes.
const LOCK: i32 = pg_sys::RowExclusiveLock as i32;

/// One version of a row.
pub struct Row {
    tuple: pg_sys::HeapTuple,
    /// Its columns.
    pub values: Values,
}

impl Row {
    /// # Safety
    /// `tuple` must be a tuple of `table` in memory that outlives the row.
    unsafe fn read(table: &Table, tuple: pg_sys::HeapTuple) -> Row {
        let mut values = Values::new();
        // SAFETY: the arrays hold more entries than the table has columns (checked when it was resolved).
        unsafe {
            pg_sys::heap_deform_tuple(
                tuple,
                (*table.relation).rd_att,
                values.datums.as_mut_ptr(),
                values.nulls.as_mut_ptr(),
            );
        }
        Row { tuple, values }
    }

    /// # Safety
    /// `slot` must hold a tuple of `table`.
    pub(super) unsafe fn copied(table: &Table, slot: *mut pg_sys::TupleTableSlot) -> Row {
        let mut should_free = false;
        // SAFETY: as required; the copy outlives the pin on the tuple's page.
        unsafe {
            let tuple = pg_sys::ExecFetchSlotHeapTuple(slot, false, &mut should_free);
            Row::read(table, pg_sys::heap_copytuple(tuple))
        }
    }

    /// The page that it is on.
    pub fn page(&self) -> u32 {
        // SAFETY: the header of a tuple in memory.
        let block = unsafe { (*self.tuple).t_self.ip_blkid };
        u32::from(block.bi_hi) << 16 | u32::from(block.bi_lo)
    }

    /// The id of the transaction that wrote this version.
    pub fn writer(&self) -> u32 {
        // SAFETY: the header of a tuple in memory; the choice field holds xmin for a stored tuple.
        unsafe { (*(*self.tuple).t_data).t_choice.t_heap.t_xmin.into_inner() }
    }
}

impl Table {
    /// Opens the table behind `spec` for reading and writing.
    pub fn open(call: &Call, spec: &'static Spec) -> Result<Table> {
        loop {
            let known = catalog::resolve(call, spec)?;
            // SAFETY: the ids were looked up under the invalidation callback; a dropped table raises here.
            let relation = unsafe { pg_sys::table_open(known.table, LOCK) };
            // Taking the lock took in what others had sent, and that may have emptied the session's memory of our
            // tables. Whoever caches what he reads now relies on hearing of the next change, and only a table that
            // is known is heard of: so it is made known again, by the last thing done before it is read.
            let known_now = catalog::resolve(call, spec)?;
            if known_now.table == known.table {
                let indexes = [const { Cell::new(std::ptr::null_mut()) }; MAX_INDEXES];
                return Ok(Table { relation, known: known_now, indexes, own: spec.indexes.len() });
            }
            // SAFETY: opened above, and not used since.
            unsafe { pg_sys::table_close(relation, LOCK) };
        }
    }

    /// Opens the table once no other transaction reads or writes it, and keeps all others out until this one ends.
    pub fn open_alone(call: &Call, spec: &'static Spec) -> Result<Table> {
        let known = catalog::resolve(call, spec)?;
        // SAFETY: as above. The strong lock comes first: two that held the weak one would wait for each other.
        unsafe { pg_sys::LockRelationOid(known.table, pg_sys::ShareRowExclusiveLock as i32) };
        Table::open(call, spec)
    }

    pub(super) fn relation(&self) -> pg_sys::Relation {
        self.relation
    }

    pub(super) fn index(&self, n: usize) -> pg_sys::Relation {
        if self.indexes[n].get().is_null() {
            // SAFETY: as above; the table is open, and locked first.
            self.indexes[n].set(unsafe { pg_sys::index_open(self.known.indexes[n], LOCK) });
        }
        self.indexes[n].get()
    }

    /// Tells every session, at commit, that what it cached from this table no longer holds.
    pub fn invalidate(&self) {
        // SAFETY: the relation is open.
        unsafe { pg_sys::CacheInvalidateRelcache(self.relation) }
    }

    /// Makes the next transaction that calls this for the same table wait until this one has ended. Other readers and
    /// writers go on.
    pub fn lock_changes(&self) {
        // SAFETY: the relation is open; the lock stays until the transaction ends.
        unsafe {
            pg_sys::LockRelationOid((*self.relation).rd_id, pg_sys::ShareUpdateExclusiveLock as i32);
        }
    }

    fn form(&self, values: &Values) -> pg_sys::HeapTuple {
        let mut values = values.clone();
        // SAFETY: the arrays hold as many entries as the descriptor names.
        unsafe {
            pg_sys::heap_form_tuple(
                (*self.relation).rd_att,
                values.datums.as_mut_ptr(),
                values.nulls.as_mut_ptr(),
            )
        }
    }

    /// Adds a row that no other can clash with. Raises 23505 if one does.
    pub fn insert(&self, values: &Values) {
        let tuple = self.form(values);
        // SAFETY: an ordinary insert into an open table, followed by its index entries.
        unsafe {
            let command = pg_sys::GetCurrentCommandId(true);
            pg_sys::heap_insert(self.relation, tuple, command, 0, std::ptr::null_mut());
            for n in 0..self.known.count {
                self.add_to_index(n, tuple, values, false);
            }
            pg_sys::CommandCounterIncrement();
        }
    }

    /// Adds a row unless the primary key has one already, seen or not yet committed. True when it was added.
    ///
    /// This is what INSERT … ON CONFLICT DO NOTHING does (execIndexing.c): a speculative insertion, taken back
    /// without waiting when the unique index knows a rival. The index checks under its page lock before it adds,
    /// so of several rivals the first always stays.
    pub fn insert_unless_present(&self, values: &Values) -> bool {
        let tuple = self.form(values);
        // SAFETY: the token is in the tuple before the tuple is in the table, and the insertion is finished or
        // aborted before the token's lock is let go; an error in between aborts the transaction.
        unsafe {
            let xid = pg_sys::GetCurrentTransactionId();
            let token = pg_sys::SpeculativeInsertionLockAcquire(xid);
            set_speculative_token((*tuple).t_data, token);
            let command = pg_sys::GetCurrentCommandId(true);
            let options = pg_sys::HEAP_INSERT_SPECULATIVE as i32;
            pg_sys::heap_insert(self.relation, tuple, command, options, std::ptr::null_mut());
            let added =
                (0..self.known.count).all(|n| self.add_to_index(n, tuple, values, self.is_primary_key(n)));
            if added {
                pg_sys::heap_finish_speculative(self.relation, &mut (*tuple).t_self);
            } else {
                pg_sys::heap_abort_speculative(self.relation, &mut (*tuple).t_self);
            }
            pg_sys::SpeculativeInsertionLockRelease(xid);
            pg_sys::CommandCounterIncrement();
            added
        }
    }

    /// True for the primary key and for the index that REINDEX CONCURRENTLY builds beside it, of which it may be the next:
    /// for a while some sessions ask one of them first, and some the other, and then both may find a rival.
    unsafe fn is_primary_key(&self, n: usize) -> bool {
        // SAFETY: the descriptors of open indexes.
        n == 0 || n >= self.own && unsafe { is_alike(self.index(n), self.index(0)) }
    }

    /// Adds the index entry of a tuple just stored; false when `speculative` and the index knows a rival.
    unsafe fn add_to_index(
        &self,
        n: usize,
        tuple: pg_sys::HeapTuple,
        values: &Values,
        speculative: bool,
    ) -> bool {
        let index = self.index(n);
        // SAFETY: the indexes are plain btrees on at most MAX_KEYS columns (no expression, no predicate), so the key values are
        // the columns' values.
        unsafe {
            let form = (*index).rd_index;
            // A further index that is not ready yet is filled by who builds it.
            if n >= self.own && !(*form).indisready {
                return true;
            }
            let info = pg_sys::BuildIndexInfo(index);
            let keys = (*form).indnatts as usize;
            let columns = (*form).indkey.values.as_slice(keys);
            let mut datums = [pg_sys::Datum::from(0); MAX_KEYS];
            let mut nulls = [true; MAX_KEYS];
            for (k, column) in columns.iter().enumerate() {
                let column = *column as usize - 1;
                datums[k] = values.datums[column];
                nulls[k] = values.nulls[column];
            }
            let check = match ((*form).indisunique, speculative) {
                (false, _) => pg_sys::IndexUniqueCheck::UNIQUE_CHECK_NO,
                (true, false) => pg_sys::IndexUniqueCheck::UNIQUE_CHECK_YES,
                (true, true) => pg_sys::IndexUniqueCheck::UNIQUE_CHECK_PARTIAL,
            };
            let unique = pg_sys::index_insert(
                index,
                datums.as_mut_ptr(),
                nulls.as_mut_ptr(),
                &mut (*tuple).t_self,
                self.relation,
                check,
                false,
                info,
            );
            pg_sys::pfree(info.cast());
            unique || !speculative
        }
    }

    /// Puts `values` in the place of `row`, without waiting for anybody.
    pub fn update(&self, row: &Row, values: &Values) -> Changed {
        let tuple = self.form(values);
        // SAFETY: the row came from this table.
        unsafe {
            let (changed, entries) = heap::update(self.relation, (*row.tuple).t_self, tuple);
            if changed == Changed::Done {
                // None of our indexes is summarizing, nor a further one.
                for n in 0..if entries == Entries::None { 0 } else { self.known.count } {
                    self.add_to_index(n, tuple, values, false);
                }
                pg_sys::CommandCounterIncrement();
            }
            changed
        }
    }

    /// Removes `row`, without waiting for anybody.
    pub fn delete(&self, row: &Row) -> Changed {
        // SAFETY: as in update.
        unsafe {
            let changed = heap::delete(self.relation, (*row.tuple).t_self);
            if changed == Changed::Done {
                pg_sys::CommandCounterIncrement();
            }
            changed
        }
    }

    /// Locks `row` against change until the transaction ends. `wait`: for whoever holds it now.
    pub fn lock(&self, row: &Row, wait: bool) -> Changed {
        // SAFETY: the row came from this table.
        unsafe { heap::lock(self.relation, (*row.tuple).t_self, wait) }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // An error on its way out leaves this to the transaction's resource owner.
        if std::thread::panicking() {
            return;
        }
        // SAFETY: each is closed once; the locks stay.
        unsafe {
            for index in self.indexes.iter().map(Cell::get).filter(|index| !index.is_null()) {
                pg_sys::index_close(index, pg_sys::NoLock as i32);
            }
            pg_sys::table_close(self.relation, pg_sys::NoLock as i32);
        }
    }
}

/// The refusal under REPEATABLE READ and SERIALIZABLE when the row changed since the snapshot.
pub fn serialization() -> Error {
    Error::new(Code::Serialization, "could not serialize access due to a concurrent change of the action")
        .hint("Try the whole transaction again.")
}

/// Marks a tuple that is not in the table yet as speculative (HeapTupleHeaderSetSpeculativeToken).
unsafe fn set_speculative_token(header: pg_sys::HeapTupleHeader, token: u32) {
    // SAFETY: the header belongs to a tuple that only we know.
    unsafe {
        (*header).t_ctid.ip_blkid.bi_hi = (token >> 16) as u16;
        (*header).t_ctid.ip_blkid.bi_lo = token as u16;
        (*header).t_ctid.ip_posid = pg_sys::SpecTokenOffsetNumber as u16;
    }
}

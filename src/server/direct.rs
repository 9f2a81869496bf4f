//! Rows of users' tables, reached without a statement where nothing of a table's asks for one.
//!
//! A statement fires triggers, follows rules and policies, checks constraints and fills columns and index entries by
//! expressions. A table that has none of these runs nobody's code when it changes. It is changed here by the steps that are
//! left: a scan of an index, a new version in the heap, the entries in all its indexes, made by the executor's own function
//! for them. [`super::query`] does the same work for all other tables.

use std::cell::Cell;

use pgrx::pg_sys;

use super::heap::{self, Changed};
use super::query::Relation;
use super::scan::{Bound, Key, Scan};
use super::values::{MAX_COLUMNS, Values};
use super::version::{Entries, insert_index_entries};
use super::xact::serve_interrupts;

/// What is known of a table that needs no statements. It holds as long as [`super::user_table::version_of`] stays the same.
pub struct Direct {
    table: Relation,
    /// Where the wanted columns stand in a row.
    columns: Vec<usize>,
    /// What fills the others, and those that are wanted and not given, in a new row.
    defaults: Vec<(usize, Default)>,
    ascending: pg_sys::Oid,
    unique: pg_sys::Oid,
}

/// What fills a column of a new row.
#[derive(Clone, Copy)]
enum Default {
    /// A value that is passed as such.
    Constant(pg_sys::Datum),
    /// The next number of a sequence.
    Next(pg_sys::Oid),
    /// A function without arguments, one of [`FILLING`].
    Call(pg_sys::Oid),
}

/// Functions that fill columns and never return NULL.
const FILLING: [u32; 5] = [
    pg_sys::F_CLOCK_TIMESTAMP,
    pg_sys::F_STATEMENT_TIMESTAMP,
    pg_sys::F_TRANSACTION_TIMESTAMP,
    pg_sys::F_NOW,
    pg_sys::F_GEN_RANDOM_UUID,
];

/// The operator family of btrees on uuid; fixed in pg_opfamily.dat.
const UUID_BTREE: u32 = 2968;

/// The columns that the rows of a table are asked for.
pub struct Wanted {
    /// Their names. New rows are given the first ones.
    pub columns: &'static [&'static str],
    /// How many of them new rows are given.
    pub given: usize,
    /// The places among them of those that are given as NULL at times.
    pub at_times_null: &'static [usize],
    /// The place of a bigint by which rows are looked for in ascending order.
    pub ascending: usize,
    /// The place of a uuid that is unique.
    pub unique: usize,
}

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

impl Direct {
    /// How to reach the rows of `table`, which is locked; `None` for a table that needs statements.
    pub fn of(table: Relation, wanted: &Wanted) -> Option<Direct> {
        // SAFETY: the relation is locked, and open while its descriptor is read.
        unsafe {
            let relation = pg_sys::relation_open(table, pg_sys::NoLock as i32);
            let direct = Direct::read(relation, wanted);
            pg_sys::relation_close(relation, pg_sys::NoLock as i32);
            direct
        }
    }

    unsafe fn read(relation: pg_sys::Relation, wanted: &Wanted) -> Option<Direct> {
        // SAFETY: as in of; expressions are nodes of the kind that their tag says.
        unsafe {
            let form = (*relation).rd_rel;
            let constraints = (*(*relation).rd_att).constr;
            if (*form).relkind as u8 != b'r'
                || (*form).relam != pg_sys::HEAP_TABLE_AM_OID
                || (*form).relhasrules
                || (*form).relhastriggers
                || (*form).relrowsecurity
                || (*form).relforcerowsecurity
                || (*form).relispartition
                || (!constraints.is_null() && (*constraints).num_check > 0)
            {
                return None;
            }
            let descriptor = pgrx::PgTupleDesc::from_pg_unchecked((*relation).rd_att);
            if descriptor.len() > MAX_COLUMNS || wanted.columns.len() >= MAX_COLUMNS {
                return None;
            }
            let place = |name: &str| {
                descriptor.iter().position(|column| !column.attisdropped && column.name() == name)
            };
            let columns: Vec<usize> = wanted.columns.iter().map(|name| place(name)).collect::<Option<_>>()?;
            let mut defaults = Vec::new();
            for (n, column) in descriptor.iter().enumerate().filter(|(_, column)| !column.attisdropped) {
                // A domain may refuse what its base type takes.
                if column.attgenerated != 0 || pg_sys::get_typtype(column.atttypid) as u8 == b'd' {
                    return None;
                }
                match columns[..wanted.given].iter().position(|given| *given == n) {
                    Some(given) if column.attnotnull && wanted.at_times_null.contains(&given) => return None,
                    Some(_) => {}
                    None => match default_of(relation, n)? {
                        Some(default) => defaults.push((n, default)),
                        None if column.attnotnull => return None,
                        None => {}
                    },
                }
            }
            if !has_plain_indexes(relation) {
                return None;
            }
            let number = |n: usize| columns[n] as i16 + 1;
            let integers = pg_sys::INTEGER_BTREE_FAM_OID;
            let ascending = index_on(relation, number(wanted.ascending), integers, false)?;
            let unique = index_on(relation, number(wanted.unique), UUID_BTREE.into(), true)?;
            Some(Direct { table: (*relation).rd_id, columns, defaults, ascending, unique })
        }
    }

    /// Opens the table, which is locked, for reading and changing rows, inside [`super::query::as_owner`].
    pub fn open(&self) -> Open<'_> {
        // SAFETY: the caller has locked the table as any statement that writes does.
        let relation = unsafe { pg_sys::relation_open(self.table, pg_sys::NoLock as i32) };
        Open { direct: self, relation, executor: Cell::new(None) }
    }
}

/// What fills column `n` of a new row: `Some(None)` for NULL, `None` where it takes an expression.
unsafe fn default_of(relation: pg_sys::Relation, n: usize) -> Option<Option<Default>> {
    // SAFETY: the relation is open; nodes are of the kind that their tag says.
    unsafe {
        let expression = pg_sys::build_column_default(relation, n as i32 + 1);
        if expression.is_null() {
            return Some(None);
        }
        let expression = pg_sys::expression_planner(expression.cast());
        match (*expression).type_ {
            pg_sys::NodeTag::T_Const => {
                let constant: *mut pg_sys::Const = expression.cast();
                match ((*constant).constisnull, (*constant).constbyval) {
                    (true, _) => Some(None),
                    (false, true) => Some(Some(Default::Constant((*constant).constvalue))),
                    (false, false) => None,
                }
            }
            pg_sys::NodeTag::T_NextValueExpr => {
                let next: *mut pg_sys::NextValueExpr = expression.cast();
                let is_big = (*next).typeId == pg_sys::INT8OID;
                is_big.then_some(Some(Default::Next((*next).seqid)))
            }
            pg_sys::NodeTag::T_FuncExpr => {
                let call: *mut pg_sys::FuncExpr = expression.cast();
                let function = (*call).funcid;
                match (*call).args.is_null() {
                    true => FILLING.contains(&function.to_u32()).then_some(Some(Default::Call(function))),
                    // As serial columns have it.
                    false if function == pg_sys::F_NEXTVAL.into() => {
                        let sequence: *mut pg_sys::Const = (*(*(*call).args).elements).ptr_value.cast();
                        let is_named =
                            (*sequence).xpr.type_ == pg_sys::NodeTag::T_Const && !(*sequence).constisnull;
                        is_named.then(|| {
                            Some(Default::Next(pg_sys::Oid::from((*sequence).constvalue.value() as u32)))
                        })
                    }
                    false => None,
                }
            }
            _ => None,
        }
    }
}

/// The indexes of a table.
unsafe fn indexes(relation: pg_sys::Relation) -> impl Iterator<Item = pg_sys::Oid> {
    // SAFETY: the list is NULL or one of oids.
    unsafe {
        let indexes = pg_sys::RelationGetIndexList(relation);
        let count = if indexes.is_null() { 0 } else { (*indexes).length as usize };
        (0..count).map(move |n| (*(*indexes).elements.add(n)).oid_value)
    }
}

/// What `look` makes of an index, open.
unsafe fn with_index<T>(index: pg_sys::Oid, look: impl FnOnce(pg_sys::Relation) -> T) -> T {
    // SAFETY: the index is one of a locked table's.
    unsafe {
        let index = pg_sys::index_open(index, pg_sys::AccessShareLock as i32);
        let seen = look(index);
        pg_sys::index_close(index, pg_sys::NoLock as i32);
        seen
    }
}

/// True where all entries are columns as they are, of all rows or of those in which a column is NULL, or is not.
unsafe fn has_plain_indexes(relation: pg_sys::Relation) -> bool {
    // SAFETY: the relation is open; the lists are NULL or ones of nodes, which are of the kind that their tag says.
    let is_plain = |index| unsafe {
        let conditions = pg_sys::RelationGetIndexPredicate(index);
        let count = if conditions.is_null() { 0 } else { (*conditions).length as usize };
        let is_test = |n| {
            let node: *mut pg_sys::Node = (*(*conditions).elements.add(n)).ptr_value.cast();
            let test: *mut pg_sys::NullTest = node.cast();
            (*node).type_ == pg_sys::NodeTag::T_NullTest && (*(*test).arg).type_ == pg_sys::NodeTag::T_Var
        };
        pg_sys::RelationGetIndexExpressions(index).is_null()
            && (0..count).all(is_test)
            && !(*(*index).rd_index).indisexclusion
    };
    // SAFETY: as required of the callers.
    unsafe { indexes(relation).all(|index| with_index(index, is_plain)) }
}

/// A btree for all rows that begins with the column, ascending; `alone`: unique, checked at once, and with no other column.
unsafe fn index_on(
    relation: pg_sys::Relation,
    column: i16,
    family: pg_sys::Oid,
    alone: bool,
) -> Option<pg_sys::Oid> {
    // SAFETY: the index is open while its descriptor is read.
    let fits = |index: pg_sys::Relation| unsafe {
        let form = (*index).rd_index;
        (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
            && (*form).indisvalid
            && !(*form).indcheckxmin
            && (*form).indkey.values.as_slice(1)[0] == column
            && *(*index).rd_opfamily == family
            && *(*index).rd_indoption == 0
            && pg_sys::RelationGetIndexPredicate(index).is_null()
            && (!alone || ((*form).indisunique && (*form).indimmediate && (*form).indnkeyatts == 1))
    };
    // SAFETY: as required of the callers.
    unsafe { indexes(relation).find(|index| with_index(*index, fits)) }
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
                (*slot).tts_tableOid = self.direct.table;
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

    /// The wanted columns of a row, after its place.
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
        // SAFETY: only an address is taken, which lives as long as the call.
        values.set(0, Some(pg_sys::Datum::from(unsafe { &raw mut (*version.tuple).t_self })));
        for (n, column) in self.direct.columns.iter().enumerate() {
            values.set(n + 1, all.datum(*column));
        }
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

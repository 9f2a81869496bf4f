//! Which tables need no statements: what they must not have.

use pgrx::pg_sys;

use crate::server::query::Relation;
use crate::server::user_table::{indexes, is_unique_on, with_index};
use crate::server::values::MAX_COLUMNS;

/// What is known of a table that needs no statements. It holds as long as [`crate::server::user_table::version_of`] stays the same.
pub struct Direct {
    pub(super) table: Relation,
    /// Where the wanted columns stand in a row.
    pub(super) columns: Vec<usize>,
    /// What fills the others, and those that are wanted and not given, in a new row.
    pub(super) defaults: Vec<(usize, Default)>,
    pub(super) ascending: pg_sys::Oid,
    pub(super) unique: pg_sys::Oid,
}

/// What fills a column of a new row.
#[derive(Clone, Copy)]
pub(super) enum Default {
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
            && (!alone || is_unique_on(index, column))
    };
    // SAFETY: as required of the callers.
    unsafe { indexes(relation).find(|index| with_index(*index, fits)) }
}

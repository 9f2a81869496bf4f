//! The result of a function that returns SETOF a row type: all rows at once, in a tuplestore (fmgr/README, "materialize
//! mode"), since they are the outcome of changes that are made in any case.

use idem_rules::error::{Code, Error, Result};
use pgrx::pg_sys;

use super::call::{Call, Value};
use super::{catalog, values};

/// The rows of one call, being collected.
pub struct Rows {
    store: *mut pg_sys::Tuplestorestate,
    descriptor: pg_sys::TupleDesc,
}

impl Rows {
    /// Starts the result of `call`. Errors: 0A000 where the caller cannot take a set.
    pub fn begin(call: &Call) -> Result<Rows> {
        // SAFETY: a function called as a set is given a ReturnSetInfo (fmgr.h); anything else there, or nothing, is
        // told by its node tag. The descriptor and the tuplestore are made in the memory that lives as long as the
        // query, where the executor looks for them; it ends the tuplestore itself.
        unsafe {
            let info: *mut pg_sys::ReturnSetInfo = (*call.fcinfo).resultinfo.cast();
            let materialize = pg_sys::SetFunctionReturnMode::SFRM_Materialize;
            if info.is_null()
                || (*info).type_ != pg_sys::NodeTag::T_ReturnSetInfo
                || (*info).allowedModes & materialize as i32 == 0
            {
                return Err(Error::new(
                    Code::Unsupported,
                    "this function returns rows, which cannot be taken here",
                )
                .hint("Write SELECT * FROM the function."));
            }
            let rowtype = pg_sys::get_func_rettype((*(*call.fcinfo).flinfo).fn_oid);
            let shared = pg_sys::lookup_rowtype_tupdesc(rowtype, -1);
            let before = pg_sys::MemoryContextSwitchTo((*(*info).econtext).ecxt_per_query_memory);
            let descriptor = pg_sys::CreateTupleDescCopy(shared);
            let random_access =
                (*info).allowedModes & pg_sys::SetFunctionReturnMode::SFRM_Materialize_Random as i32 != 0;
            let store = pg_sys::tuplestore_begin_heap(random_access, false, pg_sys::work_mem);
            pg_sys::MemoryContextSwitchTo(before);
            pg_sys::DecrTupleDescRefCount(shared);
            (*info).returnMode = materialize;
            (*info).setResult = store;
            (*info).setDesc = descriptor;
            Ok(Rows { store, descriptor })
        }
    }

    /// Adds a row, which is copied.
    pub fn add<const N: usize>(&mut self, columns: [Value; N]) -> Result<()> {
        let mut datums = [pg_sys::Datum::from(0); N];
        let mut nulls = [true; N];
        for (n, column) in columns.into_iter().enumerate() {
            (datums[n], nulls[n]) = values::datum_of(column);
        }
        // SAFETY: both live as long as the query; the number of columns is checked before that many values are read.
        unsafe {
            if (*self.descriptor).natts as usize != N {
                return Err(catalog::mismatch());
            }
            pg_sys::tuplestore_putvalues(
                self.store,
                self.descriptor,
                datums.as_mut_ptr(),
                nulls.as_mut_ptr(),
            );
        }
        Ok(())
    }

    /// What the function returns: the rows have been handed over.
    pub fn end(self) -> pg_sys::Datum {
        pg_sys::Datum::from(0)
    }
}

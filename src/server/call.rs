//! The boundary to SQL: arguments in, one result out, refusals raised last.

use std::borrow::Cow;
use std::ffi::CStr;

use idem_rules::action::{Span, Time};
use idem_rules::error::{Code, Error, Result};
use pgrx::pg_sys;
use uuid::Uuid;

use super::raise::Raised;
use super::role::{self, Role};
use super::values::{self, bytes_of};

/// One call of an SQL function of ours.
pub struct Call {
    pub(super) fcinfo: pg_sys::FunctionCallInfo,
    names: &'static [&'static str],
    /// Whose rights it was called with.
    user: Role,
    /// Who is on record for what it does.
    recorded: Role,
}

/// A jsonb argument: its datum, to be stored, and its container's bytes, to be read.
#[derive(Clone, Copy)]
pub struct Jsonb<'a> {
    /// As passed.
    pub datum: pg_sys::Datum,
    /// The container behind the length word.
    pub bytes: &'a [u8],
}

/// One result value.
pub enum Value<'a> {
    /// SQL NULL.
    Null,
    /// boolean
    Bool(bool),
    /// integer
    Int(i32),
    /// bigint
    Big(i64),
    /// double precision
    Float(f64),
    /// text in the database's encoding
    Text(Cow<'a, str>),
    /// uuid
    Uuid(Uuid),
    /// timestamptz
    Time(Time),
    /// bytea
    Bytes(&'a [u8]),
    /// jsonb, from its text
    Json(String),
    /// Passed through as it is.
    Datum(pg_sys::Datum),
}

impl<'a> Value<'a> {
    /// The value of an option, NULL for none.
    pub fn or_null<T>(option: Option<T>, value: impl FnOnce(T) -> Value<'a>) -> Value<'a> {
        option.map_or(Value::Null, value)
    }
}

/// What a function does with its call.
pub type Body = fn(&Call) -> Result<pg_sys::Datum>;

/// Version 1 of the calling convention, as PG_FUNCTION_INFO_V1 declares it.
pub const fn finfo() -> &'static pg_sys::Pg_finfo_record {
    static V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
    &V1
}

/// Runs `body` for a call from PostgreSQL and turns its refusal into an ERROR.
///
/// # Safety
/// `fcinfo` must be what PostgreSQL passed to a version-1 function; only [`crate::sql_function`] calls this.
pub unsafe fn enter(
    fcinfo: pg_sys::FunctionCallInfo,
    names: &'static [&'static str],
    body: Body,
) -> pg_sys::Datum {
    // SAFETY: a panic, and a PostgreSQL error caught on its way through Rust frames, is raised again by the guard;
    // a refusal of ours leaves the guard as plain data first, so that nothing with a destructor is jumped over.
    unsafe {
        let outcome = pg_sys::panic::pgrx_extern_c_guard(|| {
            let (user, recorded) = (role::current_role(), role::recorded_role());
            body(&Call { fcinfo, names, user, recorded }).map_err(Raised::from)
        });
        match outcome {
            Ok(datum) => datum,
            Err(raised) => {
                raised.report(pgrx::PgLogLevel::ERROR as i32);
                unreachable!("errfinish does not return at ERROR")
            }
        }
    }
}

impl Call {
    fn datum(&self, n: usize) -> Option<pg_sys::Datum> {
        // SAFETY: the argument array behind fcinfo has nargs entries (fmgr.h).
        unsafe {
            let args = (*self.fcinfo).args.as_slice((*self.fcinfo).nargs as usize);
            args.get(n).filter(|arg| !arg.isnull).map(|arg| arg.value)
        }
    }

    /// The name of parameter `n`.
    pub fn name(&self, n: usize) -> &'static str {
        self.names.get(n).copied().unwrap_or("argument")
    }

    /// The schema the extension lives in: that of the function being called.
    pub(super) fn schema(&self) -> Result<pg_sys::Oid> {
        // SAFETY: flinfo is set whenever PostgreSQL calls through fmgr; it is null for a direct call only.
        unsafe {
            let flinfo = (*self.fcinfo).flinfo;
            if flinfo.is_null() {
                return Err(Error::new(Code::WrongState, "pg_idem functions must be called through SQL")
                    .hint("Call them with SELECT."));
            }
            Ok(pg_sys::get_func_namespace((*flinfo).fn_oid))
        }
    }

    /// The role whose rights the call has: not the outermost function's caller in a SECURITY DEFINER function, nor in a
    /// trigger that works as its table's owner. What the call itself does as somebody else does not change it.
    pub fn user(&self) -> Role {
        self.user
    }

    /// The role that goes on record for what the call does: who called the outermost function, or the owner of the table
    /// whose trigger asks. What the call itself does as somebody else does not change it.
    pub fn recorded_as(&self) -> Role {
        self.recorded
    }

    /// True when the calling role may execute the extension's function `name`, which has one signature.
    pub fn may_execute(&self, name: &'static CStr) -> bool {
        let Ok(schema) = self.schema() else { return false };
        super::version::may_execute(schema, name)
    }

    /// A text argument as UTF-8. Errors: 22P05 in a database whose encoding says nothing about the bytes.
    pub fn text(&self, n: usize) -> Result<Option<Cow<'_, str>>> {
        self.datum(n).map(|datum| values::utf8(bytes_of(datum), self.name(n))).transpose()
    }

    /// A text argument that must be there. Errors: 22004.
    pub fn required_text(&self, n: usize) -> Result<Cow<'_, str>> {
        self.text(n)?.ok_or_else(|| self.null(n))
    }

    /// The refusal of NULL for parameter `n`.
    pub fn null(&self, n: usize) -> Error {
        Error::null(self.name(n))
    }

    /// An argument as passed, to be stored unread.
    pub fn stored(&self, n: usize) -> Option<pg_sys::Datum> {
        self.datum(n)
    }

    /// The bytes of a text argument in the database's encoding; empty for NULL.
    pub fn raw(&self, n: usize) -> &[u8] {
        self.datum(n).map_or(&[], bytes_of)
    }

    /// A text array argument; NULL gives no elements.
    pub fn texts(&self, n: usize) -> Result<Vec<Option<String>>> {
        let Some(datum) = self.datum(n) else { return Ok(Vec::new()) };
        values::elements(datum)
            .ok_or_else(|| {
                let message = format!("{} must be an array of one dimension", self.name(n));
                Error::new(Code::InvalidParameter, message)
                    .hint("Pass the parts one by one, or as a plain list.")
            })?
            .into_iter()
            .map(|element| {
                element
                    .map(|datum| values::utf8(bytes_of(datum), self.name(n)).map(Cow::into_owned))
                    .transpose()
            })
            .collect()
    }

    /// The same call with other arguments, for a function that does another one's work with some of its own.
    pub fn with_arguments(
        &self,
        names: &'static [&'static str],
        arguments: &[Option<pg_sys::Datum>],
    ) -> Call {
        let entries = std::mem::size_of::<pg_sys::NullableDatum>() * arguments.len();
        // SAFETY: a call record is its fixed part with as many entries behind it as it says it has (fmgr.h,
        // SizeForFunctionCallInfo); all of it is zeroed first, and lives in the memory of the call it is made from.
        unsafe {
            let size = std::mem::size_of::<pg_sys::FunctionCallInfoBaseData>() + entries;
            let fcinfo: pg_sys::FunctionCallInfo = pg_sys::palloc0(size).cast();
            (*fcinfo).flinfo = (*self.fcinfo).flinfo;
            (*fcinfo).nargs = arguments.len() as i16;
            for (entry, argument) in (*fcinfo).args.as_mut_slice(arguments.len()).iter_mut().zip(arguments) {
                entry.isnull = argument.is_none();
                entry.value = argument.unwrap_or(pg_sys::Datum::from(0));
            }
            Call { fcinfo, names, user: self.user, recorded: self.recorded }
        }
    }

    /// In a trigger that runs after a statement: tells every session, at commit, that what it cached from the table that
    /// the trigger stands on no longer holds. The trigger's result. Errors: 55000 when called otherwise.
    pub fn invalidate_trigger_table(&self) -> Result<pg_sys::Datum> {
        // SAFETY: what a caller passes as context is told by its node tag (fmgr.h); the trigger manager has the table open.
        unsafe {
            let trigger: *mut pg_sys::TriggerData = (*self.fcinfo).context.cast();
            if trigger.is_null() || (*trigger).type_ != pg_sys::NodeTag::T_TriggerData {
                return Err(Error::new(Code::WrongState, "this is a trigger function")
                    .hint("It stands on the extension's tables; there is no need to call it."));
            }
            pg_sys::CacheInvalidateRelcache((*trigger).tg_relation);
        }
        Ok(pg_sys::Datum::from(0))
    }

    /// A jsonb argument.
    pub fn jsonb(&self, n: usize) -> Option<Jsonb<'_>> {
        self.datum(n).map(|datum| Jsonb { datum, bytes: bytes_of(datum) })
    }

    /// A bytea argument.
    pub fn bytes(&self, n: usize) -> Option<&[u8]> {
        self.datum(n).map(bytes_of)
    }

    /// A uuid argument.
    pub fn uuid(&self, n: usize) -> Option<Uuid> {
        self.datum(n).map(values::uuid_of)
    }

    /// A uuid argument that must be there. Errors: 22004.
    pub fn required_uuid(&self, n: usize) -> Result<Uuid> {
        self.uuid(n).ok_or_else(|| self.null(n))
    }

    /// A timestamptz argument.
    pub fn time(&self, n: usize) -> Option<Time> {
        self.datum(n).map(values::time_of)
    }

    /// A regclass argument.
    pub fn table(&self, n: usize) -> Option<pg_sys::Oid> {
        self.datum(n).map(|datum| pg_sys::Oid::from(datum.value() as u32))
    }

    /// A bigint argument.
    pub fn big(&self, n: usize) -> Option<i64> {
        self.datum(n).map(|datum| datum.value() as i64)
    }

    /// A jsonb array argument; NULL gives no elements.
    pub fn jsonbs(&self, n: usize) -> Result<Vec<Option<Jsonb<'_>>>> {
        let Some(datum) = self.datum(n) else { return Ok(Vec::new()) };
        let elements = values::jsonb_elements(datum).ok_or_else(|| {
            let message = format!("{} must be an array of one dimension", self.name(n));
            Error::new(Code::InvalidParameter, message).hint("Pass a plain list.")
        })?;
        let document = |datum| Jsonb { datum, bytes: bytes_of(datum) };
        Ok(elements.into_iter().map(|element| element.map(document)).collect())
    }

    /// A uuid array argument that must be there, without NULLs in it. Errors: 22004, 22023.
    pub fn required_uuids(&self, n: usize) -> Result<Vec<Uuid>> {
        let datum = self.datum(n).ok_or_else(|| self.null(n))?;
        let elements = values::uuid_elements(datum).ok_or_else(|| {
            let message = format!("{} must be an array of one dimension", self.name(n));
            Error::new(Code::InvalidParameter, message).hint("Pass a plain list.")
        })?;
        let elements = elements.into_iter().map(|element| element.map(values::uuid_of));
        elements.map(|uuid| uuid.ok_or_else(|| self.null(n))).collect()
    }

    /// A regrole argument.
    pub fn role(&self, n: usize) -> Option<Role> {
        self.datum(n).map(Role::from_datum)
    }

    /// An integer argument.
    pub fn int(&self, n: usize) -> Option<i32> {
        self.datum(n).map(|datum| datum.value() as i32)
    }

    /// A boolean argument.
    pub fn bool(&self, n: usize) -> Option<bool> {
        self.datum(n).map(|datum| datum.value() != 0)
    }

    /// A double precision argument in seconds, as microseconds.
    ///
    /// Errors: 22023 for NaN, infinite, negative, or more than ten years.
    pub fn seconds(&self, n: usize) -> Result<Option<Span>> {
        const TEN_YEARS: f64 = 10.0 * 365.25 * 86_400.0;
        let Some(datum) = self.datum(n) else { return Ok(None) };
        let seconds = f64::from_bits(datum.value() as u64);
        if !(0.0..=TEN_YEARS).contains(&seconds) {
            return Err(Error::new(
                Code::InvalidParameter,
                format!("{} must be a number of seconds from 0 to ten years", self.name(n)),
            )
            .hint("Pass seconds as double precision, or leave it out for the default."));
        }
        Ok(Some((seconds * 1e6).round() as Span))
    }

    /// One value as the result.
    pub fn value(&self, value: Value) -> pg_sys::Datum {
        let (datum, is_null) = values::datum_of(value);
        // SAFETY: fcinfo is valid for the whole call.
        unsafe { (*self.fcinfo).isnull = is_null };
        datum
    }

    /// A row of the function's declared composite type as the result.
    pub fn row<const N: usize>(&self, columns: [Value; N]) -> Result<pg_sys::Datum> {
        let mut scratch = values::Scratch::new();
        let mut datums = [pg_sys::Datum::from(0); N];
        let mut nulls = [true; N];
        for (n, column) in columns.into_iter().enumerate() {
            (datums[n], nulls[n]) = scratch.datum_of(column);
        }
        // SAFETY: the function's result type is a composite type of the extension; its number of columns is
        // checked before heap_form_tuple reads that many values and copies them. A descriptor of the type cache is
        // released before returning.
        unsafe {
            let expected = self.expected_row(N);
            let tupdesc = expected.unwrap_or_else(|| {
                let rowtype = pg_sys::get_func_rettype((*(*self.fcinfo).flinfo).fn_oid);
                pg_sys::lookup_rowtype_tupdesc(rowtype, -1)
            });
            let fits = (*tupdesc).natts as usize == N;
            let tuple =
                fits.then(|| pg_sys::heap_form_tuple(tupdesc, datums.as_mut_ptr(), nulls.as_mut_ptr()));
            if expected.is_none() {
                pg_sys::DecrTupleDescRefCount(tupdesc);
            }
            let tuple = tuple.ok_or_else(super::catalog::mismatch)?;
            Ok(pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data))
        }
    }

    /// The row type that a function scan has looked up already; none where the call stands elsewhere.
    unsafe fn expected_row(&self, columns: usize) -> Option<pg_sys::TupleDesc> {
        // SAFETY: what a caller passes as resultinfo is told by its node tag (fmgr.h); the descriptor lives as long as
        // the query.
        unsafe {
            let info: *mut pg_sys::ReturnSetInfo = (*self.fcinfo).resultinfo.cast();
            if info.is_null() || (*info).type_ != pg_sys::NodeTag::T_ReturnSetInfo {
                return None;
            }
            let expected = (*info).expectedDesc;
            let named = !expected.is_null()
                && (*expected).tdtypeid != pg_sys::RECORDOID
                && (*expected).natts as usize == columns;
            named.then_some(expected)
        }
    }
}

/// A NUL-terminated name as a str; our own names are ASCII.
pub(super) fn ascii(name: &'static CStr) -> &'static str {
    name.to_str().unwrap_or("")
}

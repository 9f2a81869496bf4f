//! Rows of our tables as arrays of datums, and the conversion of single values.

use std::borrow::Cow;

use idem_rules::action::{Span, Time};
use idem_rules::error::{Code, Error, Result};
use pgrx::pg_sys;
use uuid::Uuid;

use super::call::Value;
use super::role::Role;
use super::xact;

/// More columns than any table of ours has.
pub(super) const MAX_COLUMNS: usize = 48;

/// PostgreSQL's epoch, 2000-01-01, in microseconds since the Unix epoch.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

/// One row's values. Columns are numbered from 0 in the order of the table's [`super::Spec`], which is checked
/// against the catalog before a row is read, so a getter always meets the type it expects.
#[derive(Clone)]
pub struct Values {
    pub(super) datums: [pg_sys::Datum; MAX_COLUMNS],
    pub(super) nulls: [bool; MAX_COLUMNS],
}

impl Values {
    /// A row of NULLs.
    pub fn new() -> Values {
        Values { datums: [pg_sys::Datum::from(0); MAX_COLUMNS], nulls: [true; MAX_COLUMNS] }
    }

    /// The stored datum, unread.
    pub fn datum(&self, n: usize) -> Option<pg_sys::Datum> {
        (!self.nulls[n]).then(|| self.datums[n])
    }

    /// Stores a datum of the column's type.
    pub fn set(&mut self, n: usize, datum: Option<pg_sys::Datum>) {
        self.nulls[n] = datum.is_none();
        self.datums[n] = datum.unwrap_or(pg_sys::Datum::from(0));
    }

    /// timestamptz
    pub fn time(&self, n: usize) -> Option<Time> {
        self.datum(n).map(time_of)
    }

    /// timestamptz
    pub fn set_time(&mut self, n: usize, time: Option<Time>) {
        self.set(n, time.map(time_datum));
    }

    /// bigint
    pub fn big(&self, n: usize) -> Option<i64> {
        self.datum(n).map(|datum| datum.value() as i64)
    }

    /// bigint
    pub fn set_big(&mut self, n: usize, value: Option<i64>) {
        self.set(n, value.map(pg_sys::Datum::from));
    }

    /// integer
    pub fn int(&self, n: usize) -> Option<i32> {
        self.datum(n).map(|datum| datum.value() as i32)
    }

    /// A count; NULL stands for 0, which costs no byte.
    pub fn count(&self, n: usize) -> i32 {
        self.datum(n).map_or(0, |datum| datum.value() as i32)
    }

    /// A count; NULL stands for 0, which costs no byte.
    pub fn set_count(&mut self, n: usize, count: i32) {
        self.set(n, (count != 0).then(|| pg_sys::Datum::from(count)));
    }

    /// smallint
    pub fn small(&self, n: usize) -> i16 {
        self.datum(n).map_or(0, |datum| datum.value() as i16)
    }

    /// smallint
    pub fn set_small(&mut self, n: usize, value: i16) {
        self.set(n, Some(pg_sys::Datum::from(value)));
    }

    /// boolean
    pub fn flag(&self, n: usize) -> bool {
        self.datum(n).is_some_and(|datum| datum.value() != 0)
    }

    /// boolean
    pub fn set_flag(&mut self, n: usize, value: bool) {
        self.set(n, Some(pg_sys::Datum::from(value)));
    }

    /// "char"
    pub fn letter(&self, n: usize) -> u8 {
        self.datum(n).map_or(0, |datum| datum.value() as u8)
    }

    /// "char"
    pub fn set_letter(&mut self, n: usize, letter: u8) {
        self.set(n, Some(pg_sys::Datum::from(letter as i8)));
    }

    /// regrole
    pub fn role(&self, n: usize) -> Role {
        Role::from_datum(self.datums[n])
    }

    /// regrole
    pub fn set_role(&mut self, n: usize, role: Role) {
        self.set(n, Some(role.datum()));
    }

    /// uuid
    pub fn uuid(&self, n: usize) -> Option<Uuid> {
        self.datum(n).map(uuid_of)
    }

    /// uuid
    pub fn set_uuid(&mut self, n: usize, uuid: Option<Uuid>) {
        self.set(n, uuid.map(uuid_datum));
    }

    /// regclass
    pub fn set_table(&mut self, n: usize, table: pg_sys::Oid) {
        self.set(n, Some(pg_sys::Datum::from(table)));
    }

    /// regclass
    pub fn table(&self, n: usize) -> Option<pg_sys::Oid> {
        self.datum(n).map(|datum| pg_sys::Oid::from(datum.value() as u32))
    }

    /// text, in the database's encoding
    pub fn raw_text(&self, n: usize) -> Option<&[u8]> {
        self.datum(n).map(bytes_of)
    }

    /// text as UTF-8
    pub fn text(&self, n: usize) -> Result<Option<Cow<'_, str>>> {
        self.datum(n).map(|datum| utf8(bytes_of(datum), "a stored text")).transpose()
    }

    /// text
    pub fn set_text(&mut self, n: usize, text: Option<&str>) {
        self.set(n, text.map(text_datum));
    }

    /// bytea
    pub fn bytes(&self, n: usize) -> Option<&[u8]> {
        self.datum(n).map(bytes_of)
    }

    /// bytea
    pub fn set_bytes(&mut self, n: usize, bytes: Option<&[u8]>) {
        self.set(n, bytes.map(bytes_datum));
    }

    /// A length of time stored as bigint microseconds.
    pub fn span(&self, n: usize) -> Option<Span> {
        self.big(n)
    }
}

/// The bytes behind a variable-length datum, detoasted where it is compressed or stored out of line.
///
/// The slice lives as long as the datum it came from, or as the memory context of the call; neither ends before
/// the call that reads it, so every caller ties it to a shorter borrow.
pub(super) fn bytes_of<'a>(datum: pg_sys::Datum) -> &'a [u8] {
    // SAFETY: the datum is a varlena by the column's or parameter's declared type; the packed form keeps short
    // headers, and the length macros know both.
    unsafe {
        let varlena = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
        pgrx::varlena_to_byte_slice(varlena)
    }
}

/// The elements of a text array; `None` for one of several dimensions.
pub(super) fn elements(array: pg_sys::Datum) -> Option<Vec<Option<pg_sys::Datum>>> {
    // SAFETY: text is a varlena aligned to ints, and the datum a text array by the parameter's declared type.
    unsafe { elements_of(array, pg_sys::TEXTOID, -1, b'i') }
}

/// The elements of a uuid array.
pub(super) fn uuid_elements(array: pg_sys::Datum) -> Option<Vec<Option<pg_sys::Datum>>> {
    // SAFETY: a uuid has 16 bytes, not aligned, and the datum is a uuid array by the parameter's declared type.
    unsafe { elements_of(array, pg_sys::UUIDOID, 16, b'c') }
}

/// The elements of a jsonb array.
pub(super) fn jsonb_elements(array: pg_sys::Datum) -> Option<Vec<Option<pg_sys::Datum>>> {
    // SAFETY: jsonb is a varlena aligned to ints, and the datum a jsonb array by the parameter's declared type.
    unsafe { elements_of(array, pg_sys::JSONBOID, -1, b'i') }
}

/// # Safety
/// `array` must be an array of the type `of`, which is passed by reference, with that length and alignment.
unsafe fn elements_of(
    array: pg_sys::Datum,
    of: pg_sys::Oid,
    length: i32,
    align: u8,
) -> Option<Vec<Option<pg_sys::Datum>>> {
    let mut datums: *mut pg_sys::Datum = std::ptr::null_mut();
    let mut nulls: *mut bool = std::ptr::null_mut();
    let mut count = 0;
    // SAFETY: the array is what it is said to be; deconstruct_array returns `count` entries in both arrays.
    unsafe {
        let array: *mut pg_sys::ArrayType = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast();
        if (*array).ndim > 1 {
            return None;
        }
        pg_sys::deconstruct_array(
            array,
            of,
            length,
            false,
            align as std::ffi::c_char,
            &mut datums,
            &mut nulls,
            &mut count,
        );
        Some((0..count as usize).map(|n| (!*nulls.add(n)).then(|| *datums.add(n))).collect())
    }
}

/// The 16 bytes behind a uuid datum.
pub fn uuid_of(datum: pg_sys::Datum) -> Uuid {
    // SAFETY: a uuid datum points to 16 bytes (pg_uuid_t).
    Uuid::from_bytes(unsafe { *datum.cast_mut_ptr::<[u8; 16]>() })
}

fn palloc_copy(bytes: &[u8]) -> *mut u8 {
    // SAFETY: palloc returns as many writable bytes as asked for, or raises.
    unsafe {
        let copy = pg_sys::palloc(bytes.len()).cast::<u8>();
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len());
        copy
    }
}

/// uuid
pub fn uuid_datum(uuid: Uuid) -> pg_sys::Datum {
    pg_sys::Datum::from(palloc_copy(uuid.as_bytes()))
}

pub fn time_of(datum: pg_sys::Datum) -> Time {
    (datum.value() as i64).saturating_add(POSTGRES_EPOCH)
}

/// timestamptz
pub fn time_datum(time: Time) -> pg_sys::Datum {
    pg_sys::Datum::from(time.saturating_sub(POSTGRES_EPOCH))
}

fn bytes_datum(bytes: &[u8]) -> pg_sys::Datum {
    // SAFETY: cstring_to_text_with_len copies the bytes behind a length word; bytea and text share that layout.
    let text = unsafe { pg_sys::cstring_to_text_with_len(bytes.as_ptr().cast(), bytes.len() as i32) };
    pg_sys::Datum::from(text)
}

/// jsonb of what stands behind its varlena header.
pub fn jsonb_datum(document: &[u8]) -> pg_sys::Datum {
    bytes_datum(document)
}

/// Text in the database's encoding. Raises 22P05 for a character that the encoding does not have.
pub fn text_datum(text: &str) -> pg_sys::Datum {
    if text.is_ascii() || xact::is_utf8() {
        return bytes_datum(text.as_bytes());
    }
    // SAFETY: the source is valid UTF-8 of the given length; the result is a NUL-terminated string, or the source
    // itself where no conversion is needed, which the checks above have excluded.
    unsafe {
        let source = palloc_copy(&[text.as_bytes(), b"\0"].concat());
        let converted =
            pg_sys::pg_any_to_server(source.cast(), text.len() as i32, pg_sys::pg_enc::PG_UTF8 as i32);
        bytes_datum(std::ffi::CStr::from_ptr(converted).to_bytes())
    }
}

/// A jsonb datum from its text.
fn json_datum(text: &str) -> pg_sys::Datum {
    let text = text_datum(text);
    // SAFETY: jsonb_in takes a NUL-terminated string and never returns NULL: it raises where the text is no document.
    unsafe {
        let text = pg_sys::Datum::from(pg_sys::text_to_cstring(text.cast_mut_ptr()));
        pgrx::direct_function_call_as_datum(pg_sys::jsonb_in, &[Some(text)]).unwrap_or(pg_sys::Datum::from(0))
    }
}

/// The text of a stored document.
pub fn json_of(document: pg_sys::Datum) -> Result<String> {
    // SAFETY: the datum is a jsonb by the column's declared type; unpacked, so that its container is aligned behind the
    // full length word. The text is NUL-terminated.
    unsafe {
        let unpacked = pg_sys::pg_detoast_datum(document.cast_mut_ptr());
        let bytes = pgrx::varlena_to_byte_slice(unpacked);
        let container = bytes.as_ptr().cast_mut().cast();
        let text = pg_sys::JsonbToCString(std::ptr::null_mut(), container, bytes.len() as i32);
        utf8(std::ffi::CStr::from_ptr(text).to_bytes(), "a stored document").map(Cow::into_owned)
    }
}

/// A time as to_jsonb writes it, without the quotes.
pub fn json_time(time: Time) -> String {
    // MAXDATELEN and the NUL behind it.
    let mut buffer = [0 as std::ffi::c_char; 129];
    // SAFETY: the buffer has the size that the function asks for, and the text in it is NUL-terminated.
    unsafe {
        let (datum, zone) = (time_datum(time), std::ptr::null());
        pg_sys::JsonEncodeDateTime(buffer.as_mut_ptr(), datum, pg_sys::TIMESTAMPTZOID, zone);
        std::ffi::CStr::from_ptr(buffer.as_ptr()).to_string_lossy().into_owned()
    }
}

/// Text in the database's encoding as UTF-8.
pub(super) fn utf8<'a>(bytes: &'a [u8], what: &str) -> Result<Cow<'a, str>> {
    if bytes.is_ascii() || xact::is_utf8() {
        return std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| unreadable(what));
    }
    if xact::is_unlabelled() {
        return Err(unreadable(what));
    }
    // SAFETY: as in text_datum, the other way round.
    unsafe {
        let source = palloc_copy(&[bytes, b"\0"].concat());
        let converted =
            pg_sys::pg_server_to_any(source.cast(), bytes.len() as i32, pg_sys::pg_enc::PG_UTF8 as i32);
        let text = std::ffi::CStr::from_ptr(converted).to_bytes().to_vec();
        String::from_utf8(text).map(Cow::Owned).map_err(|_| unreadable(what))
    }
}

fn unreadable(what: &str) -> Error {
    Error::new(Code::UntranslatableCharacter, format!("{what} holds bytes that cannot be read as UTF-8"))
        .hint("In a database with encoding SQL_ASCII use ASCII texts only.")
}

/// Room for the small values of one result row: forming the row copies them, so nothing has to be allocated for each.
pub(super) struct Scratch {
    words: [u64; 64],
    used: usize,
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch { words: [0; 64], used: 0 }
    }

    /// A value as PostgreSQL passes it, for as long as this room is there.
    pub(super) fn datum_of(&mut self, value: Value) -> (pg_sys::Datum, bool) {
        let datum = match &value {
            Value::Uuid(uuid) => self.place(0, uuid.as_bytes()),
            Value::Text(text) if text.is_ascii() || xact::is_utf8() => {
                let datum = self.place(pg_sys::VARHDRSZ, text.as_bytes());
                if let Some(datum) = datum {
                    let size = (text.len() + pg_sys::VARHDRSZ) as i32;
                    // SAFETY: the room for the length word was left in front of the bytes, aligned to eight.
                    unsafe { pgrx::set_varsize_4b(datum.cast_mut_ptr(), size) };
                }
                datum
            }
            _ => None,
        };
        datum.map_or_else(|| datum_of(value), |datum| (datum, false))
    }

    /// Copies `bytes` behind `header` free bytes; `None` when there is no room left.
    fn place(&mut self, header: usize, bytes: &[u8]) -> Option<pg_sys::Datum> {
        let words = (header + bytes.len()).div_ceil(8);
        let room = self.words.get_mut(self.used..self.used + words)?;
        self.used += words;
        // SAFETY: the room was taken above, long enough for both, and nobody else has it.
        unsafe {
            let start = room.as_mut_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(header), bytes.len());
            Some(pg_sys::Datum::from(start))
        }
    }
}

/// A result value as PostgreSQL passes it.
pub(super) fn datum_of(value: Value) -> (pg_sys::Datum, bool) {
    let datum = match value {
        Value::Null => return (pg_sys::Datum::from(0), true),
        Value::Bool(value) => pg_sys::Datum::from(value),
        Value::Int(value) => pg_sys::Datum::from(value),
        Value::Big(value) => pg_sys::Datum::from(value),
        Value::Float(value) => pg_sys::Datum::from(value.to_bits()),
        Value::Text(text) => text_datum(&text),
        Value::Uuid(uuid) => uuid_datum(uuid),
        Value::Time(time) => time_datum(time),
        Value::Bytes(bytes) => bytes_datum(bytes),
        Value::Json(text) => json_datum(&text),
        Value::Datum(datum) => datum,
    };
    (datum, false)
}

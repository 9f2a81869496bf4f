//! Canonical text straight from the stored form of `jsonb`.
//!
//! The layout is PostgreSQL's src/include/utils/jsonb.h, unchanged since version 9.4: a container is a header
//! word, an array of entry words and the data that the entries describe. Reading it here costs neither the
//! text form of the document nor an intermediate tree, and keeps numbers exact.

use crate::canonical::{check_length, order, prefix, push_escaped, traits};
use crate::error::{Code, Error, Result};
use crate::number::push_numeric;

const COUNT: u32 = 0x0FFF_FFFF;
const SCALAR: u32 = 0x1000_0000;
pub(crate) const OBJECT: u32 = 0x2000_0000;
pub(crate) const ARRAY: u32 = 0x4000_0000;
pub(crate) const KINDS: u32 = 0x7000_0000;

const LENGTH: u32 = 0x0FFF_FFFF;
const IS_OFFSET: u32 = 0x8000_0000;

/// A varlena is shorter than this, so places in it cannot overflow.
const MAX_BYTES: u32 = 1 << 30;

/// Strings up to this length are copied at a fixed cost.
const SHORT: usize = 16;

pub(crate) const STRING: u32 = 0x0000_0000;
const NUMERIC: u32 = 0x1000_0000;
const FALSE: u32 = 0x2000_0000;
const TRUE: u32 = 0x3000_0000;
pub(crate) const NULL: u32 = 0x4000_0000;
pub(crate) const CONTAINER: u32 = 0x5000_0000;

/// The encoding of the database, as far as the canonical text depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Stored strings are UTF-8, the encoding of the canonical text.
    Utf8,
    /// Anything else. Every server encoding agrees on ASCII; other characters are refused.
    Other,
}

/// What a document is at its top level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An object.
    Object,
    /// An array.
    Array,
    /// A string.
    String,
    /// A number, true, false or null.
    Other,
}

/// What the document is at its top level, from its first bytes alone.
///
/// `bytes` are those after the varlena header.
///
/// # Errors
/// `Corrupted` when they do not begin like a document.
pub fn kind(bytes: &[u8]) -> Result<Kind> {
    match word(bytes, 0)? & KINDS {
        OBJECT => Ok(Kind::Object),
        ARRAY => Ok(Kind::Array),
        scalar if scalar == ARRAY | SCALAR => {
            Ok(if word(bytes, 4)? & KINDS == STRING { Kind::String } else { Kind::Other })
        }
        _ => Err(broken()),
    }
}

/// Whether the document is an object or an array, so that a caller can refuse a bare scalar.
///
/// # Errors
/// As [`kind`].
pub fn is_container(bytes: &[u8]) -> Result<bool> {
    Ok(matches!(kind(bytes)?, Kind::Object | Kind::Array))
}

/// True for an object at the top.
///
/// # Errors
/// As [`kind`].
pub fn is_object(bytes: &[u8]) -> Result<bool> {
    Ok(matches!(kind(bytes)?, Kind::Object))
}

/// The canonical text (RFC 8785, numbers exact) of a stored document.
///
/// `bytes` are those after the varlena header, uncompressed and in the machine's byte order. Any depth is
/// read without recursion; any bytes at all give a text or an error, never a panic.
///
/// # Errors
/// `Corrupted` when the bytes are no document, `Unsupported` for a string that is not UTF-8, for a character
/// outside ASCII in a database that is not UTF-8, and for a text beyond 1 GB, `InvalidParameter` for a
/// number that is not finite.
pub fn canonical_from_jsonb(bytes: &[u8], encoding: Encoding) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    append_canonical(&mut out, bytes, encoding)?;
    Ok(out)
}

/// As [`canonical_from_jsonb`], appended to a buffer that the caller keeps.
///
/// # Errors
/// As there; `out` is then as it was.
pub fn append_canonical(out: &mut Vec<u8>, bytes: &[u8], encoding: Encoding) -> Result<()> {
    let start = out.len();
    // The text is seldom longer: each value brings a word of its own to the stored form.
    out.reserve(bytes.len());
    let mut reader =
        Reader { bytes, encoding, members: Vec::with_capacity(16), frames: Vec::with_capacity(8), out };
    let result = reader.document(start);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// A value in the data of a container.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) kind: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// The entries of a container not yet read. Places count from the first byte of the document.
pub(crate) struct Entries {
    /// Where the next entry word stands.
    next: u32,
    pub(crate) left: u32,
    /// Where the data begin, where the next value begins, and where the container ends.
    base: u32,
    at: u32,
    end: u32,
}

impl Entries {
    /// The next one; there must be one left.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Result<Entry> {
        let entry = word(bytes, self.next as usize)?;
        // An entry has its length, or, each 32nd, its end counted from the base.
        let from = if entry & IS_OFFSET != 0 { self.base } else { self.at };
        let (start, end) = (self.at, from.checked_add(entry & LENGTH).ok_or_else(broken)?);
        if end < start || end > self.end {
            return Err(broken());
        }
        self.next += 4;
        self.left -= 1;
        self.at = end;
        Ok(Entry { kind: entry & KINDS, start, end })
    }

    /// Every byte belongs to some entry; anything else is not what PostgreSQL wrote.
    fn finish(&self) -> Result<()> {
        if self.at == self.end { Ok(()) } else { Err(broken()) }
    }
}

struct Member {
    prefix: u64,
    name: (u32, u32),
    value: Entry,
}

/// A container that is being written.
enum Frame {
    Array(Entries),
    /// The members still to come, as places in `Reader::members`, and where the object's own begin.
    Object {
        first: usize,
        next: usize,
    },
}

struct Reader<'a> {
    bytes: &'a [u8],
    encoding: Encoding,
    /// The members of all open objects, each object's in canonical order.
    members: Vec<Member>,
    frames: Vec<Frame>,
    out: &'a mut Vec<u8>,
}

impl Reader<'_> {
    fn document(&mut self, start: usize) -> Result<()> {
        let end = end(self.bytes)?;
        if word(self.bytes, 0)? & SCALAR == 0 {
            self.open(Entry { kind: CONTAINER, start: 0, end })?;
            return self.walk(start);
        }
        // A bare scalar is kept as the one element of an array that says so.
        let (header, mut entries) = entries(self.bytes, 0, end)?;
        if header != ARRAY | SCALAR | 1 {
            return Err(broken());
        }
        let entry = entries.next(self.bytes)?;
        if entry.kind == CONTAINER {
            return Err(broken());
        }
        entries.finish()?;
        self.value(entry)
    }

    /// Writes open containers until none is left. A container is smaller than the one it stands in, and
    /// two in one place do not overlap: this ends, in time linear in the number of bytes but for sorting.
    fn walk(&mut self, start: usize) -> Result<()> {
        while let Some(frame) = self.frames.last_mut() {
            let entry = match frame {
                Frame::Array(entries) if entries.left == 0 => {
                    entries.finish()?;
                    self.out.push(b']');
                    self.frames.pop();
                    continue;
                }
                Frame::Array(entries) => {
                    // Nothing but an opening ends in a bracket: a string would end in its quotation mark.
                    if self.out.last() != Some(&b'[') {
                        self.out.push(b',');
                    }
                    entries.next(self.bytes)?
                }
                Frame::Object { first, next } => {
                    let Some(member) = self.members.get(*next) else {
                        self.members.truncate(*first);
                        self.out.push(b'}');
                        self.frames.pop();
                        continue;
                    };
                    if next != first {
                        self.out.push(b',');
                    }
                    *next += 1;
                    let (name, value) = (member.name, member.value);
                    self.string(name)?;
                    self.out.push(b':');
                    value
                }
            };
            self.value(entry)?;
            check_length(self.out.len() - start)?;
        }
        Ok(())
    }

    /// Writes a scalar, or opens a container.
    fn value(&mut self, entry: Entry) -> Result<()> {
        match entry.kind {
            STRING => return self.string((entry.start, entry.end)),
            NUMERIC => {
                let datum =
                    self.bytes.get(aligned(entry.start) as usize..entry.end as usize).ok_or_else(broken)?;
                return push_numeric(self.out, datum);
            }
            CONTAINER => return self.open(entry),
            _ if entry.start != entry.end => return Err(broken()),
            TRUE => self.out.extend_from_slice(b"true"),
            FALSE => self.out.extend_from_slice(b"false"),
            NULL => self.out.extend_from_slice(b"null"),
            _ => return Err(broken()),
        }
        Ok(())
    }

    /// Reads a container's header; for an object also its entries, since they decide the order.
    fn open(&mut self, entry: Entry) -> Result<()> {
        let (header, mut entries) = entries(self.bytes, aligned(entry.start), entry.end)?;
        match header & KINDS {
            ARRAY => {
                self.out.push(b'[');
                self.frames.push(Frame::Array(entries));
            }
            OBJECT => {
                let first = self.members.len();
                self.read_members(&mut entries)?;
                self.out.push(b'{');
                self.frames.push(Frame::Object { first, next: first });
            }
            _ => return Err(broken()),
        }
        Ok(())
    }

    /// All names come before all values; both in PostgreSQL's order, which is by length first.
    fn read_members(&mut self, entries: &mut Entries) -> Result<()> {
        let first = self.members.len();
        let count = entries.left / 2;
        self.members.reserve(count as usize);
        for _ in 0..count {
            let value = entries.next(self.bytes)?;
            if value.kind != STRING {
                return Err(broken());
            }
            let name = (value.start, value.end);
            self.members.push(Member { prefix: prefix(text(self.bytes, name)), name, value });
        }
        let members = &mut self.members[first..];
        for member in members.iter_mut() {
            member.value = entries.next(self.bytes)?;
        }
        entries.finish()?;
        let compare = |a: &Member, b: &Member| {
            let full = || order(text(self.bytes, a.name), text(self.bytes, b.name));
            a.prefix.cmp(&b.prefix).then_with(full)
        };
        let rising = |a: &Member, b: &Member| compare(a, b).is_lt();
        if !members.is_sorted_by(rising) {
            members.sort_unstable_by(compare);
            if !members.is_sorted_by(rising) {
                return Err(broken());
            }
        }
        Ok(())
    }

    fn string(&mut self, place: (u32, u32)) -> Result<()> {
        let text = text(self.bytes, place);
        let traits = traits(text);
        if traits.non_ascii {
            check_encoding(text, self.encoding)?;
        }
        self.out.push(b'"');
        if traits.escapes {
            if text.contains(&0) {
                return Err(broken());
            }
            push_escaped(self.out, text);
        } else {
            self.copy(place);
        }
        self.out.push(b'"');
        Ok(())
    }

    /// Appends the bytes of a place as they are. Most are a few, and copying a fixed number of them and
    /// taking back the surplus costs less than a copy of just so many.
    fn copy(&mut self, (start, end): (u32, u32)) {
        let length = (end - start) as usize;
        match self.bytes[start as usize..].first_chunk::<SHORT>() {
            Some(chunk) if length <= SHORT => {
                let filled = self.out.len() + length;
                self.out.extend_from_slice(chunk);
                self.out.truncate(filled);
            }
            _ => self.out.extend_from_slice(text(self.bytes, (start, end))),
        }
    }
}

/// Where a document ends.
pub(crate) fn end(bytes: &[u8]) -> Result<u32> {
    u32::try_from(bytes.len()).ok().filter(|&end| end < MAX_BYTES).ok_or_else(broken)
}

/// A container's header and its entries.
pub(crate) fn entries(bytes: &[u8], start: u32, end: u32) -> Result<(u32, Entries)> {
    let header = word(bytes, start as usize)?;
    let count = u64::from(header & COUNT);
    let left = if header & OBJECT != 0 { 2 * count } else { count };
    let base = u64::from(start) + 4 + 4 * left;
    if base > u64::from(end) {
        return Err(broken());
    }
    let base = base as u32;
    Ok((header, Entries { next: start + 4, left: left as u32, base, at: base, end }))
}

fn check_encoding(text: &[u8], encoding: Encoding) -> Result<()> {
    let message = match encoding {
        Encoding::Utf8 if std::str::from_utf8(text).is_ok() => return Ok(()),
        Encoding::Utf8 => "a string in the document is not valid in the database encoding UTF-8",
        Encoding::Other => "the document has characters outside ASCII and the database encoding is not UTF-8",
    };
    Err(Error::new(Code::Unsupported, message).hint(
        "Fingerprints are defined over UTF-8: use a UTF-8 database, or compute the fingerprint elsewhere.",
    ))
}

/// The bytes of a string; its place was checked against its container's end.
pub(crate) fn text(bytes: &[u8], (start, end): (u32, u32)) -> &[u8] {
    &bytes[start as usize..end as usize]
}

/// Numbers and containers begin at multiples of four, counted from the first byte of the document; the
/// bytes skipped belong to the entry.
pub(crate) fn aligned(place: u32) -> u32 {
    place.next_multiple_of(4)
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Result<u32> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|word| u32::from_ne_bytes(*word)).ok_or_else(broken)
}

pub(crate) fn broken() -> Error {
    Error::new(Code::Corrupted, "a stored document is not readable as jsonb")
}

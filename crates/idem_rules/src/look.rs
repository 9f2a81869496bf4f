//! A look into a stored document: what stands under a name, without reading or copying the rest.

use crate::error::Result;
use crate::jsonb::{
    ARRAY, CONTAINER, Entry, KINDS, NULL, OBJECT, STRING, aligned, broken, end, entries, text, word,
};

/// What stands under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member<'a> {
    /// Nothing, or null.
    Missing,
    /// A string, in the database's encoding.
    String(&'a [u8]),
    /// An object, as a document of its own: what stands behind the varlena header of one.
    Object(&'a [u8]),
    /// An array, likewise.
    Array(&'a [u8]),
    /// Something else.
    Other,
}

/// An object in a document.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    bytes: &'a [u8],
    start: u32,
    end: u32,
}

/// The elements of an array of objects; `None` for a document that is something else.
///
/// `bytes` are those after the varlena header, uncompressed and in the machine's byte order.
///
/// # Errors
/// `Corrupted` when the bytes are no document, as far as they are looked at.
pub fn objects(bytes: &[u8]) -> Result<Option<Vec<Object<'_>>>> {
    let (header, mut elements) = entries(bytes, 0, end(bytes)?)?;
    if header & KINDS != ARRAY {
        return Ok(None);
    }
    let mut objects = Vec::with_capacity(elements.left as usize);
    while elements.left > 0 {
        let element = elements.next(bytes)?;
        if !is_object(bytes, element)? {
            return Ok(None);
        }
        objects.push(Object { bytes, start: aligned(element.start), end: element.end });
    }
    Ok(Some(objects))
}

impl<'a> Object<'a> {
    /// What stands under `name`.
    ///
    /// # Errors
    /// As [`objects`].
    pub fn member(&self, name: &str) -> Result<Member<'a>> {
        let (_, mut entries) = entries(self.bytes, self.start, self.end)?;
        // All names come before all values.
        let count = entries.left / 2;
        let mut place = None;
        for n in 0..count {
            let entry = entries.next(self.bytes)?;
            if text(self.bytes, (entry.start, entry.end)) == name.as_bytes() {
                place = Some(n);
            }
        }
        let Some(place) = place else { return Ok(Member::Missing) };
        for _ in 0..place {
            entries.next(self.bytes)?;
        }
        let value = entries.next(self.bytes)?;
        Ok(match value.kind {
            NULL => Member::Missing,
            STRING => Member::String(text(self.bytes, (value.start, value.end))),
            CONTAINER => {
                let place = aligned(value.start) as usize..value.end as usize;
                let bytes = self.bytes.get(place).ok_or_else(broken)?;
                match kind(self.bytes, value)? {
                    OBJECT => Member::Object(bytes),
                    ARRAY => Member::Array(bytes),
                    _ => Member::Other,
                }
            }
            _ => Member::Other,
        })
    }
}

/// Whether an entry that is a container is an object or an array.
fn kind(bytes: &[u8], entry: Entry) -> Result<u32> {
    Ok(word(bytes, aligned(entry.start) as usize)? & KINDS)
}

fn is_object(bytes: &[u8], entry: Entry) -> Result<bool> {
    Ok(entry.kind == CONTAINER && kind(bytes, entry)? == OBJECT)
}

//! Canonical JSON text (RFC 8785, the JSON Canonicalization Scheme): strings and the order of members.

use std::cmp::Ordering;

use crate::error::{Code, Error, Result};

/// The longest canonical text: PostgreSQL's limit for one value, so that the text can be shown.
const MAX_TEXT: usize = 0x3FFF_FFFF;

/// What a run of bytes holds, found in one pass over it.
pub(crate) struct Traits {
    /// A control character, a quotation mark or a backslash: copying is not enough.
    pub(crate) escapes: bool,
    /// A byte above 0x7F.
    pub(crate) non_ascii: bool,
}

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The bytes of `x` that need an escape, as high bits; exact for "is there one".
const fn needs_escape(x: u64) -> u64 {
    let quote = x ^ (LOW * b'"' as u64);
    let backslash = x ^ (LOW * b'\\' as u64);
    // A byte below a bound borrows into its high bit; `!x` leaves out bytes that had it set before.
    (x.wrapping_sub(LOW * 0x20) & !x
        | quote.wrapping_sub(LOW) & !quote
        | backslash.wrapping_sub(LOW) & !backslash)
        & HIGH
}

/// Looks at all bytes at once; the caller copies, checks or escapes as a whole.
#[inline]
pub(crate) fn traits(bytes: &[u8]) -> Traits {
    let (mut escapes, mut high) = (0, 0);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let x = u64::from_ne_bytes(*word);
        escapes |= needs_escape(x);
        high |= x;
    }
    if !rest.is_empty() {
        // The last eight bytes again, or the few there are: both cost less than a loop over single bytes.
        let x = match bytes.last_chunk::<8>() {
            Some(word) => u64::from_ne_bytes(*word),
            None => first_bytes(bytes) | (LOW * b' ' as u64) >> (8 * rest.len()),
        };
        escapes |= needs_escape(x);
        high |= x;
    }
    Traits { escapes: escapes != 0, non_ascii: high & HIGH != 0 }
}

/// Up to eight leading bytes as one number that compares as they do; absent ones are zero.
#[inline]
fn first_bytes(bytes: &[u8]) -> u64 {
    if let Some(word) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*word);
    }
    let length = bytes.len();
    if let (Some(head), Some(tail)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (head, tail) = (u64::from(u32::from_be_bytes(*head)), u64::from(u32::from_be_bytes(*tail)));
        return head << 32 | tail << (8 * (8 - length));
    }
    bytes.iter().enumerate().fold(0, |word, (at, &byte)| word | u64::from(byte) << (56 - 8 * at))
}

/// UTF-8 sorts by code point, UTF-16 puts the surrogates of the higher planes before U+E000 to U+FFFF. Only
/// a lead byte can tell the two apart, so raising the lead bytes 0xEE and 0xEF above 0xF4 is enough.
const fn rank(byte: u8) -> u8 {
    if byte == 0xEE || byte == 0xEF { byte + 0x10 } else { byte }
}

/// The first eight bytes of a name, as a number in the order of [`order`]; equal for equal starts only.
#[inline]
pub(crate) fn prefix(name: &[u8]) -> u64 {
    let word = first_bytes(name);
    if word & HIGH == 0 { word } else { u64::from_be_bytes(word.to_be_bytes().map(rank)) }
}

/// Compares two names by their UTF-16 code units (RFC 8785, section 3.2.3), given as UTF-8.
pub(crate) fn order(a: &[u8], b: &[u8]) -> Ordering {
    match a.iter().zip(b).find(|(x, y)| x != y) {
        Some((&x, &y)) => rank(x).cmp(&rank(y)),
        None => a.len().cmp(&b.len()),
    }
}

/// Appends the quoted form of a string, as RFC 8785, section 3.2.2.2 wants it.
pub(crate) fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    if traits(text).escapes {
        push_escaped(out, text)
    } else {
        out.extend_from_slice(text)
    }
    out.push(b'"');
}

/// The quoted form of a string.
pub fn json_string(text: &str) -> String {
    let mut quoted = Vec::with_capacity(text.len() + 2);
    push_string(&mut quoted, text.as_bytes());
    // Only ASCII characters were escaped, and with ASCII ones.
    String::from_utf8_lossy(&quoted).into_owned()
}

/// Appends the inside of a quoted string.
pub(crate) fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let mut copied = 0;
    for (at, &byte) in text.iter().enumerate() {
        let letter = match byte {
            b'"' | b'\\' => byte,
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0C => b'f',
            b'\r' => b'r',
            0..0x20 => b'u',
            _ => continue,
        };
        out.extend_from_slice(&text[copied..at]);
        copied = at + 1;
        out.extend_from_slice(&[b'\\', letter]);
        if letter == b'u' {
            let digits = b"0123456789abcdef";
            out.extend_from_slice(&[b'0', b'0', b'0' + (byte >> 4), digits[usize::from(byte & 15)]]);
        }
    }
    out.extend_from_slice(&text[copied..]);
}

/// Refuses a text that grew beyond what PostgreSQL can hold, before memory runs out.
pub(crate) fn check_length(length: usize) -> Result<()> {
    if length <= MAX_TEXT {
        return Ok(());
    }
    Err(Error::new(Code::Unsupported, "the canonical text of the document is longer than 1 GB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> String {
        let mut out = Vec::new();
        push_string(&mut out, text.as_bytes());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn strings_are_escaped_as_rfc_8785_says() {
        let text = "\u{20ac}$\u{f}\nA'B\"\\\\\"/";
        assert_eq!(quoted(text), "\"\u{20ac}$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"");
        assert_eq!(quoted("\0\u{8}\t\u{c}\r\u{1f}"), r#""\u0000\b\t\f\r\u001f""#);
        assert_eq!(quoted("\u{7f}\u{80}\u{2028}\u{1f602}"), "\"\u{7f}\u{80}\u{2028}\u{1f602}\"");
        assert_eq!(quoted(""), "\"\"");
    }

    #[test]
    fn every_byte_is_noticed_at_every_place() {
        for length in 1..40 {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut text = vec![b'x'; length];
                    text[at] = byte;
                    let found = traits(&text);
                    assert_eq!(found.escapes, byte < 0x20 || byte == b'"' || byte == b'\\', "{byte} at {at}");
                    assert_eq!(found.non_ascii, byte > 0x7F, "{byte} at {at}");
                }
            }
        }
    }

    #[test]
    fn names_sort_by_utf16_code_units() {
        let mut names = vec![
            "",
            "\0",
            "a",
            "a\0",
            "ab",
            "abcdefg",
            "abcdefgh",
            "abcdefghi",
            "abcdefgi",
            "b",
            "\u{7f}",
            "\u{80}",
            "\u{d7ff}",
            "\u{e000}",
            "\u{fb33}",
            "\u{ffff}",
            "\u{10000}",
            "\u{1f602}",
            "\u{10ffff}",
            "x\u{fb33}",
            "x\u{1f602}",
            "longer name \u{fb33}",
            "longer name \u{1f602}",
        ];
        names.sort_by_key(|name| name.encode_utf16().collect::<Vec<u16>>());
        for (i, a) in names.iter().enumerate() {
            for (j, b) in names.iter().enumerate() {
                let (a, b) = (a.as_bytes(), b.as_bytes());
                assert_eq!(order(a, b), i.cmp(&j));
                assert_eq!(prefix(a).cmp(&prefix(b)).then_with(|| order(a, b)), i.cmp(&j));
            }
        }
    }

    #[test]
    fn length_is_bounded() {
        assert!(check_length(MAX_TEXT).is_ok());
        assert_eq!(check_length(MAX_TEXT + 1).unwrap_err().code, Code::Unsupported);
    }
}

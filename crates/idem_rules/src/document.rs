//! A strict reader of JSON text (RFC 8259), for documents that must not lose anything on the way.
//!
//! jsonb has dropped repeated member names before any function sees it. This entry refuses them, and
//! otherwise takes exactly what jsonb takes, so that both give one document one fingerprint.

use std::borrow::Cow;

use crate::canonical::check_length;
use crate::error::{Code, Error, Result};
use crate::writer::Writer;

/// The most digits before the decimal point, and after it, that PostgreSQL's `numeric` holds.
const MAX_WHOLE: i64 = 131_072;
const MAX_SCALE: i64 = 16_383;
/// `numeric` refuses an exponent from here on, whatever the digits: even those of zero.
const MAX_EXPONENT: i64 = (i32::MAX / 2) as i64;

/// The canonical text (RFC 8785, numbers exact) of a JSON document.
///
/// Read iteratively: any depth will do.
///
/// # Errors
/// All name the byte where reading stopped and never show the document.
/// - `InvalidText`: not JSON (RFC 8259), a member name twice in one object (compared after unescaping), a lone
///   surrogate, a number beyond `numeric` (131072 digits before the point, 16383 after it).
/// - `UntranslatableCharacter`: `\u0000`, as jsonb refuses it.
/// - `Unsupported`: a canonical text beyond 1 GB.
pub fn canonical_from_text(document: &str) -> Result<Vec<u8>> {
    let writer = Writer::with_capacity(document.len());
    let mut reader =
        Reader { text: document.as_bytes(), source: document, at: 0, writer, digits: Vec::new() };
    reader.document()?;
    Ok(reader.writer.finish())
}

/// What may come next.
#[derive(Clone, Copy)]
enum Want {
    Value,
    ValueOrEnd,
    Name,
    NameOrEnd,
    /// A comma or the end of the innermost container; the end of the text outside all.
    Next,
}

struct Reader<'a> {
    text: &'a [u8],
    source: &'a str,
    at: usize,
    writer: Writer,
    /// Digits of a number with a point, brought together.
    digits: Vec<u8>,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<()> {
        // The open containers: true for an object.
        let mut open: Vec<bool> = Vec::new();
        let mut want = Want::Value;
        loop {
            self.skip_space();
            let byte = self.peek();
            want = match (want, byte) {
                (Want::Value | Want::ValueOrEnd, Some(b'{')) => {
                    self.at += 1;
                    self.writer.begin_object();
                    open.push(true);
                    Want::NameOrEnd
                }
                (Want::Value | Want::ValueOrEnd, Some(b'[')) => {
                    self.at += 1;
                    self.writer.begin_array();
                    open.push(false);
                    Want::ValueOrEnd
                }
                (Want::ValueOrEnd, Some(b']')) => self.end(&mut open)?,
                (Want::Value | Want::ValueOrEnd, _) => {
                    self.scalar(byte)?;
                    Want::Next
                }
                (Want::Name | Want::NameOrEnd, Some(b'"')) => {
                    let mark = self.at;
                    let name = self.string()?;
                    self.writer.name(&name, mark);
                    self.skip_space();
                    self.expect(b':', "a colon")?;
                    Want::Value
                }
                (Want::NameOrEnd, Some(b'}')) => self.end(&mut open)?,
                (Want::Name | Want::NameOrEnd, _) => return Err(self.wrong("a member name")),
                (Want::Next, _) => match (open.last(), byte) {
                    (None, None) => return Ok(()),
                    (None, _) => return Err(self.wrong("the end of the document")),
                    (Some(true), Some(b'}')) | (Some(false), Some(b']')) => self.end(&mut open)?,
                    (Some(&object), _) => {
                        self.expect(b',', "a comma or the end of an array or object")?;
                        if object { Want::Name } else { Want::Value }
                    }
                },
            };
            check_length(self.writer.len())?;
        }
    }

    fn end(&mut self, open: &mut Vec<bool>) -> Result<Want> {
        self.at += 1;
        if open.pop() == Some(true) {
            let twice = |at| invalid(at, "a member name stands twice in one object");
            self.writer.end_object().map_err(twice)?;
        } else {
            self.writer.end_array();
        }
        Ok(Want::Next)
    }

    fn scalar(&mut self, first: Option<u8>) -> Result<()> {
        match first {
            Some(b'"') => {
                let text = self.string()?;
                self.writer.string(&text);
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(self.wrong("a value")),
        }
    }

    fn literal(&mut self, word: &str) -> Result<()> {
        if !self.text[self.at..].starts_with(word.as_bytes()) {
            return Err(self.wrong("a value"));
        }
        self.at += word.len();
        self.writer.literal(word);
        Ok(())
    }

    fn number(&mut self) -> Result<()> {
        let start = self.at;
        let negative = self.take(b'-');
        let whole = self.run_of_digits()?;
        if whole.len() > 1 && whole[0] == b'0' {
            return Err(invalid(start, "a number begins with a zero that does not count"));
        }
        let fraction = if self.take(b'.') { self.run_of_digits()? } else { &[] };
        let mut exponent = 0;
        if self.take(b'e') || self.take(b'E') {
            let negative = self.take(b'-');
            if !negative {
                self.take(b'+');
            }
            let digits = self.run_of_digits()?;
            // Held at the bound, so that any number of digits is read without an overflow.
            exponent = digits.iter().fold(0, |e, &d| (10 * e + i64::from(d - b'0')).min(MAX_EXPONENT));
            if negative {
                exponent = -exponent;
            }
        }
        self.digits.clear();
        let digits = if fraction.is_empty() {
            whole
        } else {
            self.digits.extend_from_slice(whole);
            self.digits.extend_from_slice(fraction);
            &self.digits
        };
        let scale = fraction.len() as i64 - exponent;
        let leading = digits.iter().take_while(|&&d| d == b'0').count();
        let point = (digits.len() - leading) as i64 - scale;
        let zero = leading == digits.len();
        if exponent.abs() >= MAX_EXPONENT || scale > MAX_SCALE || (!zero && point > MAX_WHOLE) {
            return Err(invalid(start, "a number is outside the range of numeric"));
        }
        self.writer.number(negative, digits, -scale as i32);
        Ok(())
    }

    fn run_of_digits(&mut self) -> Result<&'a [u8]> {
        let rest = &self.text[self.at..];
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += length;
        if length == 0 { Err(self.wrong("a digit")) } else { Ok(&rest[..length]) }
    }

    /// The text of a string whose opening quotation mark comes next.
    fn string(&mut self) -> Result<Cow<'a, str>> {
        self.at += 1;
        let mut text = Cow::Borrowed("");
        loop {
            let start = self.at;
            let plain = |byte: &&u8| !matches!(**byte, b'"' | b'\\' | 0..0x20);
            self.at += self.text[start..].iter().take_while(plain).count();
            // Both ends stand at ASCII characters.
            let run = &self.source[start..self.at];
            if text.is_empty() {
                text = Cow::Borrowed(run);
            } else {
                text.to_mut().push_str(run);
            }
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    let escaped = self.escape()?;
                    text.to_mut().push(escaped);
                }
                Some(_) => return Err(invalid(self.at, "a control character in a string is not escaped")),
                None => return Err(self.wrong("the end of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let start = self.at;
        let letter = self.text.get(start + 1).copied();
        self.at += 2;
        Ok(match letter {
            Some(plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(start),
            _ => return Err(invalid(start, "an escape that JSON does not have")),
        })
    }

    /// The character of `\uXXXX`, or of two of them that make a surrogate pair (RFC 8259, section 7).
    fn unicode(&mut self, start: usize) -> Result<char> {
        let lone = || invalid(start, "a surrogate stands alone");
        let unit = self.code_unit(start)?;
        let point = match unit {
            0 => {
                let message = format!("\\u0000 cannot be converted to text at byte {start}");
                return Err(Error::new(Code::UntranslatableCharacter, message));
            }
            0xD800..0xDC00 => {
                if !self.text[self.at..].starts_with(b"\\u") {
                    return Err(lone());
                }
                self.at += 2;
                let low = self.code_unit(self.at - 2)?;
                // Anything but a low surrogate gives no character below.
                low.checked_sub(0xDC00)
                    .filter(|low| *low < 0x400)
                    .map_or(unit, |low| 0x10000 + ((unit - 0xD800) << 10) + low)
            }
            unit => unit,
        };
        char::from_u32(point).ok_or_else(lone)
    }

    fn code_unit(&mut self, start: usize) -> Result<u32> {
        let digits = self.text.get(self.at..self.at + 4).unwrap_or_default();
        let unit = digits.iter().try_fold(0, |unit, &d| Some(unit << 4 | char::from(d).to_digit(16)?));
        let unit = unit.filter(|_| digits.len() == 4);
        self.at += 4;
        unit.ok_or_else(|| invalid(start, "\\u needs four hexadecimal digits"))
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<()> {
        if self.take(byte) { Ok(()) } else { Err(self.wrong(what)) }
    }

    fn wrong(&self, wanted: &str) -> Error {
        invalid(self.at, &format!("expected {wanted}"))
    }
}

fn invalid(at: usize, what: &str) -> Error {
    Error::new(Code::InvalidText, format!("invalid JSON at byte {at}: {what}"))
}

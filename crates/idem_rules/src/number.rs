//! Numbers: exact decimals laid out by ECMAScript's rules, and the reading of PostgreSQL's `numeric`.

use crate::error::{Code, Error, Result};

/// ECMAScript writes a number without an exponent up to this many digits before the point.
const PLAIN_DIGITS: i64 = 21;
/// A number of up to this many base-10000 digits is converted without an allocation.
const SMALL_GROUPS: usize = 16;
/// Integers of up to this many are written without looking at single digits: sixteen decimal ones, which
/// are below the 21 where the layout changes.
const INTEGER_GROUPS: usize = 4;

/// Appends the canonical text of the decimal `digits * 10^exponent`.
///
/// The layout is that of ECMAScript's Number::toString (ECMA-262; RFC 8785, section 3.2.2.3), the digits
/// stay exact: no rounding to a double takes place. One value has one text, however it was spelled, and
/// two values never share one. Zero has no sign. Takes time linear in the number of digits.
///
/// `digits` are ASCII digits, with or without zeros at either end; none at all means zero.
pub fn push_decimal(out: &mut Vec<u8>, negative: bool, digits: &[u8], exponent: i32) {
    debug_assert!(digits.iter().all(u8::is_ascii_digit));
    let Some(first) = digits.iter().position(|&d| d != b'0') else {
        out.push(b'0');
        return;
    };
    let last = digits.iter().rposition(|&d| d != b'0').unwrap_or(first);
    // The point stands this many digits after the first digit that counts.
    let point = (digits.len() - first) as i64 + i64::from(exponent);
    let digits = &digits[first..=last];
    let count = digits.len() as i64;
    if negative {
        out.push(b'-');
    }
    if count <= point && point <= PLAIN_DIGITS {
        out.extend_from_slice(digits);
        push_zeros(out, point - count);
    } else if 0 < point && point <= PLAIN_DIGITS {
        let (whole, fraction) = digits.split_at(point as usize);
        out.extend_from_slice(whole);
        out.push(b'.');
        out.extend_from_slice(fraction);
    } else if -6 < point && point <= 0 {
        out.extend_from_slice(b"0.");
        push_zeros(out, -point);
        out.extend_from_slice(digits);
    } else {
        out.push(digits[0]);
        if count > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        let exponent = point - 1;
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        push_exponent(out, exponent.unsigned_abs());
    }
}

fn push_zeros(out: &mut Vec<u8>, count: i64) {
    out.resize(out.len() + count as usize, b'0');
}

fn push_exponent(out: &mut Vec<u8>, mut value: u64) {
    let mut text = [0; 20];
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
}

/// Appends the canonical text of a stored `numeric`, given with its varlena header (of either size).
///
/// # Errors
/// `Corrupted` when the bytes are no numeric, `InvalidParameter` for NaN and the infinities, which JSON
/// does not have. Nothing is appended then.
///
/// Source: PostgreSQL's src/backend/utils/adt/numeric.c (`union NumericChoice`) and varatt.h; the layout is
/// the same from version 14 on.
pub fn push_numeric(out: &mut Vec<u8>, datum: &[u8]) -> Result<()> {
    let body = varlena_body(datum).ok_or_else(broken)?;
    let header = word(body, 0).ok_or_else(broken)?;
    let (negative, weight, groups) = match header & 0xC000 {
        0xC000 => {
            return Err(Error::new(Code::InvalidParameter, "the document holds a number that is not finite"));
        }
        0x8000 => {
            // Seven bits of weight with the sign on top: shift it out and back to extend the sign.
            let weight = ((header << 9) as i16) >> 9;
            (header & 0x2000 != 0, weight, &body[2..])
        }
        sign => {
            let weight = word(body, 2).ok_or_else(broken)? as i16;
            (sign == 0x4000, weight, &body[4..])
        }
    };
    let (pairs, rest) = groups.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(broken());
    }
    if !negative && (1..=INTEGER_GROUPS).contains(&pairs.len()) && i32::from(weight) + 1 == pairs.len() as i32
    {
        return push_small_integer(out, pairs);
    }
    // An i32 holds it: the weight has 16 bits and a datum is shorter than 2^30 bytes.
    let exponent =
        (i64::from(weight) + 1 - pairs.len() as i64).checked_mul(4).and_then(|e| i32::try_from(e).ok());
    let exponent = exponent.ok_or_else(broken)?;
    if pairs.len() <= SMALL_GROUPS {
        let mut digits = [[0; 4]; SMALL_GROUPS];
        spell(pairs, &mut digits)?;
        push_decimal(out, negative, digits[..pairs.len()].as_flattened(), exponent);
    } else {
        let mut digits = vec![[0; 4]; pairs.len()];
        spell(pairs, &mut digits)?;
        push_decimal(out, negative, digits.as_flattened(), exponent);
    }
    Ok(())
}

/// Appends an integer of up to sixteen digits: what nearly all numbers are.
fn push_small_integer(out: &mut Vec<u8>, pairs: &[[u8; 2]]) -> Result<()> {
    let mut digits = [[0; 4]; INTEGER_GROUPS + 1];
    spell(pairs, &mut digits)?;
    let (digits, length) = (digits.as_flattened(), 4 * pairs.len());
    // The last digit stays whatever it is: it may be a zero's only one.
    let first = digits[..length - 1].iter().take_while(|&&digit| digit == b'0').count();
    // A copy of fixed size is cheaper than one of just so many bytes; the surplus is taken back.
    let filled = out.len() + length - first;
    match digits[first..].first_chunk::<{ 4 * INTEGER_GROUPS }>() {
        Some(chunk) => out.extend_from_slice(chunk),
        None => out.extend_from_slice(&digits[first..length]),
    }
    out.truncate(filled);
    Ok(())
}

/// A base-10000 digit.
#[inline]
fn group(pair: [u8; 2]) -> Result<u16> {
    let group = u16::from_ne_bytes(pair);
    if group <= 9999 { Ok(group) } else { Err(broken()) }
}

/// Writes each base-10000 digit as four decimal ones.
fn spell(pairs: &[[u8; 2]], digits: &mut [[u8; 4]]) -> Result<()> {
    for (pair, text) in pairs.iter().zip(digits) {
        let group = group(*pair)?;
        let (high, low) = (group / 100, group % 100);
        *text = [high / 10, high % 10, low / 10, low % 10].map(|d| b'0' + d as u8);
    }
    Ok(())
}

/// What follows the length of an uncompressed varlena that fills `datum` exactly.
fn varlena_body(datum: &[u8]) -> Option<&[u8]> {
    let first = *datum.first()?;
    let short = if cfg!(target_endian = "little") { first & 1 == 1 } else { first & 0x80 != 0 };
    let (header, length) = if short {
        let length = if cfg!(target_endian = "little") { first >> 1 } else { first & 0x7F };
        (1, usize::from(length))
    } else {
        let word = u32::from_ne_bytes(*datum.first_chunk()?);
        let compressed = if cfg!(target_endian = "little") { word & 2 != 0 } else { word >> 30 != 0 };
        if compressed {
            return None;
        }
        (4, if cfg!(target_endian = "little") { word >> 2 } else { word } as usize)
    };
    if length == datum.len() { datum.get(header..) } else { None }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|pair| u16::from_ne_bytes(*pair))
}

fn broken() -> Error {
    Error::new(Code::Corrupted, "a number in a stored document is not readable")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(negative: bool, digits: &str, exponent: i32) -> String {
        let mut out = Vec::new();
        push_decimal(&mut out, negative, digits.as_bytes(), exponent);
        String::from_utf8(out).unwrap()
    }

    fn numeric(header: &[u16], groups: &[u16]) -> Result<String> {
        let body: Vec<u8> = header.iter().chain(groups).flat_map(|w| w.to_ne_bytes()).collect();
        let length = (body.len() + 4) as u32;
        let length = if cfg!(target_endian = "little") { length << 2 } else { length };
        let mut out = Vec::new();
        push_numeric(&mut out, &[&length.to_ne_bytes()[..], &body].concat())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn layout_changes_where_ecmascript_changes_it() {
        for (digits, exponent, text) in [
            ("", 7, "0"),
            ("000", -3, "0"),
            ("1", 0, "1"),
            ("00100", 0, "100"),
            ("1", 20, "100000000000000000000"),
            ("1", 21, "1e+21"),
            ("9999999999999997", 5, "999999999999999700000"),
            ("1234567890123456789012", 0, "1.234567890123456789012e+21"),
            ("123456789012345678901", 0, "123456789012345678901"),
            ("1234567890123456789015", -1, "123456789012345678901.5"),
            ("12345678901234567890125", -1, "1.2345678901234567890125e+21"),
            ("123", -2, "1.23"),
            ("123", -3, "0.123"),
            ("1", -6, "0.000001"),
            ("12", -7, "0.0000012"),
            ("1", -7, "1e-7"),
            ("12", -8, "1.2e-7"),
            ("5", -324, "5e-324"),
        ] {
            assert_eq!(decimal(false, digits, exponent), text);
            let signed = if text == "0" { "0".to_owned() } else { format!("-{text}") };
            assert_eq!(decimal(true, digits, exponent), signed);
        }
    }

    #[test]
    fn huge_numbers_stay_exact() {
        let digits = "7".repeat(130_000);
        let text = decimal(false, &digits, 0);
        assert_eq!(text, format!("7.{}e+129999", &digits[1..]));
        assert_eq!(decimal(true, "1", i32::MAX), "-1e+2147483647");
    }

    #[test]
    fn numeric_headers() {
        assert_eq!(numeric(&[0x8000], &[]).unwrap(), "0");
        assert_eq!(numeric(&[0x8000], &[0]).unwrap(), "0");
        assert_eq!(numeric(&[0x8000 | 0x7F], &[]).unwrap(), "0");
        assert_eq!(numeric(&[0x8000], &[42]).unwrap(), "42");
        assert_eq!(numeric(&[0x8000 | 0x2000 | 1], &[1, 0x0001]).unwrap(), "-10001");
        assert_eq!(numeric(&[0x8000 | 0x7F], &[500]).unwrap(), "0.05");
        assert_eq!(numeric(&[0x8000 | 0x40], &[1]).unwrap(), "1e-256");
        assert_eq!(numeric(&[0x0000, 100], &[1]).unwrap(), "1e+400");
        assert_eq!(numeric(&[0x4000, -2i16 as u16], &[7]).unwrap(), "-7e-8");
        assert_eq!(numeric(&[0x4000, 0], &[1; 40]).unwrap(), format!("-1.{}1", "0001".repeat(38) + "000"));
    }

    #[test]
    fn short_varlena_header() {
        let body = [0x8000u16.to_ne_bytes(), 42u16.to_ne_bytes()].concat();
        let header = if cfg!(target_endian = "little") { 5 << 1 | 1 } else { 5 | 0x80 };
        let mut out = Vec::new();
        push_numeric(&mut out, &[&[header][..], &body].concat()).unwrap();
        assert_eq!(out, b"42");
    }

    #[test]
    fn broken_numerics_are_refused() {
        for special in [0xC000, 0xD000, 0xF000] {
            assert_eq!(numeric(&[special], &[]).unwrap_err().code, Code::InvalidParameter);
        }
        assert_eq!(numeric(&[0x8000], &[10_000]).unwrap_err().code, Code::Corrupted);
        assert_eq!(numeric(&[0x8000], &[1, u16::MAX]).unwrap_err().code, Code::Corrupted);
        assert_eq!(numeric(&[0x0000], &[]).unwrap_err().code, Code::Corrupted);
        let mut out = Vec::new();
        for datum in [&[][..], &[0], &[0xFF; 4], &[0; 8], &[3, 0], &[5, 0x80], &[7, 0, 0x80, 0]] {
            assert_eq!(push_numeric(&mut out, datum).unwrap_err().code, Code::Corrupted);
        }
        assert!(out.is_empty());
    }
}

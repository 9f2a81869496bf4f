//! Documents for the tests, and two writers that share nothing with the crate: one of PostgreSQL's stored
//! form, one of canonical text.

use serde_json::Value;

/// A JSON document; a number is one of its spellings.
#[derive(Debug, Clone, PartialEq)]
pub enum Doc {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    Array(Vec<Doc>),
    Object(Vec<(String, Doc)>),
}

impl From<Value> for Doc {
    fn from(value: Value) -> Doc {
        match value {
            Value::Null => Doc::Null,
            Value::Bool(is) => Doc::Bool(is),
            Value::Number(number) => Doc::Number(number.to_string()),
            Value::String(text) => Doc::Text(text),
            Value::Array(items) => Doc::Array(items.into_iter().map(Doc::from).collect()),
            Value::Object(members) => {
                Doc::Object(members.into_iter().map(|(name, value)| (name, value.into())).collect())
            }
        }
    }
}

/// The stored form: what follows the varlena header of a jsonb.
pub fn encode(doc: &Doc) -> Vec<u8> {
    match doc {
        Doc::Array(_) | Doc::Object(_) => item(doc).1,
        scalar => container(0x5000_0000, 1, vec![item(scalar)]),
    }
}

/// An array of one container, for documents too deep for recursion.
pub fn nest(inner: Vec<u8>) -> Vec<u8> {
    container(0x4000_0000, 1, vec![(0x5000_0000, inner)])
}

/// A container of entries, each with its type bits.
pub fn container(flags: u32, count: u32, items: Vec<(u32, Vec<u8>)>) -> Vec<u8> {
    let (mut words, mut data) = (vec![flags | count], Vec::new());
    for (at, (kind, bytes)) in items.into_iter().enumerate() {
        let start = data.len();
        if kind == 0x1000_0000 || kind == 0x5000_0000 {
            data.resize(start.next_multiple_of(4), 0);
        }
        data.extend(bytes);
        words.push(match at % 32 {
            0 => kind | 0x8000_0000 | data.len() as u32,
            _ => kind | (data.len() - start) as u32,
        });
    }
    words.into_iter().flat_map(u32::to_ne_bytes).chain(data).collect()
}

fn item(doc: &Doc) -> (u32, Vec<u8>) {
    match doc {
        Doc::Text(text) => (0, text.clone().into_bytes()),
        Doc::Number(spelling) => (0x1000_0000, numeric(spelling)),
        Doc::Bool(false) => (0x2000_0000, Vec::new()),
        Doc::Bool(true) => (0x3000_0000, Vec::new()),
        Doc::Null => (0x4000_0000, Vec::new()),
        Doc::Array(items) => {
            (0x5000_0000, container(0x4000_0000, items.len() as u32, items.iter().map(item).collect()))
        }
        Doc::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| (name.len(), name.clone().into_bytes()));
            let names = members.iter().map(|(name, _)| (0, name.clone().into_bytes()));
            let items = names.chain(members.iter().map(|(_, value)| item(value))).collect();
            (0x5000_0000, container(0x2000_0000, members.len() as u32, items))
        }
    }
}

/// Sign, digits before and digits after the point of a number, without an exponent.
fn plain(spelling: &str) -> (bool, String, String) {
    let (mantissa, exponent) = spelling.split_once(['e', 'E']).unwrap_or((spelling, "0"));
    let exponent: i32 = exponent.parse().unwrap();
    let (negative, mantissa) = mantissa.strip_prefix('-').map_or((false, mantissa), |rest| (true, rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (mut whole, mut fraction) = (whole.to_owned(), fraction.to_owned());
    for _ in 0..exponent {
        let digit = if fraction.is_empty() { '0' } else { fraction.remove(0) };
        whole.push(digit);
    }
    if exponent < 0 {
        let places = exponent.unsigned_abs() as usize;
        let padded = "0".repeat(places) + &whole;
        let (rest, moved) = padded.split_at(padded.len() - places);
        fraction = moved.to_owned() + &fraction;
        whole = rest.to_owned();
    }
    (negative, whole, fraction)
}

/// A numeric with a four-byte header, as numeric_in makes it.
pub fn numeric(spelling: &str) -> Vec<u8> {
    let (negative, whole, fraction) = plain(spelling);
    let scale = fraction.len() as u16;
    let whole = "0".repeat((4 - whole.len() % 4) % 4) + &whole;
    let fraction = fraction.clone() + &"0".repeat((4 - fraction.len() % 4) % 4);
    let mut weight = (whole.len() / 4) as i32 - 1;
    let digits = whole + &fraction;
    let mut groups: Vec<u16> =
        digits.as_bytes().chunks(4).map(|four| str::from_utf8(four).unwrap().parse().unwrap()).collect();
    let leading = groups.iter().take_while(|&&group| group == 0).count();
    groups.drain(..leading);
    weight -= leading as i32;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    let negative = negative && !groups.is_empty();
    if groups.is_empty() {
        weight = 0;
    }
    let mut words = if scale <= 63 && (-64..=63).contains(&weight) {
        vec![0x8000 | u16::from(negative) << 13 | scale << 7 | weight as u16 & 0x7F]
    } else {
        vec![u16::from(negative) << 14 | scale, weight as u16]
    };
    words.extend(groups);
    let length = 4 + 2 * words.len() as u32;
    let header = if cfg!(target_endian = "little") { length << 2 } else { length };
    header.to_ne_bytes().into_iter().chain(words.into_iter().flat_map(u16::to_ne_bytes)).collect()
}

/// Canonical text; only for numbers that are doubles.
pub fn canonical(doc: &Doc) -> String {
    match doc {
        Doc::Null => "null".to_owned(),
        Doc::Bool(is) => is.to_string(),
        Doc::Number(spelling) => ecmascript(spelling.parse().unwrap()),
        Doc::Text(text) => quoted(text),
        Doc::Array(items) => {
            let items: Vec<_> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        Doc::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| name.encode_utf16().collect::<Vec<_>>());
            let members: Vec<_> = members
                .iter()
                .map(|(name, value)| format!("{}:{}", quoted(name), canonical(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

/// serde_json escapes as RFC 8785 does.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// Number::toString by way of Rust's two notations, both with the shortest digits.
pub fn ecmascript(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if (1e-6..1e21).contains(&size) {
        format!("{number}")
    } else {
        let text = format!("{number:e}");
        if size < 1.0 { text } else { text.replace('e', "e+") }
    }
}

/// JSON text of a document: the same one, spelled as `dice` falls.
pub fn spelled(doc: &Doc, dice: &mut Dice) -> String {
    let text = match doc {
        Doc::Number(spelling) => respelled(spelling, dice),
        Doc::Text(text) => escaped(text, dice),
        Doc::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| spelled(item, dice)).collect();
            format!("[{}{}]", dice.space(), items.join(","))
        }
        Doc::Object(members) => {
            let mut members: Vec<_> = members
                .iter()
                .map(|(name, value)| {
                    format!(
                        "{}{}{}:{}",
                        dice.space(),
                        escaped(name, dice),
                        dice.space(),
                        spelled(value, dice)
                    )
                })
                .collect();
            for at in (1..members.len()).rev() {
                members.swap(at, dice.below(at + 1));
            }
            format!("{{{}{}}}", members.join(","), dice.space())
        }
        scalar => canonical(scalar),
    };
    format!("{}{text}{}", dice.space(), dice.space())
}

fn respelled(spelling: &str, dice: &mut Dice) -> String {
    let (mantissa, exponent) = spelling.split_once('e').unwrap_or((spelling, "0"));
    let exponent: i32 = exponent.parse().unwrap();
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (digits, places) = (format!("{whole}{fraction}"), fraction.len() as i32);
    match dice.below(5) {
        _ if digits.trim_start_matches('-').starts_with('0') => spelling.to_owned(),
        0 => format!("{digits}E{}", exponent - places),
        1 => format!("{digits}000e{:+}", exponent - places - 3),
        2 => format!("{digits}.00e{}", exponent - places),
        3 => format!(
            "{}.{}{fraction}0e{:+03}",
            if whole.starts_with('-') { "-0" } else { "0" },
            whole.trim_start_matches('-'),
            exponent + whole.trim_start_matches('-').len() as i32
        ),
        _ => spelling.to_owned(),
    }
}

fn escaped(text: &str, dice: &mut Dice) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        if c < ' ' || c == '"' || c == '\\' || dice.below(4) == 0 {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out += &if dice.below(2) == 0 { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") };
            }
        } else {
            out.push(c);
        }
    }
    out.push('"');
    out
}

/// Small choices from a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn space(&mut self) -> &'static str {
        ["", "", "", " ", "\n", "\t \r\n"][self.below(6)]
    }
}

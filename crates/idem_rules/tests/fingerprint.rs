//! The fingerprint as a whole: fixed answers, real stored documents, and properties over random ones.

mod jsonb_encode;

use std::collections::BTreeMap;

use idem_rules::document::canonical_from_text;
use idem_rules::error::Code;
use idem_rules::fingerprint::request_fingerprint;
use idem_rules::jsonb::{Encoding, Kind, append_canonical, canonical_from_jsonb, is_container, kind};
use idem_rules::look::{Member, objects};
use jsonb_encode::{Dice, Doc, canonical, container, ecmascript, encode, nest, numeric, spelled};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

fn text_of(document: &str) -> String {
    String::from_utf8(canonical_from_text(document).unwrap()).unwrap()
}

fn stored(bytes: &[u8]) -> String {
    String::from_utf8(canonical_from_jsonb(bytes, Encoding::Utf8).unwrap()).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn digest(document: &str) -> String {
    hex(&request_fingerprint(text_of(document).as_bytes()))
}

fn doc(document: &str) -> Doc {
    serde_json::from_str::<serde_json::Value>(document).unwrap().into()
}

#[test]
fn a_look_is_into_arrays_of_objects_only() {
    for other in ["{}", "1", "null", "[1]", "[{}, []]", "[{}, \"a\"]"] {
        assert!(objects(&encode(&doc(other))).unwrap().is_none(), "{other}");
    }
    assert!(objects(&encode(&doc("[]"))).unwrap().unwrap().is_empty());
}

/// Each 32nd entry of a container says where it ends, not how long it is.
#[test]
fn a_look_finds_the_last_of_many() {
    let members = |n: u32| (0..100).map(|m| (format!("m{m}"), Doc::Text(format!("{n}/{m}")))).collect();
    let bytes = encode(&Doc::Array((0..100).map(|n| Doc::Object(members(n))).collect()));
    for (n, object) in objects(&bytes).unwrap().unwrap().iter().enumerate() {
        for m in [0, 31, 32, 64, 99] {
            assert_eq!(
                object.member(&format!("m{m}")).unwrap(),
                Member::String(format!("{n}/{m}").as_bytes())
            );
        }
    }
}

/// SHA-256 over RFC 8785 text, computed elsewhere.
#[test]
fn known_answers() {
    for (document, expected) in [
        (r#"{"b":2,"a":1}"#, "43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777"),
        (
            r#"{"\ufb33":1,"\ud83d\ude02":2}"#,
            "100a82e7b54d5888ddc41747c813a1f268a416e1b01e1e4bb351fe427868af1a",
        ),
        (
            "[-0, 0.0000010, 1e-7, 1e21, 999999999999999700000, 295147905179352830000, 1.0, 1e2]",
            "0b3602d928b6b4d5662c61448d0f01c80e5e33935a788023981cc6f02cec7241",
        ),
        ("{ }", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        ("null", "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"),
    ] {
        assert_eq!(digest(document), expected);
        assert_eq!(hex(&request_fingerprint(stored(&encode(&doc(document))).as_bytes())), expected);
    }
}

/// Each line holds what PostgreSQL 15 on x86-64 stored (read with pageinspect), a tab, and the document.
#[cfg(target_endian = "little")]
#[test]
fn documents_stored_by_a_server() {
    let mut count = 0;
    for line in include_str!("jsonb_encode/server.tsv").lines() {
        let (bytes, document) = line.split_once('\t').unwrap();
        let bytes = unhex(bytes);
        assert_eq!(stored(&bytes), text_of(document));
        assert_eq!(hex(&encode(&doc(document))), hex(&bytes), "the tests' own encoder, {document}");
        count += 1;
    }
    assert!(count > 20);
}

#[test]
fn different_numbers_never_meet_and_equal_ones_do() {
    for (a, b) in [
        ("18446744073709551616", "18446744073709551617"),
        ("9007199254740992", "9007199254740993"),
        ("0.1", "0.1000000000000000055511151231257827"),
        ("1e23", "100000000000000000000000.10"),
        ("1e400", "1e401"),
        ("1", "\"1\""),
        ("1", "true"),
        ("1", "-1"),
        ("0", "null"),
    ] {
        assert_ne!(digest(a), digest(b));
        assert_ne!(stored(&encode(&doc(a))), stored(&encode(&doc(b))));
    }
    for (a, b) in [("0.10", "0.1"), ("1e400", "10e399"), ("100", "1e2"), ("-0.0", "0"), ("1.00", "1")] {
        assert_eq!(digest(a), digest(b));
        assert_eq!(stored(&encode(&doc(a))), stored(&encode(&doc(b))));
    }
}

#[test]
fn huge_numbers() {
    let digits = "1234567890".repeat(13_000) + "7";
    let expected = format!("-1.{}e+130000", &digits[1..]);
    let document = format!("[-{digits}]");
    assert_eq!(text_of(&document), format!("[{expected}]"));
    assert_eq!(stored(&encode(&Doc::Number(format!("-{digits}")))), expected);
    assert_eq!(stored(&encode(&Doc::Number("1e400".into()))), "1e+400");
    assert_eq!(stored(&encode(&Doc::Number("1e131071".into()))), text_of("1e131071"));
    assert_eq!(stored(&encode(&Doc::Number("1e-16383".into()))), text_of("1e-16383"));
}

/// Depths that overflow a stack when read by recursion.
#[test]
fn deep_documents() {
    for depth in [6_000, 200_000] {
        let expected = "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(text_of(&expected), expected);
        let document = r#"{"b":1,"a":"#.repeat(depth) + "0" + &"}".repeat(depth);
        assert_eq!(text_of(&document), r#"{"a":"#.repeat(depth) + "0" + &r#","b":1}"#.repeat(depth));
        assert!(canonical_from_text(&"[".repeat(depth)).is_err());
    }
    let depth = 6_000;
    let bytes = (1..depth).fold(encode(&Doc::Array(Vec::new())), |inner, _| nest(inner));
    assert_eq!(stored(&bytes), "[".repeat(depth) + &"]".repeat(depth));
}

#[test]
fn what_a_document_must_not_hide() {
    for document in [r#"{"amount":1,"amount":100}"#, r#"[{"x":{"amount":1,"amoun\u0074":1}}]"#, r#""\ud83d""#]
    {
        assert_eq!(canonical_from_text(document).unwrap_err().code, Code::InvalidText);
    }
    for document in [r#""\u0000""#, r#"{"a\u0000":1}"#] {
        assert_eq!(canonical_from_text(document).unwrap_err().code, Code::UntranslatableCharacter);
    }
    let error = canonical_from_text(r#"{"secret":"hunter2", hunter2}"#).unwrap_err();
    assert!(!format!("{error:?}").contains("hunter2"));
}

#[test]
fn top_level_kinds() {
    for (document, expected) in [
        ("{}", Kind::Object),
        ("[1]", Kind::Array),
        ("[]", Kind::Array),
        ("\"a\"", Kind::String),
        ("1", Kind::Other),
        ("null", Kind::Other),
        ("true", Kind::Other),
    ] {
        let bytes = encode(&doc(document));
        assert_eq!(kind(&bytes), Ok(expected));
        assert_eq!(is_container(&bytes), Ok(matches!(expected, Kind::Object | Kind::Array)));
    }
    for bytes in [&[][..], &[0; 4], &0x6000_0000u32.to_ne_bytes(), &0x5000_0001u32.to_ne_bytes()] {
        assert_eq!(kind(bytes).unwrap_err().code, Code::Corrupted);
    }
}

#[test]
fn other_encodings_are_refused_beyond_ascii() {
    let (plain, accent) = (encode(&doc(r#"{"a":"b"}"#)), encode(&doc(r#"["\u00e9"]"#)));
    assert_eq!(canonical_from_jsonb(&plain, Encoding::Other).unwrap(), br#"{"a":"b"}"#);
    assert_eq!(canonical_from_jsonb(&accent, Encoding::Other).unwrap_err().code, Code::Unsupported);
    let latin = container(0x4000_0000, 1, vec![(0, vec![b'x', 0xE9])]);
    for encoding in [Encoding::Utf8, Encoding::Other] {
        let error = canonical_from_jsonb(&latin, encoding).unwrap_err();
        assert_eq!(error.code, Code::Unsupported);
        assert!(error.message.contains("database encoding") && error.hint.is_some());
    }
}

/// Each of these is one step away from a good document.
#[test]
fn corrupted_documents() {
    const ARRAY: u32 = 0x4000_0000;
    const OBJECT: u32 = 0x2000_0000;
    const SCALAR: u32 = 0x1000_0000;
    let text = |text: &str| (0, text.as_bytes().to_vec());
    let null = || (0x4000_0000, Vec::new());
    let inner = || (0x5000_0000, container(ARRAY, 0, Vec::new()));
    let mut trailing = encode(&doc("[1]"));
    trailing.push(0);
    let mut cut = encode(&doc("[\"abc\"]"));
    cut.pop();
    let backwards = [ARRAY | 2, 0x8000_0004, 0x8000_0002, 0].map(u32::to_ne_bytes).concat();
    for bytes in [
        trailing,
        cut,
        backwards,
        container(0, 1, vec![null()]),
        container(ARRAY | OBJECT, 0, Vec::new()),
        container(ARRAY, 3, vec![null(), null()]),
        container(ARRAY, 0x0FFF_FFFF, vec![null()]),
        container(OBJECT, 0x0FFF_FFFF, vec![text("a"), null()]),
        container(OBJECT, 2, vec![text("a"), text("a"), null(), null()]),
        container(OBJECT, 1, vec![null(), null()]),
        container(ARRAY | SCALAR, 2, vec![null(), null()]),
        container(ARRAY | SCALAR, 1, vec![inner()]),
        container(OBJECT | SCALAR, 1, vec![text("a"), null()]),
        container(ARRAY, 1, vec![(0x5000_0000, container(ARRAY | SCALAR, 1, vec![null()]))]),
        container(ARRAY, 1, vec![(0x4000_0000, vec![0; 4])]),
        container(ARRAY, 1, vec![(0x6000_0000, Vec::new())]),
        container(ARRAY, 1, vec![(0x7000_0000, Vec::new())]),
        container(ARRAY, 1, vec![(0x1000_0000, numeric("1")[..5].to_vec())]),
        container(ARRAY, 1, vec![text("a\0")]),
    ] {
        assert_eq!(
            canonical_from_jsonb(&bytes, Encoding::Utf8).unwrap_err().code,
            Code::Corrupted,
            "{bytes:x?}"
        );
    }
    let length = if cfg!(target_endian = "little") { 6u32 << 2 } else { 6 };
    let nan = [&length.to_ne_bytes()[..], &0xC000u16.to_ne_bytes()].concat();
    let bytes = container(ARRAY, 1, vec![(0x1000_0000, nan)]);
    assert_eq!(canonical_from_jsonb(&bytes, Encoding::Utf8).unwrap_err().code, Code::InvalidParameter);
}

fn character() -> impl Strategy<Value = char> {
    let odd = "\u{1}\u{8}\t\n\u{b}\u{c}\r\u{1f} \"/\\\
        \u{7f}\u{80}\u{d7ff}\u{e000}\u{fb33}\u{ffff}\u{10000}\u{1f602}";
    prop_oneof![
        6 => proptest::char::range('a', 'e'),
        3 => proptest::sample::select(odd.chars().collect::<Vec<_>>()),
        1 => any::<char>().prop_filter("jsonb has no NUL", |c| *c != '\0'),
    ]
}

fn string() -> impl Strategy<Value = String> {
    vec(character(), 0..20).prop_map(String::from_iter)
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        (-100_000_000i64..100_000_000).prop_map(|n| n.to_string()),
        (-(1i64 << 53)..1 << 53).prop_map(|n| n.to_string()),
        (any::<i32>(), 0i32..6).prop_map(|(n, places)| format!("{:e}", f64::from(n) / 10f64.powi(places))),
        double().prop_map(|n| format!("{n:e}")),
    ]
}

/// Every bit pattern that is a number.
fn double() -> impl Strategy<Value = f64> {
    any::<u64>().prop_map(f64::from_bits).prop_filter("not a number in JSON", |n| n.is_finite())
}

fn document() -> impl Strategy<Value = Doc> {
    let scalar = prop_oneof![
        1 => Just(Doc::Null),
        1 => any::<bool>().prop_map(Doc::Bool),
        4 => number().prop_map(Doc::Number),
        4 => string().prop_map(Doc::Text),
    ];
    scalar.prop_recursive(5, 120, 40, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..40).prop_map(Doc::Array),
            btree_map(string(), inner, 0..40).prop_map(|members| Doc::Object(members.into_iter().collect())),
        ]
    })
}

/// Changes the value, name or length at the place where the dice end.
fn change(doc: &mut Doc, dice: &mut Dice) {
    match doc {
        Doc::Array(items) if !items.is_empty() => {
            let at = dice.below(items.len() + 1);
            if at == items.len() { items.push(Doc::Null) } else { change(&mut items[at], dice) }
        }
        Doc::Object(members) if !members.is_empty() => {
            let at = dice.below(members.len() + 1);
            match members.get_mut(at) {
                None => members[0].0 += "longer than any other name there is",
                Some((_, value)) => change(value, dice),
            }
        }
        Doc::Array(items) => items.push(Doc::Object(Vec::new())),
        Doc::Object(members) => members.push((String::new(), Doc::Null)),
        Doc::Text(text) => text.push('0'),
        Doc::Number(spelling) => *spelling = if spelling == "7" { "8" } else { "7" }.to_owned(),
        Doc::Bool(is) => *is = !*is,
        Doc::Null => *doc = Doc::Bool(false),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_entries_give_the_canonical_text(doc in document(), seed in any::<u64>()) {
        let expected = canonical(&doc);
        prop_assert_eq!(&text_of(&spelled(&doc, &mut Dice(seed))), &expected);
        prop_assert_eq!(&text_of(&expected), &expected);
        prop_assert_eq!(&stored(&encode(&doc)), &expected);
    }

    #[test]
    fn any_change_shows(doc in document(), seed in any::<u64>()) {
        let mut changed = doc.clone();
        change(&mut changed, &mut Dice(seed));
        prop_assume!(doc != changed);
        prop_assert_ne!(stored(&encode(&doc)), stored(&encode(&changed)));
        prop_assert_ne!(digest(&spelled(&doc, &mut Dice(seed))), digest(&spelled(&changed, &mut Dice(seed))));
    }

    #[test]
    fn exact_decimals_agree(digits in "[1-9][0-9]{0,60}", places in -400i32..400, more in "0{0,9}") {
        let spelling = format!("{digits}e{places}");
        let longer = format!("{digits}{more}e{}", places - more.len() as i32);
        let text = text_of(&spelling);
        prop_assert_eq!(&text_of(&longer), &text);
        prop_assert_eq!(&stored(&encode(&Doc::Number(spelling))), &text);
        prop_assert_ne!(&text_of(&format!("{digits}1e{places}")), &text);
    }

    #[test]
    fn doubles_are_written_as_ecmascript_does(number in double()) {
        prop_assert_eq!(text_of(&format!("{number:e}")), ecmascript(number));
        prop_assert_eq!(text_of(&format!("{number}")), ecmascript(number));
    }

    #[test]
    fn any_bytes_give_a_text_or_an_error(bytes in vec(any::<u8>(), 0..200), flags in 0u32..8) {
        let header = flags << 28 | u32::from(bytes.first().copied().unwrap_or(0) % 8);
        let _ = canonical_from_jsonb(&bytes, Encoding::Utf8);
        let _ = canonical_from_jsonb(&[&header.to_ne_bytes()[..], &bytes].concat(), Encoding::Other);
    }

    #[test]
    fn damaged_documents_give_a_text_or_an_error(doc in document(), damage in vec(any::<(u16, u8)>(), 1..8)) {
        let mut bytes = encode(&doc);
        let length = bytes.len();
        for (at, byte) in damage {
            bytes[usize::from(at) % length] = byte;
        }
        let mut out = b"kept".to_vec();
        match append_canonical(&mut out, &bytes, Encoding::Utf8) {
            Ok(()) => match canonical_from_text(str::from_utf8(&out).unwrap().strip_prefix("kept").unwrap()) {
                Ok(again) => prop_assert_eq!(&again, &out[4..]),
                Err(error) => prop_assert!(error.message.contains("range"), "{}", error),
            },
            Err(error) => {
                prop_assert_eq!(out, b"kept");
                let expected = [Code::Corrupted, Code::Unsupported, Code::InvalidParameter];
                prop_assert!(expected.contains(&error.code));
            }
        }
    }

    #[test]
    fn a_look_finds_what_stands_under_a_name(
        elements in vec(btree_map("[a-d]{0,2}", document(), 0..4), 0..4),
        name in "[a-d]{0,2}",
    ) {
        let object = |members: &BTreeMap<String, Doc>| Doc::Object(members.clone().into_iter().collect());
        let bytes = encode(&Doc::Array(elements.iter().map(object).collect()));
        let found = objects(&bytes).unwrap().unwrap();
        prop_assert_eq!(found.len(), elements.len());
        for (found, members) in found.iter().zip(&elements) {
            let alone = members.get(&name).map(encode).unwrap_or_default();
            let expected = match members.get(&name) {
                None | Some(Doc::Null) => Member::Missing,
                Some(Doc::Text(text)) => Member::String(text.as_bytes()),
                Some(Doc::Object(_)) => Member::Object(&alone),
                Some(Doc::Array(_)) => Member::Array(&alone),
                Some(_) => Member::Other,
            };
            prop_assert_eq!(found.member(&name).unwrap(), expected);
        }
    }

    #[test]
    fn a_look_into_any_bytes_ends(doc in document(), damage in vec(any::<(u16, u8)>(), 0..8)) {
        let mut bytes = encode(&Doc::Array(vec![Doc::Object(vec![("a".into(), doc)])]));
        let length = bytes.len();
        for (at, byte) in damage {
            bytes[usize::from(at) % length] = byte;
        }
        if let Ok(Some(found)) = objects(&bytes) {
            for object in found {
                let _ = (object.member("a"), object.member(""));
            }
        }
    }

    /// serde_json takes what RFC 8259 allows, but for its limits; what only we refuse has a reason.
    #[test]
    fn the_grammar_is_that_of_another_reader(text in r#"[\[\]{},:"\\ue0-2.+a \-\n]{0,12}"#) {
        let theirs = serde_json::from_str::<serde_json::Value>(&text).is_ok();
        match canonical_from_text(&text) {
            Ok(_) => prop_assert!(theirs, "{}", text),
            Err(error) if theirs => {
                let named = error.message.contains("twice") || error.message.contains("range");
                prop_assert!(named || error.code == Code::UntranslatableCharacter, "{}: {}", text, error);
            }
            Err(_) => {}
        }
    }
}

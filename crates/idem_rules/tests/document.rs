//! The strict reader of JSON text, document by document.

use idem_rules::document::canonical_from_text;
use idem_rules::error::Code;

fn canonical(document: &str) -> String {
    String::from_utf8(canonical_from_text(document).unwrap()).unwrap()
}

#[test]
fn documents_become_canonical() {
    for (document, text) in [
        (" null\n", "null"),
        ("\"\"", "\"\""),
        ("[ ]", "[]"),
        (r#""\uD800\uDC00\uDBFF\uDFFF""#, "\"\u{10000}\u{10ffff}\""),
        ("{ }", "{}"),
        ("[1 , [ 2,{ } ] ,\ttrue,false ]", "[1,[2,{}],true,false]"),
        (r#"{"b":1,"a":{"d":[],"c":-0.0}}"#, r#"{"a":{"c":0,"d":[]},"b":1}"#),
        (r#"{"\ufb33":1,"\ud83d\ude02":2,"":3}"#, "{\"\":3,\"\u{1f602}\":2,\"\u{fb33}\":1}"),
        (r#"["\"\\\/\b\f\n\r\tx\u0041\u000B\u20acy"]"#, "[\"\\\"\\\\/\\b\\f\\n\\r\\txA\\u000b\u{20ac}y\"]"),
        (r#"{"\n":1,"\u0009":2,"]":3,"\\":4}"#, r#"{"\t":2,"\n":1,"\\":4,"]":3}"#),
    ] {
        assert_eq!(canonical(document), text);
    }
}

#[test]
fn every_spelling_of_a_number_is_one_text() {
    for (spellings, text) in [
        (&["1", "1.0", "1.00", "1e0", "10e-1", "0.1E+1", "1e-0", "1e00"][..], "1"),
        (&["100", "1e2", "100.0", "0.001e5"], "100"),
        (&["0.000001", "1e-6", "0.0000010"], "0.000001"),
        (&["0", "-0", "-0.0e-5", "0e1073741822", "0.000e131099"], "0"),
        (&["1e400", "10e399"], "1e+400"),
        (&["100000000000000000000000.10"], "1.000000000000000000000001e+23"),
        (&["9007199254740993"], "9007199254740993"),
        (&["18446744073709551617"], "18446744073709551617"),
        (&["-0.1000000000000000055"], "-0.1000000000000000055"),
        (&["1e131071", "0.0001e131075", "10000000e131064"], "1e+131071"),
        (&["1e-16383"], "1e-16383"),
    ] {
        for spelling in spellings {
            assert_eq!(canonical(spelling), text, "{spelling}");
        }
    }
}

#[test]
fn bad_text_is_refused_where_it_is_bad() {
    for (document, at) in [
        ("", 0),
        (" ", 1),
        ("\u{feff}1", 0),
        ("nul", 0),
        ("nullx", 4),
        ("1 1", 2),
        ("[1,]", 3),
        ("[,1]", 1),
        ("[1 2]", 3),
        ("[1", 2),
        ("]", 0),
        ("[}", 1),
        ("{]", 1),
        ("{\"a\"}", 4),
        ("{\"a\":}", 5),
        ("{\"a\":1,}", 7),
        ("{a:1}", 1),
        ("{\"a\" 1}", 5),
        ("{\"a\":1", 6),
        ("01", 0),
        ("-01", 0),
        ("-", 1),
        ("+1", 0),
        (".5", 0),
        ("1.", 2),
        ("1.e1", 2),
        ("1e", 2),
        ("1e+", 3),
        ("0x1", 1),
        ("NaN", 0),
        ("-I", 1),
        ("\"", 1),
        ("\"a\n\"", 2),
        ("\"\u{1}\"", 1),
        ("\"\\x\"", 1),
        ("\"\\", 1),
        ("\"\\u12\"", 1),
        ("\"\\u12g4\"", 1),
        ("\"\\u+123\"", 1),
        ("\"\\ud83d\"", 1),
        ("\"\\ud83dx\"", 1),
        ("'a'", 0),
        ("\"\\ud83d\\ud83d\"", 1),
        ("\"\\ud83d\\u0041\"", 1),
        ("\"\\ud83d\\ue000\"", 1),
        ("\"\\ud83d\\uffff\"", 1),
        ("[1]\0", 3),
        ("\"\\ude02\"", 1),
        ("\"\\ud83d\\u12\"", 7),
        ("\"\\u\u{e9}\u{e9}\"", 1),
        ("\"\\\u{e9}\"", 1),
        (r#"{"a":1,"b":2,"a":1}"#, 13),
        (r#"{"a":1,"\u0061":1}"#, 7),
        (r#"[{"x":{"":1,"":1}}]"#, 12),
        ("1e131072", 0),
        ("0.1e131073", 0),
        ("1e-16384", 0),
        ("0.0e-16383", 0),
        ("1e999999999", 0),
        ("[0,1e99999999999999999999]", 3),
        ("1e-99999999999999999999", 0),
        ("0e1073741823", 0),
    ] {
        let error = canonical_from_text(document).unwrap_err();
        assert_eq!(error.code, Code::InvalidText, "{document}");
        assert!(error.message.starts_with(&format!("invalid JSON at byte {at}: ")), "{document}: {error}");
    }
    let error = canonical_from_text(r#"{"\u0000":1}"#).unwrap_err();
    assert_eq!(error.code, Code::UntranslatableCharacter);
    assert!(error.message.ends_with("at byte 2"));
}

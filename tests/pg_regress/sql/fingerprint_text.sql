-- idem_fingerprint_text reads strictly: what jsonb repairs or drops in silence is an error here.
\set VERBOSITY sqlstate
SELECT encode(idem_fingerprint_text('{"a":1,"b":2}'), 'hex');
SELECT bool_and(idem_fingerprint_text(d) = idem_fingerprint(d::jsonb)) AS as_jsonb
FROM unnest(ARRAY['{"b": 2.0, "a": 1e0}', '[0, 1e-7, 1e400, -0.0, 9007199254740993]', '"\ud83d\ude02\u00e9\/\b"', U&'"\+01F602"', ' null ', 'true', '1',
    E'\t[\n1\r]', '{"\u0061": 1}', repeat('[', 6000) || repeat(']', 6000), '1e131071', '{"a":{"b":1},"b":{"b":1}}']) AS d;
-- Duplicate names, in any spelling and at any depth
SELECT idem_fingerprint_text('{"amount":1,"amount":100}');
SELECT idem_fingerprint_text('{"amount":1,"amount":1}');
SELECT idem_fingerprint_text('{"a":{"b":1,"c":2,"b":3}}');
SELECT idem_fingerprint_text('[{"a":1,"\u0061":2}]');
SELECT idem_fingerprint_text('{"\ud83d\ude02":1,' || U&'"\+01F602"' || ':2}');
SELECT idem_fingerprint_text('{"":1,"":2}');
-- Lone surrogates and NUL
SELECT idem_fingerprint_text('"\ud83d"');
SELECT idem_fingerprint_text('"\ude02"');
SELECT idem_fingerprint_text('"\ud83dx"');
SELECT idem_fingerprint_text('"\ud83d\ud83d"');
SELECT idem_fingerprint_text('"\u0000"');
SELECT idem_fingerprint_text('{"\u0000":1}');
-- Trailing text, half a document, none
SELECT idem_fingerprint_text('{} {}');
SELECT idem_fingerprint_text('{}x');
SELECT idem_fingerprint_text('[1,]');
SELECT idem_fingerprint_text('{"a":1,}');
SELECT idem_fingerprint_text('{"a"}');
SELECT idem_fingerprint_text('[1');
SELECT idem_fingerprint_text('"abc');
SELECT idem_fingerprint_text('');
SELECT idem_fingerprint_text(' ');
-- What is no JSON
SELECT idem_fingerprint_text('nul');
SELECT idem_fingerprint_text('NaN');
SELECT idem_fingerprint_text('Infinity');
SELECT idem_fingerprint_text('01');
SELECT idem_fingerprint_text('-');
SELECT idem_fingerprint_text('+1');
SELECT idem_fingerprint_text('1.');
SELECT idem_fingerprint_text('.1');
SELECT idem_fingerprint_text('1e');
SELECT idem_fingerprint_text('0x10');
SELECT idem_fingerprint_text('''a''');
SELECT idem_fingerprint_text('{a:1}');
SELECT idem_fingerprint_text('/**/1');
SELECT idem_fingerprint_text(E'"a\tb"');
SELECT idem_fingerprint_text(E'"a\nb"');
SELECT idem_fingerprint_text('"\x"');
SELECT idem_fingerprint_text('"\u12"');
SELECT idem_fingerprint_text('"\u00zz"');
SELECT idem_fingerprint_text(U&'\FEFF{}');
SELECT idem_fingerprint_text(U&'\00A0{}');
SELECT idem_fingerprint_text(NULL) IS NULL AS null_in_null_out;
-- An exponent that no number has
SELECT idem_fingerprint_text('1e999999999999999999999');
SELECT idem_fingerprint_text('1e-999999999999999999999');

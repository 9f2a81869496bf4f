-- idem_canonical: RFC 8785, with numbers kept exact.
\pset format unaligned
\pset tuples_only on
SELECT idem_canonical('{"b": 2, "a": [true, false, null, "x", {}, []]}');
-- Numbers by ECMAScript's rules, whatever their spelling
SELECT idem_canonical('[0, 0.000001, 1e-7, 1e+21, 999999999999999700000, 295147905179352830000, 1, 100]');
SELECT idem_canonical('[0.0, -0, -0.0, 0e10, 1.0, 1.00, 1e0, 10e-1, 100, 1e2, 0.1, 0.10, -1.50]');
SELECT idem_canonical('[1e20, 123456789012345678900, 1e21, 1.5e21, 1234567890123456789012, -1e21, 0.0000010, 0.0000012, 0.00000012, 1.2e-7, -1e-7]');
-- Shortest doubles at their bounds
SELECT idem_canonical('[5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 9007199254740991, 9007199254740992, 0.1, 333333333.33333329, 4.35, 1e23, 9.999999999999997e22]');
-- Beyond doubles equal stays equal, different stays different.
SELECT idem_canonical('[9007199254740993, 18446744073709551616, 18446744073709551617, 0.1000000000000000055511151231257827, 100000000000000000000000.10, 123456789012345678901234567890]');
SELECT idem_canonical('[1e400, -1e-400, 1.50e1000]');
SELECT idem_canonical('1e131071'), length(idem_canonical(('1' || repeat('0', 131070) || '1')::jsonb));
SELECT length(idem_canonical((repeat('9', 130000) || '.' || repeat('9', 16000))::jsonb));
-- Strings: the two-character escapes, \u00xx for other controls, all else as it is
SELECT idem_canonical('"\b\t\n\f\r\"\\\/\u0001\u001f\u007f\u00e9\u20ac\u2028"') = E'"\\b\\t\\n\\f\\r\\"\\\\/\\u0001\\u001f\u007fé€\u2028"';
SELECT convert_to(idem_canonical('"\ud83d\ude02"'), 'UTF8');
-- No normalisation: e with acute in one and in two characters
SELECT idem_canonical('"\u00e9"') <> idem_canonical('"e\u0301"');
-- Members by UTF-16 code units, not by length, code point or byte
SELECT replace(replace(idem_canonical('{"\ufb33": 1, "\ud83d\ude02": 2}'), U&'\FB33', 'FB33'), U&'\+01F602', '1F602');
SELECT idem_canonical('{"bb": 1, "a": 2, "b": 3, "": 4, "A": 5, "aa": 6, "10": 7, "9": 8}');
SELECT idem_canonical('{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew", "1": "One", "\ud83d\ude00": "Emoji", "\u0080": "Control", "\u00f6": "Latin"}')
    = U&'{"\005cr":"Carriage Return","1":"One","' || U&'\0080' || U&'":"Control","\00F6":"Latin","\20AC":"Euro Sign","\+01F600":"Emoji","\FB33":"Hebrew"}';
SELECT count(DISTINCT idem_canonical(d)) FROM (SELECT ('{' || string_agg('"' || k || '":1', ',' ORDER BY md5(k || n)) || '}')::jsonb AS d
    FROM generate_series(1, 50) AS n, unnest('{bb,a,b,aa,ab,ba,A,B}'::text[]) AS k GROUP BY n) AS documents;
-- White space is nothing; the order of an array is something.
SELECT idem_canonical(E' [ 1 ,\n\t2 ] '), idem_canonical('[1,2]') <> idem_canonical('[2,1]');
-- Any depth that PostgreSQL accepts
SELECT length(idem_canonical((repeat('[', 6000) || repeat(']', 6000))::jsonb)), length(idem_canonical((repeat('{"a":', 3000) || '1' || repeat('}', 3000))::jsonb));
-- Scalars at the top, and NULL
SELECT idem_canonical('"x"'), idem_canonical('1.0'), idem_canonical('true'), idem_canonical('null'), idem_canonical(NULL) IS NULL;

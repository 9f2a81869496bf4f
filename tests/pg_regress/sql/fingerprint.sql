-- idem_fingerprint: SHA-256 of the canonical text, reproducible with any JCS library.
\pset format unaligned
\pset tuples_only on
-- Known answers
SELECT encode(idem_fingerprint('{"a":1,"b":2}'), 'hex');
SELECT encode(idem_fingerprint('{"\ud83d\ude02":2,"\ufb33":1}'), 'hex');
SELECT encode(idem_fingerprint('[0,0.000001,1e-7,1e+21,999999999999999700000,295147905179352830000,1,100]'), 'hex');
SELECT encode(idem_fingerprint('{}'), 'hex');
SELECT encode(idem_fingerprint('null'), 'hex');
-- Spellings
SELECT count(DISTINCT idem_fingerprint(d::jsonb)) FROM unnest(ARRAY['{"a":1,"b":2}', '{ "b" : 2, "a" : 1 }', E'{\n"b":2.0,"a":1e0}', '{"a":0.1e1,"b":20e-1}']) AS d;
SELECT count(DISTINCT idem_fingerprint(d::jsonb)) FROM unnest(ARRAY['{"x":1}', '{"x":1.0}', '{"x":1.00}', '{"x":1e0}', '{"x":10e-1}']) AS d;
SELECT count(DISTINCT idem_fingerprint(d::jsonb)) FROM unnest(ARRAY['{"x":100}', '{"x":1e2}']) AS d;
SELECT count(DISTINCT idem_fingerprint(d::jsonb)) FROM unnest(ARRAY['0.000001', '1e-6', '0.0000010']) AS d;
SELECT count(DISTINCT idem_fingerprint(d::jsonb)) FROM unnest(ARRAY['0', '-0', '0.0', '-0.00', '0e5']) AS d;
-- Differences
SELECT count(DISTINCT idem_fingerprint(d::jsonb)) FROM unnest(ARRAY['{"x":1}', '{"x":"1"}', '{"x":true}', '{"x":null}', '{"x":[1]}', '{"x":{}}', '{"x":[]}', '{"X":1}', '{"x ":1}', '{}', '[]', 'null', '0', '""', '{"":1}', '{"x":1,"y":1}']) AS d;
SELECT count(DISTINCT idem_fingerprint(d::jsonb)) FROM unnest(ARRAY['18446744073709551616', '18446744073709551617', '9007199254740992', '9007199254740993', '0.1', '0.1000000000000000055', '1e23', '100000000000000000000000.1', '1e400', '1e401', '-1e400', '1e-400']) AS d;
-- It is what it says: the digest of the canonical text.
SELECT bool_and(idem_fingerprint(d::jsonb) = sha256(convert_to(idem_canonical(d::jsonb), 'UTF8')))
FROM unnest(ARRAY['{"a":1}', '[1e400]', '"\ud83d\ude02"', '{"\ufb33":"\u00e9"}', repeat('[', 500) || repeat(']', 500)]) AS d;
SELECT length(idem_fingerprint('{}')), idem_fingerprint(NULL) IS NULL;
-- jsonb has dropped the earlier of two members before anybody can see it.
SELECT idem_fingerprint('{"amount":1,"amount":100}') = idem_fingerprint('{"amount":100}');
-- IMMUTABLE: good for an index and a generated column.
SELECT provolatile, proparallel, proisstrict FROM pg_proc WHERE proname = 'idem_fingerprint';

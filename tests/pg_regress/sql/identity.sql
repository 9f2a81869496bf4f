-- idem_action_id and idem_key: names that any client can compute.
\set VERBOSITY sqlstate
-- Test vectors
SELECT idem_action_id('k'), idem_action_id('refund-4821'), idem_action_id('refund-4821', 'acme');
SELECT idem_action_id('b|c', 'a'), idem_action_id('c', 'a|b'), idem_action_id(repeat('y', 255), repeat('x', 255));
SELECT idem_action_id(U&'cl\00E9 \20AC\+01F602', U&'m\00E9tro');
-- By the contract's words: SHA-256 over the domain, then tenant and key, each as a 4-byte length and its bytes; version 8.
SELECT bool_and(replace(idem_action_id(key, tenant)::text, '-', '') = encode(set_byte(set_byte(cut, 6, (get_byte(cut, 6) & 15) | 128), 8, (get_byte(cut, 8) & 63) | 128), 'hex')) AS by_hand
FROM (VALUES ('k', ''), ('refund-4821', 'acme'), (U&'cl\00E9 \20AC\+01F602', U&'m\00E9tro'), (repeat(U&'\20AC', 255), 't')) AS names(key, tenant),
    LATERAL (SELECT substr(sha256('pg_idem/action/1'::bytea || int4send(octet_length(convert_to(tenant, 'UTF8'))) || convert_to(tenant, 'UTF8')
        || int4send(octet_length(convert_to(key, 'UTF8'))) || convert_to(key, 'UTF8')), 1, 16)) AS digest(cut);
SELECT action_id = idem_action_id('identity', 'acme') AS same FROM idem_reserve('identity', '{}', 'acme');
-- Nothing is folded, trimmed or normalised.
SELECT count(DISTINCT idem_action_id(k)) FROM unnest(ARRAY['a', 'A', ' a', 'a ', U&'\00E9', U&'e\0301', U&'\+01F602']) AS k;
SELECT idem_action_id(NULL);
SELECT idem_action_id('k', NULL);
SELECT idem_action_id('');
SELECT idem_action_id(' ');
SELECT idem_action_id(U&'\200B');
SELECT idem_action_id(repeat('k', 256));
SELECT idem_action_id('k', repeat('t', 256));

-- idem_key: parts with their lengths, so that nobody glues strings.
SELECT idem_key('a'), idem_key('order', '4821', U&'\00E9');
SELECT bool_and(idem_key(VARIADIC parts) = encode(sha256('pg_idem/key/1'::bytea || int4send(cardinality(parts))
    || (SELECT string_agg(int4send(octet_length(convert_to(p, 'UTF8'))) || convert_to(p, 'UTF8'), '' ORDER BY n) FROM unnest(parts) WITH ORDINALITY AS t(p, n))), 'hex')) AS by_hand
FROM (VALUES (ARRAY['a']), (ARRAY['order', '4821', U&'\00E9']), (ARRAY['']), (ARRAY['', ''])) AS lists(parts);
SELECT count(DISTINCT idem_key(VARIADIC parts)) FROM (VALUES (ARRAY['a', 'b|c']), (ARRAY['a|b', 'c']), (ARRAY['', 'ab']), (ARRAY['ab', '']), (ARRAY['a', 'b']), (ARRAY['b', 'a']),
    (ARRAY['ab']), (ARRAY['a', 'b', '']), (ARRAY['']), (ARRAY['', '']), (ARRAY['a' || chr(31) || 'b'])) AS lists(parts);
SELECT granted FROM idem_reserve(idem_key('identity', 'order', repeat('x', 10000)), '{}');
SELECT idem_key('a', NULL);
SELECT idem_key(VARIADIC '{}'::text[]);

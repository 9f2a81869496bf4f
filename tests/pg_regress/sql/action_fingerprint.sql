-- idem_action_fingerprint: the digest of {"action_type","actor","arguments_sha256","target","tenant"}, absent = null.
\set VERBOSITY sqlstate
SELECT encode(idem_action_fingerprint(idem_fingerprint('{}'), 'default'), 'hex');
SELECT idem_action_fingerprint(idem_fingerprint('{}'), 'default') = sha256(convert_to(
    '{"action_type":"default","actor":null,"arguments_sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","target":null,"tenant":""}', 'UTF8')) AS by_hand;
SELECT idem_action_fingerprint(idem_fingerprint('{"amount":100}'), 'refund', 'acme', 'user:7', E'order "4821"\n') = idem_fingerprint(jsonb_build_object(
    'tenant', 'acme', 'action_type', 'refund', 'actor', 'user:7', 'target', E'order "4821"\n',
    'arguments_sha256', encode(idem_fingerprint('{"amount":100}'), 'hex'))) AS as_a_document;
-- Each part counts, an empty one is not an absent one, and parts do not change places.
SELECT count(DISTINCT f) FROM (VALUES (idem_action_fingerprint(sha256('a'), 'a', 'b', 'c', 'd')), (idem_action_fingerprint(sha256('b'), 'a', 'b', 'c', 'd')),
    (idem_action_fingerprint(sha256('a'), 'b', 'a', 'c', 'd')), (idem_action_fingerprint(sha256('a'), 'a', 'b', 'd', 'c')),
    (idem_action_fingerprint(sha256('a'), 'a', 'b', NULL, 'c')), (idem_action_fingerprint(sha256('a'), 'a', 'b', 'c')),
    (idem_action_fingerprint(sha256('a'), 'a', 'b')), (idem_action_fingerprint(sha256('a'), 'a', 'b', '')),
    (idem_action_fingerprint(sha256('a'), 'a', 'b', NULL, '')), (idem_action_fingerprint(sha256('a'), 'a', 'b', 'null', 'null'))) AS fingerprints(f);
-- It is what an action stores.
SELECT granted FROM idem_reserve('action_fingerprint', '{"amount": 100}', 'acme', 'refund', 'user:7', 'order 4821');
SELECT fingerprint = idem_action_fingerprint(idem_fingerprint('{"amount":100}'), 'refund', 'acme', 'user:7', 'order 4821') AS stored, scheme
FROM idem_action WHERE action_id = idem_action_id('action_fingerprint', 'acme');
-- Arguments
SELECT idem_action_fingerprint(NULL, 'default');
SELECT idem_action_fingerprint(idem_fingerprint('{}'), NULL);
SELECT idem_action_fingerprint(idem_fingerprint('{}'), 'default', NULL);
SELECT idem_action_fingerprint('\x00', 'default');
SELECT idem_action_fingerprint(idem_fingerprint('{}'), '');
SELECT idem_action_fingerprint(idem_fingerprint('{}'), repeat('a', 101));
SELECT idem_action_fingerprint(idem_fingerprint('{}'), 'default', repeat('t', 256));
SELECT idem_action_fingerprint(idem_fingerprint('{}'), 'default', '', repeat('a', 256));
SELECT idem_action_fingerprint(idem_fingerprint('{}'), 'default', '', NULL, repeat('a', 256));

-- Bad input is refused with a standard SQLSTATE, before anything is stored.
\set VERBOSITY sqlstate
-- key
SELECT granted FROM idem_reserve(NULL, '{}');
SELECT granted FROM idem_reserve('', '{}');
SELECT granted FROM idem_reserve(' ', '{}');
SELECT granted FROM idem_reserve(U&'\3000\2003', '{}');
SELECT granted FROM idem_reserve(U&'\200B', '{}');
SELECT granted FROM idem_reserve(U&'reserve_arguments\FEFF', '{}');
SELECT granted FROM idem_reserve(E'reserve_arguments\t', '{}');
SELECT granted FROM idem_reserve(E'reserve_arguments\n', '{}');
SELECT granted FROM idem_reserve('reserve_arguments' || chr(127), '{}');
SELECT granted FROM idem_reserve(U&'reserve_arguments\0085', '{}');
SELECT granted FROM idem_reserve(repeat('k', 256), '{}');
SELECT granted FROM idem_reserve(repeat('k', 10000), '{}');
-- tenant, action_type and the other texts
SELECT granted FROM idem_reserve('reserve_arguments', '{}', NULL);
SELECT granted FROM idem_reserve('reserve_arguments', '{}', repeat('t', 256));
SELECT granted FROM idem_reserve('reserve_arguments', '{}', action_type => NULL);
SELECT granted FROM idem_reserve('reserve_arguments', '{}', action_type => '');
SELECT granted FROM idem_reserve('reserve_arguments', '{}', action_type => repeat('a', 101));
SELECT granted FROM idem_reserve('reserve_arguments', '{}', actor => repeat('a', 256));
SELECT granted FROM idem_reserve('reserve_arguments', '{}', target => repeat('a', 256));
SELECT granted FROM idem_reserve('reserve_arguments', '{}', worker => repeat('a', 256));
SELECT granted FROM idem_reserve('reserve_arguments', '{}', workflow_id => repeat('a', 256));
SELECT granted FROM idem_reserve('reserve_arguments', '{}', session_id => repeat('a', 256));
SELECT granted FROM idem_reserve('reserve_arguments', '{}', payload_version => repeat('a', 256));
-- request: an object or an array
SELECT granted FROM idem_reserve('reserve_arguments', '"{\"amount\": 100}"');
SELECT granted FROM idem_reserve('reserve_arguments', '100');
SELECT granted FROM idem_reserve('reserve_arguments', 'true');
SELECT granted FROM idem_reserve('reserve_arguments', 'null');
-- fingerprint: 32 bytes, and that of the request where both are given
SELECT granted FROM idem_reserve('reserve_arguments', fingerprint => '\x');
SELECT granted FROM idem_reserve('reserve_arguments', fingerprint => substr(idem_fingerprint('{}'), 1, 31));
SELECT granted FROM idem_reserve('reserve_arguments', fingerprint => idem_fingerprint('{}') || '\x00');
SELECT granted FROM idem_reserve('reserve_arguments', '{}', fingerprint => idem_fingerprint('[]'));
SELECT granted FROM idem_reserve('reserve_arguments', '{}', fingerprint => idem_action_fingerprint(idem_fingerprint('{}'), 'default'));
-- attempt_id: version 4 or 7
SELECT granted FROM idem_reserve('reserve_arguments', '{}', attempt_id => '00000000-0000-0000-0000-000000000000');
SELECT granted FROM idem_reserve('reserve_arguments', '{}', attempt_id => '11111111-1111-1111-8111-111111111111');
SELECT granted FROM idem_reserve('reserve_arguments', '{}', attempt_id => '11111111-1111-5111-8111-111111111111');
SELECT granted FROM idem_reserve('reserve_arguments', '{}', attempt_id => idem_action_id('derived'));
-- seconds
SELECT granted FROM idem_reserve('reserve_arguments', '{}', lease_seconds => 0);
SELECT granted FROM idem_reserve('reserve_arguments', '{}', lease_seconds => -1);
SELECT granted FROM idem_reserve('reserve_arguments', '{}', lease_seconds => 'NaN');
SELECT granted FROM idem_reserve('reserve_arguments', '{}', lease_seconds => 'Infinity');
SELECT granted FROM idem_reserve('reserve_arguments', '{}', lease_seconds => 3600.1);
SELECT granted FROM idem_reserve('reserve_arguments', '{}', ttl_seconds => -1);
SELECT granted FROM idem_reserve('reserve_arguments', '{}', ttl_seconds => 'NaN');
SELECT granted FROM idem_reserve('reserve_arguments', '{}', ttl_seconds => '-Infinity');
SELECT granted FROM idem_reserve('reserve_arguments', '{}', ttl_seconds => 4e8);
SELECT granted FROM idem_reserve('reserve_arguments', '{}', ttl_seconds => 1e308);
SELECT granted FROM idem_reserve('reserve_arguments', '{}', wait_seconds => -0.001);
SELECT granted FROM idem_reserve('reserve_arguments', '{}', wait_seconds => 'NaN');
SELECT granted FROM idem_reserve('reserve_arguments', '{}', wait_seconds => 4e8);
-- All of it is refused for a stored action, too.
SELECT granted FROM idem_reserve('reserve_arguments stored', '{}');
SELECT granted FROM idem_reserve('reserve_arguments stored', '{}', lease_seconds => 'NaN');
SELECT granted FROM idem_reserve('reserve_arguments stored', '{}', attempt_id => '11111111-1111-1111-8111-111111111111');
SELECT granted FROM idem_reserve('reserve_arguments stored', '"x"');
-- Nothing was stored.
SELECT count(*) FROM idem_action WHERE key LIKE 'reserve\_arguments%' AND key <> 'reserve_arguments stored';

-- What is allowed: 255 characters of any length in bytes, blanks inside, an empty tenant, a version 7.
SELECT granted FROM idem_reserve(repeat(U&'\+01F602', 255), '{}', repeat(U&'\+01F602', 255), repeat(U&'\20AC', 100));
SELECT granted FROM idem_reserve(' reserve arguments ', '[]', actor => '', target => '', worker => '');
SELECT granted FROM idem_reserve('reserve_arguments 7', '{}', attempt_id => '01890000-0000-7000-8000-000000000000');
SELECT granted FROM idem_reserve('reserve_arguments hour', '{}', lease_seconds => 3600, ttl_seconds => 315576000);
SELECT decision FROM idem_reserve('reserve_arguments hour', fingerprint => idem_fingerprint('{}'));
SELECT decision FROM idem_reserve('reserve_arguments hour', '{}', fingerprint => idem_fingerprint('{}'));
-- An empty actor is not an absent one.
SELECT decision FROM idem_reserve(' reserve arguments ', '[]', target => '');

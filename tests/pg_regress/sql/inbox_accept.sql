-- idem_inbox_accept: new once to each consumer, in each tenant, and only if the transaction commits.
\set VERBOSITY terse
SELECT decision, first_seen_at > now() - interval '1 min' AS recent FROM idem_inbox_accept('inbox', 'm1', '{"a": 1, "b": [2]}');
SELECT decision FROM idem_inbox_accept('inbox', 'm1', '{"b": [2], "a": 1.0}');
SELECT decision FROM idem_inbox_accept('inbox', 'm1', '{"a": 2}');
SELECT decision FROM idem_inbox_accept('inbox', 'm1');
SELECT decision FROM idem_inbox_accept('inbox other', 'm1'), idem_inbox_accept('inbox', 'm1', tenant => 't') AS t (d, f);
-- Not given the first time, it is not compared later.
SELECT decision FROM idem_inbox_accept('inbox', 'm2'); SELECT decision FROM idem_inbox_accept('inbox', 'm2', '{"a": 2}');
-- Rolled back, it is new again: also in a savepoint, and twice in one transaction it is not.
BEGIN; SELECT decision FROM idem_inbox_accept('inbox', 'm3'); SELECT decision FROM idem_inbox_accept('inbox', 'm3'); ROLLBACK;
BEGIN; SAVEPOINT s; SELECT decision FROM idem_inbox_accept('inbox', 'm3'); ROLLBACK TO s; SELECT decision FROM idem_inbox_accept('inbox', 'm3'); COMMIT;
SELECT decision FROM idem_inbox_accept('inbox', 'm3');
-- Many: one row for each, in the order given
SELECT message_id, decision FROM idem_inbox_accept_many('inbox', '{m9,m1,m4,m9,m5}', ARRAY['{}', '{"a": 2}', NULL, '{"x": 1}', '1']::jsonb[]);
SELECT message_id, decision FROM idem_inbox_accept_many('inbox', '{m9,m6}');
SELECT count(*) FROM idem_inbox_accept_many('inbox', '{}');
-- Names are compared byte for byte.
SELECT decision FROM idem_inbox_accept('inbox', 'M1'), idem_inbox_accept('inbox', 'm1 ') AS t (d, f);
-- Bad input changes nothing.
SELECT idem_inbox_accept(NULL, 'm1');
SELECT idem_inbox_accept('inbox', NULL);
SELECT idem_inbox_accept('inbox', '');
SELECT idem_inbox_accept('', 'm1');
SELECT idem_inbox_accept('inbox', 'm1', tenant => NULL);
SELECT idem_inbox_accept('inbox', repeat('x', 256));
SELECT idem_inbox_accept_many('inbox', '{m7,NULL}');
SELECT idem_inbox_accept_many('inbox', NULL);
SELECT idem_inbox_accept_many('inbox', '{m7,m8}', ARRAY['{}']::jsonb[]);
SELECT count(*) FROM idem_inbox WHERE message_id IN ('m7', 'm8');
BEGIN READ ONLY; SELECT idem_inbox_accept('inbox', 'm10'); ROLLBACK;
-- The longest names there can be
SELECT decision FROM idem_inbox_accept(repeat('𝄞', 255), repeat('𝄞', 255), tenant => repeat('𝄞', 255));
-- The sweep forgets what is older than pg_idem.inbox_retention, once in a while; here, as if it had never done so.
UPDATE idem_cursor SET visited_to = '-infinity' WHERE purpose = 'inbox';
UPDATE idem_inbox SET first_seen_at = now() - interval '29 days' WHERE message_id = 'm4';
UPDATE idem_inbox SET first_seen_at = now() - interval '31 days' WHERE message_id IN ('m2', 'm5');
SELECT message_id FROM idem_inbox WHERE message_id IN ('m2', 'm4', 'm5') ORDER BY 1;
CALL idem_sweep_all();
SELECT message_id FROM idem_inbox WHERE message_id IN ('m2', 'm4', 'm5') ORDER BY 1;
SELECT decision FROM idem_inbox_accept('inbox', 'm2');
-- Until the next time nobody reads the whole table for a message or two.
SELECT visited_to > now() - interval '30 days 1 min' AS recent, page FROM idem_cursor WHERE purpose = 'inbox';
UPDATE idem_inbox SET first_seen_at = now() - interval '31 days' WHERE message_id = 'm4';
CALL idem_sweep_all();
SELECT decision FROM idem_inbox_accept('inbox', 'm4');
UPDATE idem_cursor SET visited_to = now() - interval '31 days' WHERE purpose = 'inbox';
CALL idem_sweep_all();
SELECT decision FROM idem_inbox_accept('inbox', 'm4');
DELETE FROM idem_inbox;

-- idem_once: local work in one call, in the caller's transaction, with the caller's rights and search_path.
\set VERBOSITY sqlstate
\set shown 'granted, decision, state, attempt_id IS NULL AS no_token, response, response_state'
CREATE SCHEMA once;
CREATE TABLE once.account (id int PRIMARY KEY, balance int);
INSERT INTO once.account VALUES (1, 100);
CREATE FUNCTION once.credit(request jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ UPDATE once.account SET balance = balance + (request->>'amount')::int WHERE id = 1 RETURNING jsonb_build_object('balance', balance) $$;
SELECT count(*) FROM idem_register_action_type('once local', 'reversible', effect => 'local');
SELECT count(*) FROM idem_register_action_type('once external', 'idempotent_mutation');
SELECT count(*) FROM idem_register_action_type('once irreversible', 'irreversible', effect => 'local');

-- The first does it; duplicates get its answer; another request is a conflict.
SELECT :shown FROM idem_once('once', '{"amount": 5}', 'once.credit(jsonb)', action_type => 'once local');
SELECT :shown FROM idem_once('once', '{"amount": 5}', 'once.credit(jsonb)', action_type => 'once local');
SELECT :shown FROM idem_once('once', '{"amount": 6}', 'once.credit(jsonb)', action_type => 'once local');
SELECT decision, response FROM idem_reserve('once', '{"amount": 5}', action_type => 'once local');
SELECT balance FROM once.account;
-- Another tenant's is another; an unregistered type will do; once a column is once.
SELECT :shown FROM idem_once('once', '{"amount": 5}', 'once.credit(jsonb)', 'other');
SELECT (idem_once('once columns', '{"amount": 5}', 'once.credit(jsonb)')).response, (idem_once('once columns', '{"amount": 5}', 'once.credit(jsonb)')).decision;
SELECT balance FROM once.account;

-- A routine that raises leaves nothing behind, neither its rows nor the reservation.
CREATE FUNCTION once.broken(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS
    $$ BEGIN UPDATE once.account SET balance = 0; RAISE EXCEPTION 'no' USING ERRCODE = 'P0042'; END $$;
SELECT decision FROM idem_once('once broken', '{}', 'once.broken(jsonb)');
SELECT state FROM idem_status('once broken');
BEGIN;
SELECT decision FROM idem_once('once outer', '{"amount": 1}', 'once.credit(jsonb)');
SAVEPOINT s; SELECT decision FROM idem_once('once broken', '{}', 'once.broken(jsonb)'); ROLLBACK TO s;
SELECT decision, response FROM idem_once('once broken', '{"amount": 1}', 'once.credit(jsonb)');
COMMIT;
SELECT balance FROM once.account;
-- One rolled back with its transaction never was.
BEGIN; SELECT decision FROM idem_once('once rolled', '{"amount": 1}', 'once.credit(jsonb)'); ROLLBACK;
SELECT decision FROM idem_once('once rolled', '{"amount": 1}', 'once.credit(jsonb)');
SELECT balance FROM once.account;

-- NULL is an answer; no request is a request.
CREATE FUNCTION once.nothing(request jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
SELECT :shown FROM idem_once('once null', '{}', 'once.nothing(jsonb)');
SELECT :shown FROM idem_once('once null', '{}', 'once.nothing(jsonb)');
SELECT :shown FROM idem_once('once no request', NULL, 'once.nothing(jsonb)');
-- A response too large to keep is given to who did it.
CREATE FUNCTION once.large(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(repeat('x', 3000)) $$;
BEGIN; SET LOCAL pg_idem.max_response_size = '1kB';
SELECT decision, length(response::text), response_state FROM idem_once('once large', '{}', 'once.large(jsonb)');
SELECT decision, length(response::text), response_state FROM idem_once('once large', '{}', 'once.large(jsonb)');
COMMIT;

-- Nested: another key is fine, its own is refused.
CREATE FUNCTION once.outer(request jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT response FROM public.idem_once(request->>'key', request, 'once.credit(jsonb)') $$;
SELECT response FROM idem_once('once nested', '{"key": "once inner", "amount": 2}', 'once.outer(jsonb)');
SELECT decision FROM idem_once('once inner', '{"key": "once inner", "amount": 2}', 'once.credit(jsonb)');
SELECT response FROM idem_once('once self', '{"key": "once self", "amount": 2}', 'once.outer(jsonb)');
SELECT state FROM idem_status('once self');

-- What somebody else has is not touched.
SELECT decision FROM idem_reserve('once taken', '{}');
SELECT granted, decision FROM idem_once('once taken', '{}', 'once.credit(jsonb)');

-- Routines of another shape, and types whose effect is elsewhere
CREATE FUNCTION once.text(request text) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE FUNCTION once.void(request jsonb) RETURNS void LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION once.many(request jsonb) RETURNS SETOF jsonb LANGUAGE sql AS 'SELECT request';
CREATE FUNCTION once.two(request jsonb, n int DEFAULT 1) RETURNS jsonb LANGUAGE sql AS 'SELECT request';
CREATE FUNCTION once.variadic(VARIADIC requests jsonb[]) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE PROCEDURE once.procedure(request jsonb) LANGUAGE sql AS 'SELECT 1';
SELECT idem_once('once wrong', '{}', 'once.text(text)');
SELECT idem_once('once wrong', '{}', 'once.void(jsonb)');
SELECT idem_once('once wrong', '{}', 'once.many(jsonb)');
SELECT idem_once('once wrong', '{}', 'once.two(jsonb,int)');
SELECT idem_once('once wrong', '{}', 'once.variadic(jsonb[])');
SELECT idem_once('once wrong', '{}', 'once.procedure(jsonb)');
SELECT idem_once('once wrong', '{}', 'once.no_such(jsonb)');
SELECT idem_once('once wrong', '{}', 4000000000::oid::regprocedure);
SELECT idem_once('once wrong', '{}', NULL);
SELECT idem_once('once wrong', '{}', 'once.credit(jsonb)', action_type => NULL);
SELECT idem_once('once wrong', '{}', 'once.credit(jsonb)', action_type => 'once external');
SELECT idem_once('once wrong', '{}', 'once.credit(jsonb)', action_type => 'once irreversible');
SELECT idem_once(NULL, '{}', 'once.credit(jsonb)');
SELECT idem_once('once wrong', '"text"', 'once.credit(jsonb)');
SELECT state FROM idem_status('once wrong');
-- Names that need quotes; one that PostgreSQL cannot tell from another in a call with one argument is its own error.
CREATE FUNCTION once."Odd "" name"(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"odd": true}'::jsonb $$;
SELECT response FROM idem_once('once odd', '{}', 'once."Odd "" name"(jsonb)');
CREATE FUNCTION once."Odd "" name"(request jsonb, n int DEFAULT 1) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"odd": false}'::jsonb $$;
SELECT response FROM idem_once('once ambiguous', '{}', 'once."Odd "" name"(jsonb)');
SELECT state FROM idem_status('once ambiguous');

-- The caller's rights, his search_path, and his right to execute
BEGIN;
CREATE ROLE regress_idem_once;
SELECT idem_grant('regress_idem_once', 'execute');
GRANT USAGE ON SCHEMA once TO regress_idem_once;
CREATE FUNCTION once.who(request jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT jsonb_build_object('user', current_user, 'path', current_setting('search_path')) $$;
CREATE FUNCTION once.closed(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
REVOKE ALL ON FUNCTION once.closed FROM PUBLIC;
CREATE FUNCTION once.definer(request jsonb) RETURNS jsonb LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS
    $$ SELECT jsonb_build_object('superuser', current_user = session_user, 'path', current_setting('search_path')) $$;
SET LOCAL ROLE regress_idem_once;
SET LOCAL search_path = once, public;
SELECT response FROM idem_once('once who', '{}', 'once.who(jsonb)');
SELECT response FROM idem_once('once definer', '{}', 'once.definer(jsonb)');
SHOW search_path;
SAVEPOINT s; SELECT response FROM idem_once('once credit', '{"amount": 1}', 'once.credit(jsonb)'); ROLLBACK TO s;
SAVEPOINT s; SELECT response FROM idem_once('once closed', '{}', 'once.closed(jsonb)'); ROLLBACK TO s;
SELECT state FROM idem_status('once closed');
ROLLBACK;
SET client_min_messages = warning;
DROP SCHEMA once CASCADE;
RESET client_min_messages;

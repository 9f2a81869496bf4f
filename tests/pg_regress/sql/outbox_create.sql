-- idem_create_outbox: an ordinary table of the caller's, with the documented columns; what does not fit is refused.
\set VERBOSITY verbose
\set SHOW_CONTEXT never
CREATE SCHEMA outbox_create;
SELECT idem_create_outbox('outbox_create.plain');
SELECT idem_create_outbox('outbox_create.plain');
SELECT idem_create_outbox('outbox_create.plain', true, 3, '1 hour', 'news');
SELECT idem_create_outbox('outbox_create.plain', true, 3, '1 hour', 'news');
SELECT ordered, max_attempts, keep_delivered, notify_channel FROM idem_outbox WHERE outbox = 'outbox_create.plain'::regclass;
SELECT attname, atttypid::regtype, attnotnull FROM pg_attribute WHERE attrelid = 'outbox_create.plain'::regclass AND attnum > 0 ORDER BY attnum;
SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'outbox_create.plain'::regclass ORDER BY 1;
-- It is the caller's, not a member of the extension: it stays when that goes.
SELECT relowner::regrole = current_user::regrole AS mine FROM pg_class WHERE oid = 'outbox_create.plain'::regclass;
SELECT count(*) FROM pg_depend WHERE objid = 'outbox_create.plain'::regclass AND deptype = 'e';
-- An unqualified name goes where CREATE TABLE would put it; quoting is SQL's.
SET search_path TO outbox_create, public;
SELECT idem_create_outbox('here');
SELECT idem_create_outbox('"Ünder ""quoted"" name"');
SELECT idem_create_outbox('FOLDED');
RESET search_path;
SELECT oid::regclass FROM pg_class WHERE relnamespace = 'outbox_create'::regnamespace AND relkind = 'r' ORDER BY relname COLLATE "C";
SELECT length(idem_outbox_put('outbox_create."Ünder ""quoted"" name"', 'a', 'b', 'c', '{}')::text);
-- A user's own columns are welcome, in any order, and a fitting table is taken as it is.
CREATE TABLE outbox_create.mine (region text DEFAULT 'eu', LIKE outbox_create.plain INCLUDING ALL);
SELECT idem_outbox_put('outbox_create.mine', 'a', 'b', 'c', '{}');
SELECT idem_create_outbox('outbox_create.mine');
SELECT count(idem_outbox_put('outbox_create.mine', 'a', 'b', 'c', '{}'));
SELECT region, aggregatetype FROM outbox_create.mine;
-- Refused with the difference
CREATE TABLE outbox_create.wrong (LIKE outbox_create.plain);
ALTER TABLE outbox_create.wrong DROP COLUMN headers, ALTER COLUMN payload TYPE text;
SELECT idem_create_outbox('outbox_create.wrong');
CREATE VIEW outbox_create.view AS SELECT * FROM outbox_create.plain;
SELECT idem_create_outbox('outbox_create.view');
CREATE UNLOGGED TABLE outbox_create.unlogged (LIKE outbox_create.plain);
SELECT idem_create_outbox('outbox_create.unlogged');
CREATE TABLE outbox_create.bare AS SELECT (jsonb_populate_record(NULL::idem_outbox_message, '{}')).* LIMIT 0;
SELECT idem_create_outbox('outbox_create.bare');
-- also once it is in use.
SELECT idem_create_outbox('outbox_create.changed');
SELECT count(idem_outbox_put('outbox_create.changed', 'a', 'b', 'c', '{}'));
ALTER TABLE outbox_create.changed DROP COLUMN relay;
SELECT idem_outbox_put('outbox_create.changed', 'a', 'b', 'c', '{}');
ALTER TABLE outbox_create.changed ADD COLUMN relay text;
SELECT count(idem_outbox_put('outbox_create.changed', 'a', 'b', 'c', '{}'));
-- A renamed outbox is the same outbox.
ALTER TABLE outbox_create.changed RENAME TO renamed;
SELECT count(idem_outbox_put('outbox_create.renamed', 'a', 'b', 'c', '{}'));
-- So is one whose schema was renamed, in the same session.
CREATE SCHEMA outbox_create_before;
SELECT idem_create_outbox('outbox_create_before.o');
SELECT count(idem_outbox_put('outbox_create_before.o', 'a', 'b', 'c', '{}'));
ALTER SCHEMA outbox_create_before RENAME TO outbox_create_after;
CREATE SCHEMA outbox_create_before;
SELECT idem_create_outbox('outbox_create_before.o');
SELECT count(idem_outbox_put('outbox_create_after.o', 'a', 'b', 'c', '{}'));
SELECT (SELECT count(*) FROM outbox_create_before.o) AS before, (SELECT count(*) FROM outbox_create_after.o) AS after;
-- Rows of a child are the child's.
CREATE TABLE outbox_create.child () INHERITS (outbox_create_after.o);
INSERT INTO outbox_create.child (id, aggregatetype, aggregateid, type, payload, seq) VALUES ('00000000-0000-8000-8000-000000000001', 'a', 'b', 'c', '{}', 0);
SELECT count(*) FROM idem_outbox_claim('outbox_create_after.o');
SELECT attempts FROM outbox_create.child;
-- What a trigger suppresses is no success.
CREATE FUNCTION outbox_create.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER nothing BEFORE INSERT OR UPDATE ON outbox_create_before.o FOR EACH ROW EXECUTE FUNCTION outbox_create.nothing();
SELECT idem_outbox_put('outbox_create_before.o', 'a', 'b', 'c', '{}');
SELECT * FROM idem_outbox_put_many('outbox_create_before.o', '[{"type": "a", "aggregatetype": "b", "aggregateid": "c", "payload": 1}]');
ALTER TABLE outbox_create_before.o DISABLE TRIGGER nothing;
SELECT count(idem_outbox_put('outbox_create_before.o', 'a', 'b', 'c', '{}'));
ALTER TABLE outbox_create_before.o ENABLE TRIGGER nothing;
SELECT count(*) FROM idem_outbox_claim('outbox_create_before.o');
-- Names that are none
\set VERBOSITY sqlstate
SELECT idem_create_outbox(NULL);
SELECT idem_create_outbox('');
SELECT idem_create_outbox('a.b.c');
SELECT idem_create_outbox('outbox_create.' || repeat('x', 64));
SELECT idem_create_outbox(repeat('é', 32));
SELECT idem_create_outbox('pg_temp.outbox');
SELECT idem_create_outbox('nowhere.outbox');
SELECT idem_create_outbox('outbox_create.x', max_attempts => 0);
SELECT idem_create_outbox('outbox_create.x', keep_delivered => '-1 s');
SELECT idem_create_outbox('outbox_create.x', notify_channel => '');
SELECT to_regclass('outbox_create.x');
-- A name of 63 bytes and its indexes, beside another that begins the same
SELECT idem_create_outbox('outbox_create.' || repeat('y', 63)), idem_create_outbox('outbox_create.' || repeat('y', 62));
-- Not somebody else's table
BEGIN;
CREATE ROLE regress_idem_other;
GRANT USAGE, CREATE ON SCHEMA outbox_create TO regress_idem_other;
SELECT idem_grant('regress_idem_other', 'operate');
SET LOCAL ROLE regress_idem_other;
SAVEPOINT s;
SELECT idem_create_outbox('outbox_create.plain', max_attempts => 99);
ROLLBACK TO s;
SELECT idem_create_outbox('outbox_create.theirs');
ROLLBACK;
SET client_min_messages = warning;
DROP SCHEMA outbox_create, outbox_create_before, outbox_create_after CASCADE;
RESET client_min_messages;

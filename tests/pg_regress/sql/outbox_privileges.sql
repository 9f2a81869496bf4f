-- Whose rights an outbox's functions use: no more than the table's privileges say. All of it is rolled back.
\set VERBOSITY default
-- It names the extension's schema.
\set SHOW_CONTEXT never
BEGIN;
CREATE ROLE "Regress idem app";
CREATE ROLE regress_idem_owner;
CREATE ROLE regress_idem_root SUPERUSER;
CREATE SCHEMA outbox_privileges;
GRANT USAGE ON SCHEMA outbox_privileges TO "Regress idem app", regress_idem_owner;
SELECT idem_grant('"Regress idem app"', 'execute', 'relay'), idem_grant('regress_idem_owner', 'execute', 'relay');
SELECT idem_create_outbox('outbox_privileges.o');
ALTER TABLE outbox_privileges.o OWNER TO regress_idem_owner;
SELECT count(idem_outbox_put('outbox_privileges.o', 'a', 'b', 'c', '{}'));
-- Who may create triggers could do whatever the owner may: refused at once, also in a session that has used the outbox.
GRANT ALL ON ALL TABLES IN SCHEMA outbox_privileges TO "Regress idem app";
SAVEPOINT s;
SELECT idem_outbox_put('outbox_privileges.o', 'a', 'b', 'c', '{}');
ROLLBACK TO s;
GRANT TRIGGER ON outbox_privileges.o TO PUBLIC;
SAVEPOINT s;
SELECT count(*) FROM idem_outbox_claim('outbox_privileges.o');
ROLLBACK TO s;
REVOKE TRIGGER ON outbox_privileges.o FROM "Regress idem app";
SAVEPOINT s;
SET LOCAL ROLE regress_idem_owner;
SELECT count(*) FROM idem_outbox_claim('outbox_privileges.o');
ROLLBACK TO s;
REVOKE TRIGGER ON outbox_privileges.o FROM PUBLIC;
SELECT count(idem_outbox_put('outbox_privileges.o', 'a', 'b', 'c', '{}'));
SELECT count(*) FROM idem_outbox_claim('outbox_privileges.o');
-- A superuser, and a member of the owner, have the owner's rights anyway.
GRANT TRIGGER ON outbox_privileges.o TO regress_idem_root;
SELECT count(idem_outbox_put('outbox_privileges.o', 'a', 'b', 'c', '{}'));
SAVEPOINT s;
GRANT regress_idem_owner TO "Regress idem app";
GRANT TRIGGER ON outbox_privileges.o TO "Regress idem app";
SELECT count(idem_outbox_put('outbox_privileges.o', 'a', 'b', 'c', '{}'));
ROLLBACK TO s;
-- Nor is a table made an outbox while default privileges grant it.
ALTER DEFAULT PRIVILEGES IN SCHEMA outbox_privileges GRANT TRIGGER ON TABLES TO "Regress idem app";
SAVEPOINT s;
SELECT idem_create_outbox('outbox_privileges.by_default');
ROLLBACK TO s;
-- A role that is under the table's policies is refused: they would not be asked.
ALTER TABLE outbox_privileges.o ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON outbox_privileges.o USING (aggregatetype = 'own') WITH CHECK (aggregatetype = 'own');
SET LOCAL ROLE "Regress idem app";
SAVEPOINT s;
SELECT idem_outbox_put('outbox_privileges.o', 'a', 'b', 'c', '{}');
ROLLBACK TO s;
SET LOCAL row_security = off;
SAVEPOINT s;
SELECT count(*) FROM idem_outbox_claim('outbox_privileges.o');
ROLLBACK TO s;
RESET row_security;
-- Its owner is not, unless that is forced; nor is one with BYPASSRLS.
SET LOCAL ROLE regress_idem_owner;
SELECT count(idem_outbox_put('outbox_privileges.o', 'a', 'b', 'c', '{}'));
RESET ROLE;
ALTER ROLE "Regress idem app" BYPASSRLS;
SET LOCAL ROLE "Regress idem app";
SELECT count(idem_outbox_put('outbox_privileges.o', 'a', 'b', 'c', '{}'));
RESET ROLE;
ALTER TABLE outbox_privileges.o FORCE ROW LEVEL SECURITY;
SET LOCAL ROLE regress_idem_owner;
SAVEPOINT s;
SELECT count(idem_outbox_put('outbox_privileges.o', 'a', 'b', 'c', '{}'));
ROLLBACK TO s;
RESET ROLE;
ROLLBACK;

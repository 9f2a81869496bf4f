-- After a restore, a failover or a copy: the database may be older than the world.

CREATE TYPE @extschema@.idem_restored AS (
    turned_unknown bigint
);
COMMENT ON TYPE @extschema@.idem_restored IS 'What idem_after_restore did.';

CREATE FUNCTION @extschema@.idem_after_restore(note text, as_copy boolean = false) RETURNS @extschema@.idem_restored
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_after_restore IS 'The database is older than what happened: every action that is not ended becomes unknown, no attempt of before goes on, and nothing but read_only and idempotent_mutation actions repeats until it is disproved. as_copy also takes a new installation id, so that provider keys are other ones. Waits for all transactions that use the ledger, and keeps others out until it ends. Errors: 22004, 22023, 25006, 42501, 55000.';

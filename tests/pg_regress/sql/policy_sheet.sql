-- idem_policy: one row for each type, as it is in force. The classes are those of a tool's risk: what a repeated effect would do.
\set VERBOSITY sqlstate
SELECT count(*) FROM (
    SELECT idem_register_action_type('policy_sheet project.search', 'read_only')
    UNION ALL SELECT idem_register_action_type('policy_sheet task.assign', 'idempotent_mutation')
    UNION ALL SELECT idem_register_action_type('policy_sheet invoice.create', 'deduplicated_creation', provider_key_window => '24 h', lookup_hint => 'GET /v1/invoices?key=<provider_key>')
    UNION ALL SELECT idem_register_action_type('policy_sheet notice.create', 'deduplicated_creation')
    UNION ALL SELECT idem_register_action_type('policy_sheet seat.reserve', 'reversible', compensation_type => 'seat.release')
    UNION ALL SELECT idem_register_action_type('policy_sheet payment.release', 'irreversible', distinct_approver => 'name', approval_ttl => '30 min')) AS made;
SELECT name, class, when_unknown, requires_approval AS approval, marks_dispatch AS marks, distinct_approver AS apart, compensation_type, lookup_hint
FROM idem_policy WHERE name LIKE 'policy_sheet %' ORDER BY name COLLATE "C";
\x on
SELECT * FROM idem_policy WHERE name = 'policy_sheet payment.release' AND registered_at <= clock_timestamp() AND registered_by = session_user
\gset sheet_
SELECT :'sheet_lease' AS lease, :'sheet_max_lease' AS max_lease, :'sheet_backoff_base' AS backoff_base, :'sheet_backoff_cap' AS backoff_cap, :'sheet_max_attempts' AS max_attempts,
    :'sheet_approval_ttl' AS approval_ttl, :'sheet_provider_key_window' AS provider_key_window, :'sheet_settle_delay' AS settle_delay, :'sheet_probe_interval' AS probe_interval,
    :'sheet_probes_required' AS probes_required, :'sheet_resolve_deadline' AS resolve_deadline, :'sheet_ttl' AS ttl, :'sheet_tombstone_ttl' AS tombstone_ttl, :'sheet_effect' AS effect;
\x off
-- A change shows at once, and what is not named goes back to its default.
SELECT policy_version FROM idem_register_action_type('policy_sheet payment.release', 'irreversible', max_attempts => 1);
SELECT policy_version, max_attempts, distinct_approver, approval_ttl FROM idem_policy WHERE name = 'policy_sheet payment.release';
-- Whoever may read may read it; nobody writes it.
BEGIN;
CREATE ROLE regress_idem_reader;
SELECT idem_grant('regress_idem_reader', 'read');
SET LOCAL ROLE regress_idem_reader;
SELECT count(*) > 0 AS shown, bool_and(when_unknown <> '') AS said FROM idem_policy;
SELECT count(*) FROM idem_action_type;
ROLLBACK;

-- Proposer and approver are two: by role, whatever stands between the login and the call, or by name.
\set VERBOSITY sqlstate
SELECT policy_version FROM idem_register_action_type('approver role', 'irreversible');
SELECT policy_version FROM idem_register_action_type('approver name', 'irreversible', distinct_approver => 'name');
CREATE ROLE regress_idem_app LOGIN;
CREATE ROLE regress_idem_boss LOGIN;
CREATE ROLE regress_idem_hat;
GRANT regress_idem_hat TO regress_idem_app, regress_idem_boss;
SELECT idem_grant('regress_idem_app', 'execute', 'approve'), idem_grant('regress_idem_boss', 'execute', 'approve'), idem_grant('regress_idem_hat', 'execute', 'approve');
-- A wrapper that runs with its owner's rights
CREATE FUNCTION approver_wrapped(key text) RETURNS text LANGUAGE sql SECURITY DEFINER AS $$
    SELECT idem_approve(p.action_id, p.fingerprint) FROM idem_proposals AS p WHERE p.key = approver_wrapped.key $$;
CREATE FUNCTION approver_proposes(key text) RETURNS text LANGUAGE sql SECURITY DEFINER AS $$
    SELECT decision FROM idem_propose(key, '{}', action_type => 'approver role') $$;
GRANT EXECUTE ON FUNCTION approver_wrapped, approver_proposes TO regress_idem_app, regress_idem_boss;

SET SESSION AUTHORIZATION regress_idem_app;
SELECT decision FROM unnest('{1,2}'::text[]) AS n, LATERAL idem_propose('approver ' || n, '{}', action_type => 'approver role');
SELECT approver_proposes('approver 3');
SET ROLE regress_idem_hat;
SELECT decision FROM idem_propose('approver 4', '{}', action_type => 'approver role');
RESET ROLE;
-- The proposer himself: plainly, through the wrapper, under another hat
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'approver 1';
SELECT approver_wrapped('approver 1');
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'approver 3';
SET ROLE regress_idem_hat;
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'approver 1';
RESET ROLE;
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'approver 4';
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_idem_boss;
-- Another login under the same hat is the same role.
SET ROLE regress_idem_hat;
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'approver 4';
RESET ROLE;
-- Two logins: plainly, and through the wrapper
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'approver 1';
SELECT approver_wrapped('approver 2');
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key IN ('approver 3', 'approver 4') ORDER BY key;
RESET SESSION AUTHORIZATION;
SELECT key, event, role, session_role FROM idem_event JOIN idem_action USING (action_id) WHERE action_type = 'approver role' ORDER BY key, n;

-- By name, as a service does that logs in once for everybody
SELECT decision FROM idem_propose('approver 5', '{}', action_type => 'approver name', proposer => 'Ann');
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'approver 5';
SELECT idem_approve(action_id, fingerprint, ' ann ') FROM idem_proposals WHERE key = 'approver 5';
SELECT idem_approve(action_id, fingerprint, ' ') FROM idem_proposals WHERE key = 'approver 5';
SELECT idem_approve(action_id, fingerprint, 'bob') FROM idem_proposals WHERE key = 'approver 5';
-- An action that began without a proposal: who started it stands for the proposer.
SELECT policy_version FROM idem_register_action_type('approver later', 'reversible', marks_dispatch => true);
SET SESSION AUTHORIZATION regress_idem_app;
SELECT granted FROM idem_reserve('approver 6', '{}', action_type => 'approver later', attempt_id => '11111111-1111-4111-8111-111111111111');
SELECT idem_release(idem_action_id('approver 6'), '11111111-1111-4111-8111-111111111111');
RESET SESSION AUTHORIZATION;
SELECT policy_version FROM idem_register_action_type('approver later', 'irreversible');
SET SESSION AUTHORIZATION regress_idem_app;
SELECT decision FROM idem_reserve('approver 6', '{}', action_type => 'approver later');
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'approver 6';
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_idem_boss;
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'approver 6';
RESET SESSION AUTHORIZATION;
-- Whoever came by when its time was over did not ask for it: nobody is on record, so nobody approves alone.
SELECT policy_version FROM idem_register_action_type('approver lapsed', 'deduplicated_creation', lookup_hint => 'by id');
SET SESSION AUTHORIZATION regress_idem_app;
SELECT granted FROM idem_reserve('approver 7', '{}', action_type => 'approver lapsed', lease_seconds => 0.001);
RESET SESSION AUTHORIZATION;
DO $$ BEGIN PERFORM pg_sleep(0.01); END $$;
SELECT unknown FROM idem_sweep();
SELECT policy_version FROM idem_register_action_type('approver lapsed', 'irreversible', lookup_hint => 'by id');
\set VERBOSITY default
SET SESSION AUTHORIZATION regress_idem_app;
SELECT idem_approve(idem_action_id('approver 7'), idem_action_fingerprint(idem_fingerprint('{}'), 'approver lapsed'));
RESET SESSION AUTHORIZATION;
\set VERBOSITY sqlstate
-- Once somebody has looked into it, there are two.
SELECT granted, decision FROM idem_reserve('approver 7', '{}', action_type => 'approver lapsed', can_reconcile => true);
SET SESSION AUTHORIZATION regress_idem_app;
SELECT idem_approve(idem_action_id('approver 7'), idem_action_fingerprint(idem_fingerprint('{}'), 'approver lapsed'));
RESET SESSION AUTHORIZATION;
SELECT event, role = current_user AS mine FROM idem_event WHERE action_id = idem_action_id('approver 7') ORDER BY n;
-- Without the capability neither the view nor the calls
CREATE ROLE regress_idem_other;
SELECT idem_grant('regress_idem_other', 'execute', 'operate', 'read', 'reconcile', 'relay');
SET ROLE regress_idem_other;
SELECT count(*) FROM idem_proposals;
SELECT idem_approve(idem_action_id('approver 1'), '\x');
SELECT idem_reject(idem_action_id('approver 1'));
SELECT idem_withdraw(idem_action_id('approver 1'));
RESET ROLE;
DROP FUNCTION approver_wrapped, approver_proposes;
DROP OWNED BY regress_idem_app, regress_idem_boss, regress_idem_hat, regress_idem_other;
DROP ROLE regress_idem_app, regress_idem_boss, regress_idem_hat, regress_idem_other;

-- idem_register_action_type: each change is a new policy_version; the same again changes nothing.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT (idem_register_action_type('register_action_type', 'reversible')).policy_version;
SELECT class, effect, lease / 1000000 AS lease, max_lease / 1000000 AS max_lease, ttl / 86400000000 AS ttl_days, tombstone_ttl / 86400000000 AS tombstone_days,
    max_attempts, backoff_base / 1000000 AS backoff_base, backoff_cap / 1000000 AS backoff_cap, settle_delay / 1000000 AS settle_delay,
    probe_interval / 1000000 AS probe_interval, probes_required, resolve_deadline / 3600000000 AS deadline_hours, provider_key_window,
    registered_by = session_user AS by_me, registered_at <= clock_timestamp() AS at
FROM idem_action_type WHERE name = 'register_action_type';
SELECT policy_version FROM idem_register_action_type('register_action_type', 'reversible');
SELECT policy_version FROM idem_register_action_type('register_action_type', 'reversible', 'external', '1 min', '60 min', '720 h', '90 days', 5);
SELECT count(*) FROM idem_action_type WHERE name = 'register_action_type';
-- Any difference counts, and a way back is a change, too.
SELECT policy_version, class FROM idem_register_action_type('register_action_type', 'read_only');
SELECT policy_version, effect FROM idem_register_action_type('register_action_type', 'read_only', 'local');
SELECT policy_version, max_attempts FROM idem_register_action_type('register_action_type', 'read_only', 'local', max_attempts => 6);
SELECT policy_version, max_attempts FROM idem_register_action_type('register_action_type', 'reversible');
SELECT policy_version, class, effect FROM idem_action_type WHERE name = 'register_action_type' ORDER BY policy_version;
-- The name is what it is, letter for letter.
SELECT policy_version FROM idem_register_action_type('Register_Action_Type', 'reversible');
SELECT policy_version FROM idem_register_action_type(repeat('n', 100), 'irreversible');

-- Refused, and nothing is changed.
SELECT count(*) AS types FROM idem_action_type \gset before_
SELECT policy_version FROM idem_register_action_type(NULL, 'read_only');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', NULL);
SELECT policy_version FROM idem_register_action_type('', 'read_only');
SELECT policy_version FROM idem_register_action_type(repeat('n', 101), 'read_only');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'Read_Only');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', 'remote');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', lease => '0 s');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', lease => '-1 s');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', lease => '2 h');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', max_lease => '59 s');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', ttl => '-1 day');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', ttl => '11 years');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', tombstone_ttl => '-1 day');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', max_attempts => 0);
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', backoff_base => '0 s');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', backoff_cap => '0.5 s');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', settle_delay => '-1 s');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', probe_interval => '-1 s');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', probes_required => 0);
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', resolve_deadline => '-1 s');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'reversible', requires_approval => true, marks_dispatch => false);
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'irreversible', marks_dispatch => false);
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'reversible', 'local', marks_dispatch => true);
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'reversible', 'local', requires_approval => true);
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'reversible', approval_ttl => '0 s');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'reversible', approval_ttl => '-1 s');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'reversible', distinct_approver => 'nobody');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'deduplicated_creation', provider_key_window => '-1 s');
SELECT kind, policy_version FROM unnest('{read_only,idempotent_mutation,reversible,irreversible}'::text[]) AS kind,
    LATERAL idem_register_action_type('register_action_type bad', kind, provider_key_window => '1 s');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'reversible', lookup_hint => ' ');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'reversible', lookup_hint => repeat('h', 256));
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'reversible', compensation_type => '');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'reversible', compensation_type => 'register_action_type bad');
SELECT policy_version FROM idem_register_action_type('register_action_type bad', 'read_only', compensation_type => 'undo');
SELECT count(*) = :before_types AS unchanged FROM idem_action_type;

-- What a class asks for by itself, and what was said instead
SELECT kind, t.requires_approval, t.marks_dispatch
FROM unnest('{read_only,idempotent_mutation,deduplicated_creation,reversible,irreversible}'::text[]) AS kind,
    LATERAL idem_register_action_type('register_action_type ' || kind, kind) AS t;
SELECT requires_approval, marks_dispatch FROM idem_register_action_type('register_action_type local', 'irreversible', 'local');
SELECT requires_approval, marks_dispatch FROM idem_register_action_type('register_action_type light', 'irreversible', requires_approval => false);
SELECT requires_approval, marks_dispatch FROM idem_register_action_type('register_action_type none', 'irreversible', requires_approval => false, marks_dispatch => false);
SELECT requires_approval, marks_dispatch FROM idem_register_action_type('register_action_type strict', 'read_only', requires_approval => true);

-- Sessions notice a change at once: the lease, and the largest one that may be asked for.
SELECT policy_version FROM idem_register_action_type('register_action_type seen', 'read_only', lease => '10 s', max_lease => '20 s');
SELECT lease_expires_at <= clock_timestamp() + interval '10 s' AS ten FROM idem_reserve('register_action_type ten', '{}', action_type => 'register_action_type seen');
SELECT granted FROM idem_reserve('register_action_type twenty', '{}', action_type => 'register_action_type seen', lease_seconds => 21);
SELECT policy_version FROM idem_register_action_type('register_action_type seen', 'read_only', lease => '30 s', max_lease => '40 s');
SELECT granted, lease_expires_at > clock_timestamp() + interval '15 s' AS more FROM idem_reserve('register_action_type twenty', '{}', action_type => 'register_action_type seen', lease_seconds => 21);
-- also in the transaction that made it, and not when that is rolled back.
BEGIN;
SELECT policy_version FROM idem_register_action_type('register_action_type seen', 'read_only', lease => '50 s', max_lease => '50 s');
SELECT lease_expires_at > clock_timestamp() + interval '45 s' AS fifty FROM idem_reserve('register_action_type fifty', '{}', action_type => 'register_action_type seen');
ROLLBACK;
SELECT lease_expires_at > clock_timestamp() + interval '35 s' AS fifty FROM idem_reserve('register_action_type fifty', '{}', action_type => 'register_action_type seen');
SELECT policy_version FROM idem_register_action_type('register_action_type seen', 'read_only', lease => '50 s', max_lease => '50 s');

-- An attempt keeps the policy it was granted under; the next one gets the new one.
SELECT policy_version FROM idem_register_action_type('register_action_type kept', 'reversible', ttl => '1 day');
SELECT granted FROM idem_reserve('register_action_type kept', '{}', action_type => 'register_action_type kept', attempt_id => :'one');
SELECT granted FROM idem_reserve('register_action_type next', '{}', action_type => 'register_action_type kept', attempt_id => :'one');
SELECT policy_version FROM idem_register_action_type('register_action_type kept', 'reversible', ttl => '2 days');
SELECT idem_commit(idem_action_id('register_action_type kept'), :'one');
SELECT idem_release(idem_action_id('register_action_type next'), :'one');
SELECT granted FROM idem_reserve('register_action_type next', '{}', action_type => 'register_action_type kept', attempt_id => :'two');
SELECT idem_commit(idem_action_id('register_action_type next'), :'two');
SELECT key, policy_version, extract(day FROM expires_at - ended_at) AS days_kept FROM idem_actions
WHERE key IN ('register_action_type kept', 'register_action_type next') ORDER BY key;
-- The version of a name nobody registered is 0.
SELECT granted FROM idem_reserve('register_action_type none', '{}', action_type => 'register_action_type nobody');
SELECT policy_version FROM idem_actions WHERE key = 'register_action_type none';

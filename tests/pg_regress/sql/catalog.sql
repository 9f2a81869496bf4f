-- What CREATE EXTENSION makes: described, pinned, closed, dumped, and shaped as the contract says.
\set members '(SELECT d.classid, d.objid FROM pg_depend AS d JOIN pg_extension AS e ON d.refclassid = ''pg_extension''::regclass AND d.refobjid = e.oid WHERE e.extname = ''pg_idem'' AND d.deptype = ''e'') AS members'
-- Every function, table, view, index and type of its own has a comment.
SELECT p.oid::regprocedure AS function FROM :members JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND objid = p.oid
WHERE obj_description(p.oid, 'pg_proc') IS NULL ORDER BY 1;
SELECT c.oid::regclass AS relation, c.relkind FROM :members JOIN pg_class AS c ON classid = 'pg_class'::regclass AND objid = c.oid
WHERE c.relkind <> 'c' AND obj_description(c.oid, 'pg_class') IS NULL ORDER BY 1;
SELECT i.indexrelid::regclass AS index FROM :members JOIN pg_index AS i ON classid = 'pg_class'::regclass AND objid = i.indrelid
WHERE obj_description(i.indexrelid, 'pg_class') IS NULL ORDER BY i.indexrelid::regclass::text COLLATE "C";
SELECT t.oid::regtype AS type FROM :members JOIN pg_type AS t ON classid = 'pg_type'::regclass AND objid = t.oid JOIN pg_class AS c ON c.oid = t.typrelid AND c.relkind = 'c'
WHERE obj_description(t.oid, 'pg_type') IS NULL ORDER BY 1;
SELECT obj_description(oid, 'pg_extension') IS NOT NULL AS extension FROM pg_extension WHERE extname = 'pg_idem';

-- The functions that users call: parameters in order, result, volatility, parallel safety, strictness
SELECT proname AS name, array_to_string(proargnames[1:pronargs], ' ') AS parameters, pronargs - pronargdefaults AS required, prorettype::regtype AS result,
    provolatile AS volatile, proparallel AS parallel, proisstrict AS strict
FROM :members JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND objid = p.oid
WHERE proname IN ('idem_reserve', 'idem_commit', 'idem_mark_unknown', 'idem_fail', 'idem_renew', 'idem_release', 'idem_add_evidence', 'idem_resolve', 'idem_status',
    'idem_status_by_id', 'idem_action_id', 'idem_key', 'idem_canonical', 'idem_fingerprint', 'idem_fingerprint_text', 'idem_action_fingerprint', 'idem_sweep', 'idem_dispatch',
    'idem_propose', 'idem_approve', 'idem_reject', 'idem_withdraw', 'idem_cancel', 'idem_register_action_type') ORDER BY proname COLLATE "C";
SELECT proname, oidvectortypes(proargtypes) FROM pg_proc WHERE proname IN ('idem_reserve', 'idem_resolve', 'idem_fail') ORDER BY 1;
-- granted is the first column.
SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'idem_reservation'::regclass AND attnum > 0;
-- Nothing returns void or interval.
SELECT p.oid::regprocedure FROM :members JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND objid = p.oid
WHERE p.prokind = 'f' AND prorettype IN ('void'::regtype, 'interval'::regtype);

-- Nothing is granted to PUBLIC.
SELECT p.oid::regprocedure FROM :members JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND objid = p.oid
WHERE proacl IS NULL OR EXISTS (SELECT FROM aclexplode(proacl) WHERE grantee = 0);
SELECT c.oid::regclass FROM :members JOIN pg_class AS c ON classid = 'pg_class'::regclass AND objid = c.oid
WHERE relkind IN ('r', 'v') AND EXISTS (SELECT FROM aclexplode(relacl) WHERE grantee = 0);
-- Whatever is not C pins its search_path, except the procedure, which commits, and idem_create_outbox, which asks where the caller would create; they name no operator or function without its schema.
SELECT proname FROM :members JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND objid = p.oid JOIN pg_language AS l ON l.oid = prolang
WHERE l.lanname <> 'c' AND NOT coalesce(proconfig::text LIKE '%search_path=pg_catalog, pg_temp%', false) ORDER BY 1;
-- The library is not asked for functions by users who may not: no C function is SECURITY DEFINER without a pinned path.
SELECT proname FROM :members JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND objid = p.oid
WHERE prosecdef AND proconfig IS NULL ORDER BY 1;

-- The ledger has exactly two indexes, of which the second names a column written at INSERT only.
SELECT i.indexrelid::regclass AS index, pg_get_indexdef(i.indexrelid, 1, true) AS column, i.indisunique, i.indpred, i.indnatts
FROM pg_index AS i WHERE i.indrelid = 'idem_action'::regclass ORDER BY i.indexrelid::regclass::text COLLATE "C";
-- No indexed text depends on the database's collation.
SELECT a.attrelid::regclass AS index, a.attname FROM :members JOIN pg_index AS i ON classid = 'pg_class'::regclass AND objid = i.indrelid
JOIN pg_attribute AS a ON a.attrelid = i.indexrelid JOIN pg_collation AS c ON c.oid = a.attcollation WHERE c.collname <> 'C';
-- Every table but the sweep's cursors is dumped whole; there are no sequences.
SELECT c.relname, c.relkind, c.oid = ANY (extconfig) AS dumped, extcondition[array_position(extconfig, c.oid)] AS condition
FROM :members JOIN pg_class AS c ON classid = 'pg_class'::regclass AND objid = c.oid, pg_extension WHERE extname = 'pg_idem' AND c.relkind IN ('r', 'S') ORDER BY c.relname COLLATE "C";
-- Fixed where it was installed; for superusers to install.
SELECT extrelocatable FROM pg_extension WHERE extname = 'pg_idem';
SELECT superuser, trusted, relocatable, schema FROM pg_available_extension_versions WHERE name = 'pg_idem' AND installed;

"""Replay against a bare primary-key SELECT, in time and in what it writes."""

from harness import Variant, check, cluster, compare, head, rounds, say, show
from scripts import variables

ROWS = 20_000
PICK = f"\\set key random(1, {ROWS})\n"
REPLAY = "SELECT * FROM idem_reserve(:key, :request, 'acme', 'refund');\n"
# The fifteen columns of a replay, from the ledger's own row. The row is found under an id made of a number, because
# pgbench cannot compute the real one; lpad and to_hex cost less than a tenth of a microsecond.
OURS = """SELECT false AS granted, 'replay' AS decision, action_id, NULL::uuid AS attempt_id, NULL::bigint AS fence,
 attempt, 'committed' AS state, NULL::timestamptz AS lease_expires_at, NULL::float8 AS retry_after_seconds, response,
 'stored' AS response_state, resource_id, external_request_id, error, NULL::uuid AS provider_key
 FROM idem_action WHERE action_id = lpad(to_hex(:key::int), 32, '0')::uuid;
"""
# The same by hand: what a replay needs of the seeds' table, with as many columns.
HAND = """SELECT false AS granted, 'replay' AS decision, idempotency_key, NULL::uuid AS attempt_id,
 NULL::bigint AS fence, 1 AS attempt, status, NULL::timestamptz AS lease_expires_at,
 NULL::float8 AS retry_after_seconds, response_json, 'stored' AS response_state, resource_id,
 NULL::text AS external_request_id, NULL::jsonb AS error, NULL::uuid AS provider_key
 FROM ai_action_idempotency WHERE tenant_id = 'acme' AND idempotency_key = :key;
"""


def run(options):
    given = variables(300)
    with cluster(fsync=False) as server:
        with server.connect() as conn:
            fill(conn, given)
        head("replay, response 300 bytes")
        variants = [Variant("pg_idem", PICK + REPLAY, given), Variant("SELECT from the ledger", PICK + OURS, given),
                    Variant("SELECT from the seeds' table", PICK + HAND, given)]
        figures = rounds(server, variants, options, seed=3)
        show(figures)
        compare(options, figures, "pg_idem", "SELECT from the ledger", "replay / SELECT by primary key", 0.80)
        compare(options, figures, "pg_idem", "SELECT from the seeds' table", "replay / SELECT from the seeds' table")
        writes(server, options, given)


def fill(conn, given, first=1, last=ROWS, synthetic=True):
    conn.execute("""
        DO $$ DECLARE r record; BEGIN
          FOR n IN %d..%d LOOP
            SELECT * INTO r FROM idem_reserve(n::text, '%s', 'acme', 'refund');
            COMMIT;
            PERFORM idem_commit(r.action_id, r.attempt_id, '%s', '%s');
            COMMIT;
          END LOOP;
        END $$""" % (first, last, given["request"], given["response"], given["resource"]))
    if not synthetic:
        return
    columns = conn.execute("""
        SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
        WHERE attrelid = 'idem_action'::regclass AND attnum > 1 AND NOT attisdropped""").fetchone()[0]
    conn.execute(f"""
        INSERT INTO idem_action (action_id, {columns})
        SELECT lpad(to_hex(key::int), 32, '0')::uuid, {columns} FROM idem_action""")
    conn.execute("""
        INSERT INTO ai_action_idempotency SELECT tenant, key, action_type, encode(fingerprint, 'hex'), 'committed',
            response, resource_id, created_at, expires_at FROM idem_action WHERE get_byte(uuid_send(action_id), 6) >= 128""")
    conn.execute("VACUUM ANALYZE idem_action")
    conn.execute("VACUUM ANALYZE ai_action_idempotency")


def writes(server, options, given):
    """WAL and transaction id of the first and the second look at rows that were just updated."""
    head("replay: what it writes")
    half = 2000
    with server.connect() as conn:
        # Two stretches of pages in the same state: updated, not read since.
        fill(conn, given, ROWS + 1, ROWS + half, synthetic=False)
        fill(conn, given, ROWS + half + 1, ROWS + 2 * half, synthetic=False)
        select = "SELECT response FROM idem_action WHERE action_id = idem_action_id(%s, 'acme')"
        replay = "SELECT decision, pg_current_xact_id_if_assigned() FROM idem_reserve(%s, %s, 'acme', 'refund')"

        def read(first, replaying):
            before = conn.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0]
            for n in range(first, first + half):
                if replaying:
                    decision, xid = conn.execute(replay, (str(n), given["request"])).fetchone()
                    assert decision == "replay" and xid is None, (decision, xid)
                else:
                    conn.execute(select, (str(n),)).fetchone()
            return int(conn.execute("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", (before,)).fetchone()[0])

        first = [read(ROWS + 1, False), read(ROWS + half + 1, True)]
        second = [read(ROWS + 1, False), read(ROWS + half + 1, True)]
    say(f"   WAL of {half} first reads of fresh rows: SELECT {first[0]} B, replay {first[1]} B; "
        f"of second reads: SELECT {second[0]} B, replay {second[1]} B; no transaction id in any replay")
    # A little room: where a page ends differs between the two stretches.
    check(options, "WAL of first replays / of first SELECTs <= 1.02", first[1] / max(1, first[0]),
          first[1] <= first[0] * 1.02 + 1000)
    check(options, "WAL of second replays, bytes, <= second SELECTs", second[1], second[1] <= second[0] + 200, "{}")

"""Replay against a bare primary-key SELECT, in time and in what it writes."""

from fill import HAND, fill, picked
from harness import Variant, check, cluster, compare, head, rounds, say, show
from scripts import variables

ROWS = 20_000
REPLAY = "SELECT * FROM idem_reserve(:key, :request, 'acme', 'refund');\n"
# The fifteen columns of a replay from the ledger's row. pgbench cannot compute a real action_id, so this reads a copy
# of the row under an id made of a number; lpad and to_hex cost less than a tenth of a microsecond.
LEDGER = """SELECT false AS granted, 'replay' AS decision, action_id, NULL::uuid AS attempt_id, NULL::bigint AS fence,
 attempt, 'committed' AS state, NULL::timestamptz AS lease_expires_at, NULL::float8 AS retry_after_seconds, response,
 'stored' AS response_state, resource_id, external_request_id, error, NULL::uuid AS provider_key
 FROM idem_action WHERE action_id = lpad(to_hex(:n::int), 32, '0')::uuid;
"""
# The same by hand: what a replay needs of the seeds' table, with as many columns.
SEEDS = """SELECT false AS granted, 'replay' AS decision, idempotency_key, NULL::uuid AS attempt_id,
 NULL::bigint AS fence, 1 AS attempt, status, NULL::timestamptz AS lease_expires_at,
 NULL::float8 AS retry_after_seconds, response_json, 'stored' AS response_state, resource_id,
 NULL::text AS external_request_id, NULL::jsonb AS error, NULL::uuid AS provider_key
 FROM ai_action_idempotency WHERE tenant_id = 'acme' AND idempotency_key = :key;
"""


def run(options):
    small(options)
    writes(options)


def small(options):
    with cluster(fsync=False) as server:
        fill(server, ROWS, ("idem_action", HAND))
        with server.connect() as conn:
            copy_ledger(conn, ROWS, ROWS)
        head(f"replay, response 300 bytes, {ROWS:,} actions")
        pick, given = picked(ROWS), variables(300)
        same, seeds = "SELECT of the ledger's row", "SELECT from the seeds' table"
        figures = rounds(server, [Variant("pg_idem", pick + REPLAY, given), Variant(same, pick + LEDGER, given),
                                  Variant(seeds, pick + SEEDS, given)], options, seed=3)
        show(figures)
        compare(options, figures, "pg_idem", same, "replay / SELECT of the same row", 0.80)
        compare(options, figures, "pg_idem", seeds, "replay / SELECT from the seeds' table")


def copy_ledger(conn, rows, newest):
    """The newest of the ledger's rows once more, under ids that pgbench can write: the row's number."""
    columns = conn.execute("""
        SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
        WHERE attrelid = 'idem_action'::regclass AND attnum > 1 AND NOT attisdropped""").fetchone()[0]
    conn.execute(f"""
        INSERT INTO idem_action (action_id, {columns})
        SELECT lpad(to_hex({rows} + 1 - row_number() OVER (ORDER BY visit_at DESC)), 32, '0')::uuid, {columns}
        FROM idem_action ORDER BY visit_at DESC LIMIT {newest}""")
    conn.execute("ANALYZE idem_action")
    # Sets the hint bits of the copies.
    conn.execute(f"SELECT count(*) FROM idem_action WHERE action_id <= lpad(to_hex({rows}), 32, '0')::uuid")


def writes(options):
    """WAL and transaction ids of the first and the second look at rows that were just updated."""
    rows, given = 4000, variables(300)
    # Nothing but the sessions writes WAL at this level.
    with cluster(fsync=False, wal_level="minimal", max_wal_senders=0) as server:
        head("replay: what it writes")
        with server.connect() as conn:
            conn.execute("""
                DO $$ DECLARE r record; BEGIN
                  FOR n IN 1..%d LOOP
                    SELECT * INTO r FROM idem_reserve(n::text, '%s', 'acme', 'refund');
                    COMMIT;
                    PERFORM idem_commit(r.action_id, r.attempt_id, '%s', '%s');
                    COMMIT;
                  END LOOP;
                END $$""" % (rows, given["request"], given["response"], given["resource"]))
        # The same pages twice, bit for bit: updated, and not read since.
        with server.connect("template1") as conn:
            for copy in ("selects", "replays"):
                conn.execute(f"CREATE DATABASE {copy} TEMPLATE postgres")
            conn.execute("CHECKPOINT")
        selects = written(server, "selects", "SELECT response, pg_current_xact_id_if_assigned() FROM idem_action "
                          "WHERE action_id = idem_action_id(%(key)s, 'acme')", rows, given)
        replays = written(server, "replays", "SELECT response, pg_current_xact_id_if_assigned() "
                          "FROM idem_reserve(%(key)s, %(request)s, 'acme', 'refund')", rows, given)
    for look, (select, replay) in enumerate(zip(selects, replays)):
        check(options, f"WAL of {rows} {('first', 'second')[look]} replays, bytes, <= {select[0]} of as many SELECTs",
              replay[0], replay[0] <= select[0], "{}")
    check(options, "transaction ids taken by replays = 0", replays[0][1] + replays[1][1],
          not any(ids for _, ids in replays), "{}")


def written(server, dbname, query, rows, given):
    """Bytes of WAL, and how many statements took a transaction id, of each of two looks at all rows."""
    found = []
    with server.connect(dbname) as conn:
        # The catalogs' pages are new too: whoever reads them first tidies them.
        conn.execute(query, {"key": "1", "request": given["request"]})
        for _ in range(2):
            start = conn.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0]
            ids = 0
            for n in range(2, rows + 1):
                response, xid = conn.execute(query, {"key": str(n), "request": given["request"]}).fetchone()
                assert response, n
                ids += xid is not None
            end = conn.execute("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", (start,)).fetchone()[0]
            found.append((int(end), ids))
    say(f"   {dbname}: {found[0][0]} B of WAL for the first look at each row, {found[1][0]} B for the second")
    return found

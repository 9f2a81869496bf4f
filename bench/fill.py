"""Rows that stand in the tables before anything is measured: of the shape that real ones have, made fast.

One action is carried out for real; its row is the pattern of all others. Keys are numbers spread over the same range
as those the scripts draw, so that a new key falls between old ones in either index, and pgbench can compute the key of
the n-th row (see `picked`).
"""

import threading

from harness import say
from scripts import variables

# A prime above any number of rows, a factor near its golden section, and the width of one step: n → key is one to one.
PRIME, FACTOR, STEP = 10_000_019, 6_180_347, 400_000_000_000

HAND, FUNCTIONS = "ai_action_idempotency", "ai_action_functions"


def picked(rows, first=1):
    """pgbench's lines that draw the key of one of the rows."""
    return (f"\\set n random({first}, {rows})\n"
            f"\\set key (:n * {FACTOR} % {PRIME}) * {STEP}\n")


def fill(server, rows, tables=("idem_action", HAND, FUNCTIONS), days_old=0, rebuild=False, dbname="postgres"):
    """Makes `rows` committed actions, the last `days_old` days old, in each of the tables; empties them before.

    With `rebuild` the indexes are made afterwards, and under wal_level minimal nothing is logged.
    """
    assert rows < PRIME
    with server.connect(dbname) as conn:
        pattern(conn)
    jobs = [threading.Thread(target=one_table, args=(server, dbname, table, rows, days_old, rebuild)) for table in tables]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    with server.connect(dbname) as conn:
        for table in tables:
            found = conn.execute(f"SELECT count(*), pg_table_size('{table}') FROM {table}").fetchone()
            assert found[0] == rows, (table, found)
            say(f"   {table}: {rows:,} rows, {found[1] / rows:.0f} B each on the heap")
        conn.execute("CHECKPOINT")


def pattern(conn):
    """One action, carried out, and its rows put aside."""
    given = variables(300)
    conn.execute("DROP TABLE IF EXISTS pattern, hand_pattern")
    action, attempt = conn.execute("SELECT action_id, attempt_id FROM idem_reserve('pattern', %s, 'acme', 'refund')",
                                   (given["request"],)).fetchone()
    conn.execute("SELECT idem_commit(%s, %s, %s, %s)", (action, attempt, given["response"], given["resource"]))
    conn.execute("CREATE TABLE pattern AS SELECT * FROM idem_action WHERE key = 'pattern'")
    conn.execute("DELETE FROM idem_action WHERE key = 'pattern'")
    conn.execute(f"""CREATE TABLE hand_pattern AS SELECT tenant AS tenant_id, key AS idempotency_key, action_type,
        '{given["fingerprint"]}'::text AS request_fingerprint, 'committed'::text AS status, response AS response_json,
        resource_id, created_at, expires_at FROM pattern""")


def one_table(server, dbname, table, rows, days_old, rebuild):
    # The rows came one after the other, a millisecond apart.
    age = f"(interval '{days_old} days' + ({rows} - n) * interval '1 ms')"
    key = f"((n::bigint * {FACTOR} % {PRIME}) * {STEP})::text"
    if table == "idem_action":
        source = "pattern"
        own = {"action_id": f"idem_action_id({key}, 'acme')", "key": key, "attempt_id": "gen_random_uuid()",
               "fence": "fence - rows.n", **{name: f"{name} - {age}" for name in
                                            ("created_at", "visit_at", "ended_at", "expires_at")}}
    else:
        source = "hand_pattern"
        own = {"idempotency_key": key, **{name: f"{name} - {age}" for name in ("created_at", "expires_at")}}
    with server.connect(dbname, autocommit=False) as conn:
        columns = [row[0] for row in conn.execute("""SELECT attname FROM pg_attribute
            WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum""", (table,))]
        remake = indexes(conn, table) if rebuild else []
        # In one transaction with the INSERT, so that wal_level minimal has nothing to log.
        conn.execute(f"TRUNCATE {table}")
        for drop, _ in remake:
            conn.execute(drop)
        conn.execute(f"""INSERT INTO {table} ({', '.join(columns)})
            SELECT {', '.join(own.get(name, name) for name in columns)}
            FROM {source}, generate_series(1, {rows}) AS rows (n)""")
        conn.commit()
        for _, make in remake:
            conn.execute(make)
            conn.commit()
        conn.execute(f"ANALYZE {table}")
        conn.commit()
        if not rebuild:
            settle(conn, table)


def settle(conn, table):
    """Reads every row, as somebody who comes later: that sets its hint bits.

    Not VACUUM: the free space it puts on record would send the next inserts to old pages, one to each, which makes
    a page image out of every insert until all have had theirs.
    """
    conn.execute("SET enable_indexonlyscan = off")
    conn.execute(f"SELECT count(*) FROM {table}")


def indexes(conn, table):
    """Statements that drop, and that make again, each index of the table, under its name."""
    conn.execute("SET LOCAL maintenance_work_mem = '512MB'")
    found = conn.execute("""
        SELECT i.indexrelid::regclass::text, c.conname, pg_get_constraintdef(c.oid), pg_get_indexdef(i.indexrelid)
        FROM pg_index i LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.conrelid = i.indrelid
        WHERE i.indrelid = %s::regclass""", (table,)).fetchall()
    return [(f"ALTER TABLE {table} DROP CONSTRAINT {constraint}",
             f"ALTER TABLE {table} ADD CONSTRAINT {constraint} {definition}") if constraint
            else (f"DROP INDEX {index}", create) for index, constraint, definition, create in found]

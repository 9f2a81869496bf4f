"""Messages: put, claim and ack against a table by hand, pgmq and PgQ; claims under an old snapshot; the inbox.

Every variant makes the same round trips for a batch: one transaction to put it, one to claim, one to acknowledge. The
rows that a claim returns are put together on the server, so that pgbench can hand their ids on.

pgmq is an equivalent of ours, written from its documentation (a table with msg_id, read_ct, enqueued_at, vt and message,
an index on vt, and the functions send_batch, read and delete in PL/pgSQL with dynamic SQL): no registry here has it.
PgQ is Debian's postgresql-15-pgq3, measured where the server has it; its ticker is called by the script, one transaction
more, and its tables are rotated between rounds.
"""

import statistics
import time

import harness
from harness import Variant, check, cluster, compare, head, pgbench, say, show

PAYLOAD = '{"order": "ord_58213", "amount": 4200, "currency": "eur", "items": [{"sku": "A-1", "qty": 2}], "note": "' + \
    "x" * 100 + '"}'

TABLES = """
CREATE SCHEMA app;
SELECT idem_create_outbox('app.outbox');
CREATE TABLE app.plain (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, aggregatetype text NOT NULL, aggregateid text NOT NULL,
    type text NOT NULL, payload jsonb NOT NULL, headers jsonb, created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts int NOT NULL DEFAULT 0, lease_expires_at timestamptz);
CREATE TABLE app.q_pgmq (
    msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, read_ct int NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL DEFAULT now(), vt timestamptz NOT NULL, message jsonb, headers jsonb);
CREATE INDEX ON app.q_pgmq (vt);
CREATE FUNCTION app.send_batch(queue text, msgs jsonb[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$ BEGIN
    RETURN QUERY EXECUTE format('INSERT INTO app.%I (vt, message) SELECT clock_timestamp(), unnest($1) RETURNING msg_id',
        'q_' || queue) USING msgs;
END $$;
CREATE FUNCTION app.read(queue text, vt int, qty int) RETURNS TABLE (msg_id bigint, read_ct int, enqueued_at timestamptz,
    vt_ timestamptz, message jsonb, headers jsonb) LANGUAGE plpgsql AS $$ BEGIN
    RETURN QUERY EXECUTE format('WITH cte AS (SELECT msg_id FROM app.%1$I WHERE vt <= clock_timestamp()
        ORDER BY msg_id ASC LIMIT $1 FOR UPDATE SKIP LOCKED)
        UPDATE app.%1$I AS m SET vt = clock_timestamp() + $2, read_ct = read_ct + 1 FROM cte WHERE m.msg_id = cte.msg_id
        RETURNING m.msg_id, m.read_ct, m.enqueued_at, m.vt, m.message, m.headers', 'q_' || queue)
        USING qty, make_interval(secs => vt);
END $$;
CREATE FUNCTION app.delete(queue text, ids bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$ BEGIN
    RETURN QUERY EXECUTE format('DELETE FROM app.%I WHERE msg_id = ANY ($1) RETURNING msg_id', 'q_' || queue) USING ids;
END $$;
CREATE TABLE app.inbox (message_id text, consumer text, tenant text, first_seen_at timestamptz NOT NULL,
    payload bytea, PRIMARY KEY (message_id, consumer, tenant));
"""

OURS = """SELECT count(*) FROM idem_outbox_put_many('app.outbox', :messages);
SELECT coalesce(min(claim_id::text), '00000000-0000-0000-0000-000000000000') AS claim, coalesce(array_agg(id), '{}') AS ids,
 count(payload) AS found FROM idem_outbox_claim('app.outbox', :n) \\gset
SELECT count(*) FROM idem_outbox_ack_many('app.outbox', :claim, :ids);
"""
PLAIN = """INSERT INTO app.plain (aggregatetype, aggregateid, type, payload, headers)
 SELECT m->>'aggregatetype', m->>'aggregateid', m->>'type', m->'payload', m->'headers' FROM jsonb_array_elements(:messages) AS m;
WITH claimed AS (UPDATE app.plain SET attempts = attempts + 1, lease_expires_at = clock_timestamp() + interval '30 s'
 WHERE id IN (SELECT id FROM app.plain WHERE lease_expires_at IS NULL OR lease_expires_at <= clock_timestamp()
 ORDER BY id LIMIT :n FOR UPDATE SKIP LOCKED) RETURNING id, payload)
 SELECT coalesce(array_agg(id), '{}') AS ids, count(payload) AS found FROM claimed \\gset
DELETE FROM app.plain WHERE id = ANY (:ids);
"""
PGMQ = """SELECT count(*) FROM app.send_batch('pgmq', ARRAY(SELECT jsonb_array_elements(:messages)));
SELECT coalesce(array_agg(msg_id), '{}') AS ids, count(message) AS found FROM app.read('pgmq', 30, :n) \\gset
SELECT count(*) FROM app.delete('pgmq', :ids);
"""
PGQ = """SELECT count(pgq.insert_event('q', 't', m::text)) FROM jsonb_array_elements(:messages) AS m;
SELECT pgq.ticker('q');
SELECT coalesce(pgq.next_batch('q', 'c'), 0) AS batch \\gset
SELECT (SELECT count(ev_data) FROM pgq.get_batch_events(:batch)), pgq.finish_batch(:batch);
"""
# One message is put as one.
ONE = {
    "pg_idem": "SELECT idem_outbox_put('app.outbox', 'created', 'order', '1', :payload);",
    "SKIP LOCKED by hand": "INSERT INTO app.plain (aggregatetype, aggregateid, type, payload) VALUES ('order', '1', 'created', :payload);",
    "pgmq, equivalent": "SELECT count(*) FROM app.send_batch('pgmq', ARRAY[:payload::jsonb]);",
    "PgQ": "SELECT pgq.insert_event('q', 'created', :payload);",
}
MESSAGE = """\\set id case when random(1, 100) <= :known then random(1, 1000) else random(1001, 4000000000000000000) end
"""
INBOX = MESSAGE + "SELECT decision FROM idem_inbox_accept('c', :id);\n"
BY_HAND = MESSAGE + """INSERT INTO app.inbox (message_id, consumer, tenant, first_seen_at) VALUES (:id, 'c', '', clock_timestamp()) ON CONFLICT DO NOTHING;
"""


# Plans are made while the tables are empty, and kept. Without this the others are at times left with one that reads whole
# tables, and are no measure. PgQ plans each look for itself.
ALONG_INDEXES = {"enable_seqscan": "off", "enable_bitmapscan": "off"}


def messages(size):
    one = '{"type": "created", "aggregatetype": "order", "aggregateid": "%d", "payload": ' + PAYLOAD + "}"
    return "[" + ", ".join(one % n for n in range(size)) + "]"


def run(options):
    batches(options)
    old_snapshot(options)
    inbox(options)


def has_pgq(conn):
    return conn.execute("SELECT count(*) FROM pg_available_extensions WHERE name = 'pgq'").fetchone()[0]


def batches(options):
    with cluster(fsync=False) as server, server.connect() as conn:
        conn.execute(TABLES)
        pgq = has_pgq(conn)
        if pgq:
            conn.execute("CREATE EXTENSION pgq")
            conn.execute("SELECT pgq.create_queue('q'), pgq.register_consumer('q', 'c')")
            conn.execute("SELECT pgq.set_queue_config('q', 'ticker_max_count', '1'), pgq.set_queue_config('q', 'ticker_max_lag', '0')")
        for size in (1, 10, 100):
            for relays in (1, 4):
                given = {"messages": messages(size), "n": size}
                variants = [Variant("pg_idem", OURS, given),
                            Variant("SKIP LOCKED by hand", PLAIN, given, settings=ALONG_INDEXES),
                            Variant("pgmq, equivalent", PGMQ, given, settings=ALONG_INDEXES)]
                # A consumer's batch is one client's; several would need cooperating consumers.
                if pgq and relays == 1:
                    variants.append(Variant("PgQ", PGQ, given))
                if size == 1:
                    for variant in variants:
                        variant.script = ONE[variant.name] + variant.script[variant.script.index(";") + 1:]
                        variant.variables = {"payload": PAYLOAD, "n": 1}
                head(f"put, claim, ack in batches of {size}, {relays} relays (batches/s, fsync off)")
                figures = rounds(server, conn, variants, options, relays)
                show(figures, "batches/s")
                what = f"batches of {size}, {relays} relays, pg_idem / "
                compare(options, figures, "pg_idem", "SKIP LOCKED by hand", what + "by hand", 0.9)
                compare(options, figures, "pg_idem", "pgmq, equivalent", what + "pgmq", 1.5)
                if "PgQ" in figures:
                    compare(options, figures, "pg_idem", "PgQ", what + "PgQ", 0.5 if size == 100 else None)


def rounds(server, conn, variants, options, clients):
    """As harness.rounds, with every table vacuumed and PgQ's rotated before each run."""
    figures = {variant.name: [] for variant in variants}
    for number in range(options.rounds + 1):
        turn = number % len(variants)
        for variant in variants[turn:] + variants[:turn]:
            conn.execute("VACUUM app.outbox, app.plain, app.q_pgmq")
            if variant.name == "PgQ":
                conn.execute("SELECT pgq.maint_rotate_tables_step1('q')")
                conn.execute("SELECT pgq.maint_rotate_tables_step2()")
            run = pgbench(server, variant, number, options.seconds if number else 1, clients=clients)
            if number:
                figures[variant.name].append(run)
    return figures


def old_snapshot(options):
    """p95 of claim(10) while a transaction that only reads holds its snapshot for 200,000 messages."""
    total, batch, window = 200_000, 10, 1_000
    head(f"claim(10) under a snapshot held for {total:,} messages")
    with cluster(fsync=False) as server, server.connect() as conn, server.connect() as reader:
        conn.execute(TABLES)
        for name, put, claim, ack in (
            ("pg_idem", "SELECT count(*) FROM idem_outbox_put_many('app.outbox', %s::jsonb)",
             "SELECT claim_id, id FROM idem_outbox_claim('app.outbox', 10)",
             "SELECT count(*) FROM idem_outbox_ack_many('app.outbox', %s, %s)"),
            ("SKIP LOCKED by hand", PLAIN.splitlines()[0] + PLAIN.splitlines()[1].replace(":messages", "%s::jsonb"),
             "UPDATE app.plain SET attempts = attempts + 1, lease_expires_at = clock_timestamp() + interval '30 s' WHERE id IN "
             "(SELECT id FROM app.plain WHERE lease_expires_at IS NULL OR lease_expires_at <= clock_timestamp() "
             "ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED) RETURNING NULL, id",
             "DELETE FROM app.plain WHERE %s::text IS NULL AND id = ANY (%s)"),
        ):
            text = messages(batch)
            # By hand the cost grows with the square of what was delivered: a tenth of the messages shows it.
            rounds_ = total // batch if name == "pg_idem" else total // batch // 10
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM pg_class")
            times = []

            def one():
                conn.execute(put, (text,))
                began = time.perf_counter()
                claimed = conn.execute(claim, prepare=True).fetchall()
                times.append(time.perf_counter() - began)
                conn.execute(ack, (claimed[0][0], [row[1] for row in claimed]))

            for _ in range(rounds_):
                one()
            some = min(window, rounds_ // 4)
            p95 = lambda part: statistics.quantiles(part, n=20)[-1] * 1e6  # noqa: E731
            first, last = p95(times[:some]), p95(times[-some:])
            reader.execute("ROLLBACK")
            table = "outbox" if name == "pg_idem" else "plain"
            conn.execute(f"VACUUM app.{table}")
            for _ in range(some):
                one()
            after = p95(times[-some:])
            say(f"   {name}: {rounds_ * batch:,} messages; p95 of the first {some * batch:,} {first:.0f} us, of the last "
                f"{last:.0f} us, after the snapshot and VACUUM {after:.0f} us")
            if name == "pg_idem":
                check(options, "p95 of claim(10) under an old snapshot, last / first < 2", last / first, last / first < 2)
                check(options, "and after it / first < 1.5", after / first, after / first < 1.5)


def inbox(options):
    for known, title, target in ((0, "a new message each", 0.9), (10, "one in ten seen before", None), (100, "each seen before", None)):
        with cluster(fsync=False) as server, server.connect() as conn:
            conn.execute(TABLES)
            conn.execute("""SELECT count(*) FROM generate_series(1, 1000) AS n, idem_inbox_accept('c', n::text);
                INSERT INTO app.inbox SELECT n::text, 'c', '', now() FROM generate_series(1, 1000) AS n""")
            head(f"inbox accept, {title} (fsync off)")
            variants = [Variant("pg_idem", INBOX, {"known": known}), Variant("INSERT by hand", BY_HAND, {"known": known})]
            figures = harness.rounds(server, variants, options)
            show(figures)
            compare(options, figures, "pg_idem", "INSERT by hand", f"inbox accept / INSERT ON CONFLICT DO NOTHING, {title}", target)

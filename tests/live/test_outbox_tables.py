"""Outboxes of all shapes. One without code of its owner's is worked on as rows, any other by statements: what a table
promises holds either way, and no index misses a row."""

import random
import uuid

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from messages import ack, claim, put, put_many
from sessions import check_btrees, rows, value

ONE = ("1", {"n": 1})
# What an owner may have added, and whether statements are needed then.
SHAPES = {
    "nothing": ("", False),
    "plain columns": ("ALTER TABLE {} ADD tries integer NOT NULL DEFAULT 3, ADD note text, ADD made timestamptz DEFAULT now(), "
                      "ADD other uuid DEFAULT gen_random_uuid(), ADD n bigint GENERATED ALWAYS AS IDENTITY, "
                      "ADD m bigserial", False),
    "a dropped column": ("ALTER TABLE {} ADD gone text DEFAULT 'x', ADD kept integer DEFAULT 2; ALTER TABLE {} DROP gone", False),
    "indexes": ("CREATE INDEX ON {0} (aggregatetype, aggregateid) INCLUDE (type); CREATE INDEX ON {0} USING gin (payload); "
                "CREATE INDEX ON {0} USING hash (claim_id); CREATE INDEX ON {0} (relay) WHERE claim_id IS NOT NULL; "
                "CREATE INDEX ON {0} (lease_expires_at)", False),
    "a brin index": ("CREATE INDEX ON {} USING brin (lease_expires_at)", False),
    "a default of its own": ("ALTER TABLE {} ADD region text NOT NULL DEFAULT 'eu'", True),
    "a generated column": ("ALTER TABLE {} ADD size integer GENERATED ALWAYS AS (length(type)) STORED", True),
    "a check": ("ALTER TABLE {} ADD CHECK (type <> 'forbidden')", True),
    "an expression index": ("CREATE INDEX ON {} (lower(type))", True),
    "a partial index": ("CREATE INDEX ON {} (seq) WHERE type = 't'", True),
    "a rule": ("CREATE RULE r AS ON DELETE TO {0} DO ALSO NOTIFY gone", True),
    "a policy of its owner's": ("ALTER TABLE {0} ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON {0} USING (true)", True),
    "a deferrable constraint": ("ALTER TABLE {} ADD UNIQUE (seq) DEFERRABLE", True),
    "no index on seq": ("DO $$ BEGIN EXECUTE (SELECT format('DROP INDEX %s', indexrelid::regclass) FROM pg_index "
                        "WHERE indrelid = '{0}'::regclass AND pg_get_indexdef(indexrelid) LIKE '%(seq)'); END $$", True),
    "a domain": ("CREATE DOMAIN public.filled AS text DEFAULT 'x' CHECK (VALUE IS NOT NULL); "
                 "ALTER TABLE {} ADD filled public.filled", True),
    "many columns": ("DO $$ BEGIN FOR n IN 1..40 LOOP EXECUTE format('ALTER TABLE {} ADD c%s integer', n); END LOOP; END $$", True),
}


@pytest.fixture
def shaped(conn, outbox, request):
    name = outbox()
    conn.execute("DROP DOMAIN IF EXISTS public.filled CASCADE")
    conn.execute(SHAPES[request.param][0].replace("{0}", name).replace("{}", name))
    return name


def statements(conn, work):
    """The statements on tables of users that `work` ran below its own, as the server explains them."""
    seen = []
    try:
        conn.execute("LOAD 'auto_explain'")
    except psycopg.Error:
        pytest.skip("this server has no auto_explain")
    conn.add_notice_handler(lambda notice: seen.append(notice.message_primary))
    conn.execute("SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on; SET client_min_messages = log")
    work()
    conn.execute("RESET client_min_messages; SET auto_explain.log_min_duration = -1")
    return [text for text in seen if "Query Text: INSERT" in text or "Query Text: UPDATE" in text or "Query Text: DELETE" in text]


@pytest.mark.parametrize("shaped", SHAPES, indirect=True)
def test_messages_pass_through_a_table_of_any_shape(conn, shaped):
    """Put, put in a batch, claimed, acknowledged; and each index has an entry for each row."""
    ids = [put(conn, shaped, payload={"n": 0}, headers=Jsonb({"h": 1}))]
    ids += put_many(conn, shaped, *[("1", {"n": n}) for n in range(1, 200)])
    check_btrees(conn, shaped)
    first, second = claim(conn, shaped, 100), claim(conn, shaped, 200)
    assert [message.payload["n"] for message in first + second] == list(range(200))
    assert [message.id for message in first + second] == ids
    check_btrees(conn, shaped)
    # Not in their order, one of the other claim's, one twice and one that is not there.
    given = ids[50:100] + ids[:50] + [ids[100], ids[0], uuid.uuid4()]
    outcomes = rows(conn, "SELECT * FROM idem_outbox_ack_many(%s, %s, %s)", (shaped, first[0].claim_id, given))
    assert [tuple(outcome) for outcome in outcomes] == list(zip(given, ["acked"] * 100 + ["lost", "acked", "missing"]))
    assert value(conn, f"SELECT count(*) FROM {shaped}") == 100
    check_btrees(conn, shaped)
    assert ack(conn, shaped, second) == ["acked"] * 100
    assert value(conn, f"SELECT count(*) FROM {shaped}") == 0


@pytest.mark.parametrize("way", ["rows", "statements"])
def test_a_message_that_is_stored_out_of_line_passes_through(conn, outbox, way):
    name, long = outbox(), {"long": random.Random(1).randbytes(100_000).hex()}
    assert put(conn, name, payload=long) and put_many(conn, name, ("1", long))
    claimed = claim(conn, name)
    assert [message.payload for message in claimed] == [long, long]
    assert ack(conn, name, claimed) == ["acked", "acked"]


@pytest.mark.parametrize("shaped", ["indexes", "a brin index"], indirect=True)
def test_a_claim_is_found_by_the_owners_index(conn, shaped):
    """Also where the update is heap-only, but for what a brin index summarizes (PostgreSQL 16 and later)."""
    put(conn, shaped)
    assert len(claim(conn, shaped)) == 1
    conn.execute("SET enable_seqscan = off; SET enable_indexscan = off")
    assert value(conn, f"SELECT count(*) FROM {shaped} WHERE lease_expires_at > now()") == 1
    conn.execute("RESET enable_seqscan; RESET enable_indexscan")


@pytest.mark.parametrize("shaped", SHAPES, indirect=True)
def test_statements_are_run_where_they_are_needed(conn, shaped, request):
    needed = SHAPES[request.node.callspec.params["shaped"]][1]

    def work():
        put_many(conn, shaped, ONE, ONE)
        assert ack(conn, shaped, claim(conn, shaped)) == ["acked", "acked"]

    work()  # what is looked at once a session
    assert bool(statements(conn, work)) == needed


@pytest.mark.parametrize("way", ["rows", "statements"])
def test_nothing_is_put_and_acknowledged(conn, outbox, way):
    name = outbox()
    put(conn, name)
    assert put_many(conn, name) == []
    [claimed] = claim(conn, name)
    assert rows(conn, "SELECT * FROM idem_outbox_ack_many(%s, %s, '{}')", (name, claimed.claim_id)) == []
    assert value(conn, f"SELECT count(*) FROM {name}") == 1


def test_columns_of_the_owners_are_filled(conn, outbox):
    name = outbox()
    conn.execute(SHAPES["plain columns"][0].format(name))
    put_many(conn, name, ONE, ONE)
    filled = rows(conn, f"""SELECT tries, note, created_at - made < '1 min' AS recent, n, m, attempts, seq FROM {name}
        ORDER BY seq""")
    assert [tuple(one) for one in filled] == [(3, None, True, n, n, 0, n) for n in (1, 2)]
    assert value(conn, f"SELECT count(DISTINCT other) FROM {name}") == 2


def test_what_a_table_promises_is_kept(conn, outbox):
    """What an INSERT or an UPDATE would be refused for refuses a put or a claim too, and nothing of it stays."""
    name = outbox()
    for change, back, error in (
        ("ADD CONSTRAINT c CHECK (type <> 't')", "DROP CONSTRAINT c", errors.CheckViolation),
        ("ADD owner text NOT NULL", "DROP owner", errors.NotNullViolation),
        ("ALTER headers SET NOT NULL", "ALTER headers DROP NOT NULL", errors.NotNullViolation),
        ("ADD CONSTRAINT u UNIQUE (aggregateid)", "DROP CONSTRAINT u", errors.UniqueViolation),
        ("ADD CONSTRAINT e EXCLUDE (type WITH =)", "DROP CONSTRAINT e", errors.ExclusionViolation),
    ):
        conn.execute(f"ALTER TABLE {name} {change}")
        with pytest.raises(error):
            put_many(conn, name, ONE, ONE)
        assert value(conn, f"SELECT count(*) FROM {name}") == 0
        conn.execute(f"ALTER TABLE {name} {back}")
    put_many(conn, name, ONE, ONE)
    conn.execute(f"ALTER TABLE {name} REPLICA IDENTITY NOTHING")
    conn.execute(f"CREATE PUBLICATION p_{name.split('_')[1]} FOR TABLE {name}")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="replica identity"):
        claim(conn, name)
    conn.execute(f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT")
    assert ack(conn, name, claim(conn, name)) == ["acked", "acked"]
    conn.execute(f"DROP PUBLICATION p_{name.split('_')[1]}")


def test_a_change_of_the_table_is_heard_of(connect, conn, outbox):
    """A session that has worked on the rows runs statements as soon as somebody has added a trigger."""
    name, other = outbox(), connect()
    put_many(conn, name, ONE)
    other.execute(f"""
        CREATE OR REPLACE FUNCTION public.upper_type() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            NEW.type := upper(NEW.type);
            RETURN NEW;
        END $$;
        CREATE TRIGGER t BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION public.upper_type()""")
    put_many(conn, name, ONE)
    assert [type for [type] in rows(conn, f"SELECT type FROM {name} ORDER BY seq")] == ["t", "T"]
    other.execute(f"ALTER TABLE {name} RENAME TO renamed_{name.split('_')[1]}")
    with pytest.raises(errors.UndefinedTable):
        put_many(conn, name, ONE)
    renamed = f"public.renamed_{name.split('_')[1]}"
    assert len(put_many(conn, renamed, ONE)) == 1
    other.execute(f"CREATE SCHEMA s_{name.split('_')[1]}")
    other.execute(f"ALTER TABLE {renamed} SET SCHEMA s_{name.split('_')[1]}")
    moved = renamed.replace("public", f"s_{name.split('_')[1]}")
    assert len(put_many(conn, moved, ONE)) == 1
    other.execute(f"ALTER SCHEMA s_{name.split('_')[1]} RENAME TO z_{name.split('_')[1]}")
    moved = moved.replace("s_", "z_", 1)
    assert len(put_many(conn, moved, ONE)) == 1
    assert value(conn, f"SELECT count(*) FROM {moved}") == 5


@pytest.mark.parametrize("way", ["rows", "statements"])
def test_a_claim_passes_by_what_others_are_at(connect, conn, outbox, way):
    """Messages that another transaction claims, deletes or only locks are nobody else's business until it ends."""
    name = outbox()
    put_many(conn, name, *[("1", {"n": n}) for n in range(6)])
    seqs = [seq for [seq] in rows(conn, f"SELECT seq FROM {name} ORDER BY seq")]
    others = [connect(), connect(), connect()]
    for other, statement in zip(others, (
        f"UPDATE {name} SET relay = 'x' WHERE seq = {seqs[0]}", f"DELETE FROM {name} WHERE seq = {seqs[1]}",
        f"SELECT FROM {name} WHERE seq = {seqs[2]} FOR UPDATE",
    )):
        other.execute("BEGIN")
        other.execute(statement)
    assert [message.payload["n"] for message in claim(conn, name, 2)] == [3, 4]
    for other in others:
        other.execute("ROLLBACK")
    assert [message.payload["n"] for message in claim(conn, name)] == [0, 1, 2, 5]
    assert claim(conn, name) == []


def test_messages_claimed_under_a_savepoint_that_is_rolled_back_are_free_again(conn, outbox):
    name = outbox()
    put_many(conn, name, ONE, ONE)
    with conn.transaction():
        conn.execute("SAVEPOINT a")
        assert len(claim(conn, name)) == 2
        conn.execute("ROLLBACK TO a")
        assert ack(conn, name, claim(conn, name)) == ["acked", "acked"]
    assert value(conn, f"SELECT count(*) FROM {name}") == 0

"""What others do to pg_idem's own tables, which its library changes below the executor: indexes, rebuilt and added, triggers,
references, SET UNLOGGED."""

import itertools

import psycopg
import pytest
from psycopg import sql

from messages import ack, claim, put, put_many
from sessions import check_btrees, commit, end, in_background, reserve, row, rows, together, value, wait_for, wait_until

# A rebuild waits for old snapshots between its last look at the table and the moment the new index takes over.
REBUILT = {"idem_action_pkey": lambda conn, key: reserve(conn, key).decision,
           "idem_inbox_pkey": lambda conn, key: row(conn, "SELECT * FROM idem_inbox_accept('c', %s)", (key,)).decision}
FIRST_AND_AGAIN = {"idem_action_pkey": ("execute", "pending"), "idem_inbox_pkey": ("new", "duplicate")}


def rebuilding(observer, session, index):
    """Rebuilds an index in the background, and waits until only an old snapshot keeps it from taking over."""
    rebuilt = in_background(session.execute, sql.SQL("REINDEX INDEX CONCURRENTLY {}").format(sql.Identifier(index)))
    wait_until(lambda: rebuilt.done() or value(
        observer, "SELECT count(*) FROM pg_stat_progress_create_index WHERE pid = %s AND phase = 'waiting for old snapshots'",
        (session.info.backend_pid,)))
    wait_for(observer, session, "virtualxid")
    return rebuilt


@pytest.mark.parametrize("index", REBUILT)
def test_nothing_is_forgotten_while_an_index_is_rebuilt(connect_fresh, key, index):
    """Without the entry in the new index the action would be granted again."""
    conn, old, rebuilder = connect_fresh(), connect_fresh(isolation="repeatable read", autocommit=False), connect_fresh()
    first, again = FIRST_AND_AGAIN[index]
    assert REBUILT[index](conn, f"{key}/before") == first
    value(old, "SELECT 1")
    rebuilt = rebuilding(conn, rebuilder, index)
    assert REBUILT[index](conn, key) == first
    assert REBUILT[index](conn, key) == again
    old.rollback()
    rebuilt.result(30)
    assert REBUILT[index](conn, key) == again
    assert REBUILT[index](connect_fresh(), key) == again
    assert REBUILT[index](connect_fresh(), f"{key}/before") == again
    assert_whole(conn)


@pytest.mark.parametrize("index", ["id", "seq"])
def test_a_message_is_found_by_an_index_that_was_rebuilt_meanwhile(connect_fresh, index):
    """In the user's own table, whose rows are changed below the executor as well."""
    conn, old, rebuilder = connect_fresh(), connect_fresh(isolation="repeatable read", autocommit=False), connect_fresh()
    conn.execute("SELECT idem_create_outbox('box')")
    ids = [put(conn, "box")]
    value(old, "SELECT 1")
    rebuilt = rebuilding(conn, rebuilder, {"id": "box_pkey", "seq": "box_seq_idx"}[index])
    ids += [put(conn, "box"), *put_many(conn, "box", ("1", {}), ("1", {}))]
    old.rollback()
    rebuilt.result(30)
    claimed = claim(conn, "box")
    assert [message.id for message in claimed] == ids
    assert ack(conn, "box", claimed) == ["acked"] * 4


def assert_whole(conn):
    """Every index of ours is valid and has every row, as far as the server has amcheck."""
    tables = [found.name for found in rows(
        conn, "SELECT oid::regclass::text AS name FROM pg_class WHERE relname ^@ 'idem_' AND relkind = 'r'")]
    assert not rows(conn, "SELECT FROM pg_index WHERE indrelid = ANY (%s::text[]::regclass[]) AND NOT indisvalid", (tables,))
    check_btrees(conn, *tables)


def test_keys_are_granted_once_while_indexes_are_rebuilt_again_and_again(connect_fresh):
    """Sessions that race for the same keys, some of which ask the new index first, and some the old one."""
    rebuilder, sessions = connect_fresh(), [connect_fresh() for _ in range(6)]
    rounds = 40
    over = []

    def rebuild():
        try:
            for _ in range(rounds):
                for table in ("idem_action", "idem_inbox", "idem_open"):
                    rebuilder.execute(f"REINDEX TABLE CONCURRENTLY {table}")
        finally:
            over.append(True)

    def work(conn):
        granted, new = [], []
        for n in itertools.count():
            if over:
                return n, granted, new
            got = reserve(conn, f"race/{n}")
            if got.decision == "execute":
                granted.append(n)
                commit(conn, got) if n % 2 else end(conn, "idem_mark_unknown", got)
            if row(conn, "SELECT * FROM idem_inbox_accept('c', %s)", (f"race/{n}",)).decision == "new":
                new.append(n)

    [_, *done] = together(rebuild, *[lambda c=c: work(c) for c in sessions], timeout=120)
    reached = max(n for n, _, _ in done)
    assert reached > rounds
    for place in (1, 2):
        counted = sorted(itertools.chain.from_iterable(found[place] for found in done))
        assert counted == list(range(reached))
    assert_whole(sessions[0])


def test_a_further_index_has_all_rows(connect_fresh, key):
    """A plain one, for reports: kept up for what is added and for what a row moves to."""
    conn, session = connect_fresh(), connect_fresh()
    reserve(session, f"{key}/before")
    conn.execute("CREATE INDEX further ON idem_action (tenant, state); CREATE INDEX of_inbox ON idem_inbox (consumer)")
    got = reserve(session, key)
    commit(session, got)
    session.execute("SELECT idem_inbox_accept('c', %s)", (key,))
    conn.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
    along = "SELECT key FROM idem_action WHERE tenant = '' ORDER BY tenant, state"
    assert "further" in str(rows(conn, f"EXPLAIN {along}"))
    assert {found.key for found in rows(conn, along)} == {key, f"{key}/before"}
    assert value(conn, "SELECT count(*) FROM idem_inbox WHERE consumer = 'c'") == 1
    assert_whole(conn)
    conn.execute("DROP INDEX further, of_inbox")
    assert reserve(session, key).decision == "replay"


def test_an_index_that_is_being_built_under_a_name_of_ours_is_not_believed(connect_fresh, key):
    """The usual way against bloat of old, with the same name. Half built, it knows nothing of what was accepted before."""
    conn, builder, writer = connect_fresh(), connect_fresh(), connect_fresh(autocommit=False)
    accept = "SELECT decision FROM idem_inbox_accept('c', %s)"
    assert [value(conn, accept, (f"{key}/{n}",)) for n in range(3)] == ["new"] * 3
    conn.execute("ALTER TABLE idem_inbox DROP CONSTRAINT idem_inbox_pkey")
    writer.execute("LOCK TABLE idem_inbox IN ROW EXCLUSIVE MODE")
    build = "CREATE UNIQUE INDEX CONCURRENTLY idem_inbox_pkey ON idem_inbox (message_id, consumer, tenant)"
    built = in_background(builder.execute, build)
    wait_for(conn, builder, "virtualxid")
    for session in (conn, connect_fresh()):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="idem_inbox_pkey of table idem_inbox is not what"):
            value(session, accept, (f"{key}/0",))
    conn.execute("SELECT pg_cancel_backend(%s)", (builder.info.backend_pid,))
    with pytest.raises(psycopg.errors.QueryCanceled):
        built.result(10)
    writer.rollback()
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="not what the library expects"):
        value(conn, accept, (f"{key}/0",))
    conn.execute("REINDEX INDEX idem_inbox_pkey")
    assert [value(conn, accept, (f"{key}/{n}",)) for n in range(4)] == ["duplicate"] * 3 + ["new"]
    conn.execute(build.replace("idem_inbox_pkey", "next"))
    conn.execute("""ALTER TABLE idem_inbox ADD CONSTRAINT another PRIMARY KEY USING INDEX next;
        DROP INDEX idem_inbox_pkey; ALTER INDEX another RENAME TO idem_inbox_pkey""")
    assert [value(conn, accept, (f"{key}/{n}",)) for n in (0, 3, 4)] == ["duplicate", "duplicate", "new"]
    assert_whole(conn)


def test_a_rebuild_of_a_table_with_many_indexes_keeps_nobody_out(connect_fresh, key):
    """All of them twice, for as long as it takes."""
    conn, old, rebuilder = connect_fresh(), connect_fresh(isolation="repeatable read", autocommit=False), connect_fresh()
    for column in ("tenant", "key", "actor", "target", "worker", "created_at", "fence", "attempt", "scheme", "action_type"):
        conn.execute(f"CREATE INDEX ON idem_action ({column})")
    value(old, "SELECT 1")
    rebuilt = in_background(rebuilder.execute, "REINDEX TABLE CONCURRENTLY idem_action")
    wait_for(conn, rebuilder, "virtualxid")
    commit(conn, reserve(conn, key))
    old.rollback()
    rebuilt.result(30)
    assert reserve(conn, key).decision == "replay"
    assert_whole(conn)


REFUSED = {
    "a unique index": ("CREATE UNIQUE INDEX more ON idem_action (key)", "DROP INDEX more", "index more of table idem_action"),
    "the same columns, compared otherwise": (
        'CREATE UNIQUE INDEX more ON idem_inbox (message_id COLLATE "POSIX", consumer, tenant)',
        "DROP INDEX more", "index more of table idem_inbox"),
    "an expression": ("CREATE INDEX more ON idem_action (lower(key))", "DROP INDEX more", "index more of table idem_action"),
    "a condition": ("CREATE INDEX more ON idem_action (key) WHERE tenant = ''", "DROP INDEX more", "index more of table idem_action"),
    "no btree": ("CREATE INDEX more ON idem_action USING brin (visit_at)", "DROP INDEX more", "index more of table idem_action"),
    "too many": (";".join(f"CREATE INDEX more_{n} ON idem_action (key)" for n in range(11)),
                 "DROP INDEX " + ", ".join(f"more_{n}" for n in range(11)), "more_10 of table idem_action"),
    "a trigger": ("CREATE TRIGGER copies AFTER INSERT ON idem_action FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
                  "DROP TRIGGER copies ON idem_action", "trigger copies of table idem_action"),
    "a reference": ("CREATE TABLE refers (action_id uuid REFERENCES idem_action ON DELETE CASCADE)", "DROP TABLE refers",
                    "of table idem_action would not fire"),
    "a trigger named like ours": (
        "CREATE TRIGGER idem_audit AFTER INSERT ON idem_action FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "DROP TRIGGER idem_audit ON idem_action", "trigger idem_audit of table idem_action"),
    "a check": ("ALTER TABLE idem_inbox ADD CONSTRAINT short CHECK (length(message_id) < 900)",
                "ALTER TABLE idem_inbox DROP CONSTRAINT short", "idem_inbox has a check"),
    "a rule": ("CREATE RULE nothing AS ON INSERT TO idem_inbox DO INSTEAD NOTHING", "DROP RULE nothing ON idem_inbox; VACUUM idem_inbox",
               "idem_inbox has a check or a rule"),
    "a primary key in another order": (
        "ALTER TABLE idem_inbox DROP CONSTRAINT idem_inbox_pkey, ADD CONSTRAINT idem_inbox_pkey PRIMARY KEY (consumer, message_id, tenant)",
        "ALTER TABLE idem_inbox DROP CONSTRAINT idem_inbox_pkey, ADD CONSTRAINT idem_inbox_pkey PRIMARY KEY (message_id, consumer, tenant)",
        "index idem_inbox_pkey of table idem_inbox is not what"),
    "names compared otherwise": (
        'ALTER TABLE idem_inbox ALTER message_id TYPE text COLLATE "POSIX"',
        'ALTER TABLE idem_inbox ALTER message_id TYPE text COLLATE "C"', "index idem_inbox_pkey of table idem_inbox is not what"),
    "a key without uniqueness": (
        "ALTER TABLE idem_inbox DROP CONSTRAINT idem_inbox_pkey; CREATE INDEX idem_inbox_pkey ON idem_inbox (message_id, consumer, tenant)",
        "DROP INDEX idem_inbox_pkey; ALTER TABLE idem_inbox ADD CONSTRAINT idem_inbox_pkey PRIMARY KEY (message_id, consumer, tenant)",
        "index idem_inbox_pkey of table idem_inbox is not what"),
    "the name of an index at another table": (
        "ALTER TABLE idem_inbox RENAME TO idem_inbox_archive; CREATE TABLE idem_inbox (LIKE idem_inbox_archive INCLUDING ALL)",
        "DROP TABLE idem_inbox; ALTER TABLE idem_inbox_archive RENAME TO idem_inbox", "index idem_inbox_pkey of table idem_inbox is not what"),
    "an order that is missing": ("DROP INDEX idem_action_visit_at", "CREATE INDEX idem_action_visit_at ON idem_action (visit_at)",
                                 "index idem_action_visit_at of table idem_action is not what"),
    "a table that a crash empties": ("ALTER TABLE idem_inbox SET UNLOGGED", "ALTER TABLE idem_inbox SET LOGGED",
                                     "idem_inbox is unlogged"),
    "another storage": ("CREATE ACCESS METHOD another TYPE TABLE HANDLER heap_tableam_handler;"
                        "ALTER TABLE idem_inbox SET ACCESS METHOD another",
                        "ALTER TABLE idem_inbox SET ACCESS METHOD heap", "idem_inbox is stored by another"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_kept_up_is_refused(connect_fresh, key, what):
    """In words, before anything is written, by sessions that are there and by new ones; and all goes on without it."""
    conn, session = connect_fresh(), connect_fresh()
    got = reserve(session, key)
    make, drop, said = REFUSED[what]
    conn.execute(make)
    for one in (session, connect_fresh()):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=said) as refused:
            row(one, "SELECT * FROM idem_inbox_accept('c', %s)", (key,)) if "inbox" in said else reserve(one, f"{key}/2")
        assert {"Drop", "ALTER"} & set(refused.value.diag.message_hint.split())
    for statement in drop.split(";"):
        conn.execute(statement)
    assert reserve(session, f"{key}/2").decision == "execute"
    assert commit(session, got) == "committed"

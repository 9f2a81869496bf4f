"""What others do to pg_idem's own tables, which its library changes below the executor: indexes, rebuilt and added, triggers,
references, SET UNLOGGED."""

import itertools

import psycopg
import pytest
from psycopg import sql

from messages import ack, claim, put, put_many
from sessions import commit, end, in_background, reserve, row, rows, together, value, wait_for, wait_until

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
    """Every index of ours has every row: by amcheck, where the server has it, and by counting along each."""
    if value(conn, "SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'"):
        conn.execute("CREATE EXTENSION IF NOT EXISTS amcheck")
        conn.execute("""SELECT bt_index_check(indexrelid, true) FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
            WHERE relname ^@ 'idem_' AND relkind = 'r' AND indisvalid AND indisready""")
    for table in ("idem_action", "idem_inbox", "idem_open"):
        assert not rows(conn, f"SELECT FROM pg_index WHERE indrelid = '{table}'::regclass AND NOT indisvalid")


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


REFUSED = {
    "a unique index": ("CREATE UNIQUE INDEX more ON idem_action (key)", "DROP INDEX more", "index more of table idem_action"),
    "the same columns, compared otherwise": (
        'CREATE UNIQUE INDEX more ON idem_inbox (message_id COLLATE "POSIX", consumer, tenant)',
        "DROP INDEX more", "index more of table idem_inbox"),
    "an expression": ("CREATE INDEX more ON idem_action (lower(key))", "DROP INDEX more", "index more of table idem_action"),
    "a condition": ("CREATE INDEX more ON idem_action (key) WHERE tenant = ''", "DROP INDEX more", "index more of table idem_action"),
    "no btree": ("CREATE INDEX more ON idem_action USING brin (visit_at)", "DROP INDEX more", "index more of table idem_action"),
    "too many": (";".join(f"CREATE INDEX more_{n} ON idem_action (key)" for n in range(9)),
                 "DROP INDEX " + ", ".join(f"more_{n}" for n in range(9)), "more_8 of table idem_action"),
    "a trigger": ("CREATE TRIGGER copies AFTER INSERT ON idem_action FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
                  "DROP TRIGGER copies ON idem_action", "trigger copies of table idem_action"),
    "a reference": ("CREATE TABLE refers (action_id uuid REFERENCES idem_action ON DELETE CASCADE)", "DROP TABLE refers",
                    "of table idem_action would not fire"),
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
        assert drop.split()[0].title() in refused.value.diag.message_hint.title()
    conn.execute(drop)
    assert reserve(session, f"{key}/2").decision == "execute"
    assert commit(session, got) == "committed"

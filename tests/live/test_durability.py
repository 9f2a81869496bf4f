"""An answered grant survives a crash, whatever synchronous_commit says; what may be lost is lost to the safe side."""

import pytest

from cluster import Cluster
from sessions import commit, end, reserve, resolve, row, status, value


@pytest.fixture(scope="module")
def lazy():
    """A cluster that flushes nothing by itself for ten seconds: fsync on, synchronous_commit off."""
    with Cluster(settings={"synchronous_commit": False, "wal_writer_delay": "10s", "wal_writer_flush_after": 0,
                           "autovacuum": False, "checkpoint_timeout": "1h", "bgwriter_lru_maxpages": 0,
                           "max_prepared_transactions": 4, "statement_timeout": "30s"}, preload=False) as cluster:
        cluster.psql("CREATE EXTENSION pg_idem; CREATE TABLE other (n int); CHECKPOINT")
        yield cluster


@pytest.fixture
def flushes(lazy):
    """Runs `work` in a transaction and says whether its COMMIT waited for the WAL. A flush by chance needs three."""
    def run(work):
        seen = []
        for _ in range(3):
            with lazy.connect(autocommit=False) as conn, lazy.connect() as observer:
                conn.execute("SELECT 1")
                work(conn)
                written = value(observer, "SELECT pg_current_wal_insert_lsn()::text")
                conn.commit()
                seen.append(value(observer, "SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn", (written,)))
        return seen
    yield run


def test_an_ordinary_transaction_is_not_flushed(flushes):
    """Else nothing below would mean anything."""
    assert not all(flushes(lambda conn: conn.execute("INSERT INTO other VALUES (1)")))


def test_an_open_grant_is_flushed(flushes, key):
    """Measured: with synchronous_commit off an answered reservation was gone after 5 of 5 crashes."""
    numbers = iter(range(100))
    assert all(flushes(lambda conn: reserve(conn, f"{key}{next(numbers)}")))


def test_a_claimed_action_is_flushed(flushes, lazy, key):
    """A relay that forgets a claim with its attempt would send again."""
    numbers = iter(range(100))
    with lazy.connect() as conn:
        conn.execute("CREATE SCHEMA IF NOT EXISTS app; SELECT idem_create_outbox('app.claimed')")

    def work(conn):
        got = reserve(conn, f"{key}{next(numbers)}")
        conn.execute("SELECT idem_outbox_put('app.claimed', 't', 'a', '1', '{}', action_id => %s)", (got.action_id,))
        conn.commit()
        assert row(conn, "SELECT * FROM idem_outbox_claim('app.claimed', 1)").action_id == got.action_id
    assert all(flushes(work))


def test_an_ended_one_is_not_flushed(flushes, key):
    """A local action that begins and ends in its transaction costs no flush more than the business rows do."""
    numbers = iter(range(100))
    assert not all(flushes(lambda conn: commit(conn, reserve(conn, f"{key}{next(numbers)}"))))


def test_a_takeover_and_a_reconciling_attempt_are_flushed(flushes, lazy, key):
    """Every grant counts, not the first only."""
    numbers = iter(range(100))

    def takeover(conn):
        name = f"{key}{next(numbers)}"
        end(conn, "idem_mark_unknown", reserve(conn, name))
        conn.commit()
        assert reserve(conn, name, can_reconcile=True).decision == "reconcile"
    assert all(flushes(takeover))


@pytest.mark.parametrize("how", ["savepoint", "exception"])
def test_an_end_that_was_rolled_back_leaves_the_grant_open_and_flushed(flushes, key, how):
    """ROLLBACK TO SAVEPOINT over an idem_commit: the attempt is open at COMMIT and its effect may have left."""
    numbers = iter(range(100))

    def work(conn):
        got = reserve(conn, f"{key}{next(numbers)}")
        if how == "savepoint":
            conn.execute("SAVEPOINT s")
            commit(conn, got)
            conn.execute("ROLLBACK TO SAVEPOINT s")
        else:
            conn.execute(f"""DO $$ BEGIN PERFORM idem_commit('{got.action_id}', '{got.attempt_id}'); RAISE division_by_zero;
                EXCEPTION WHEN division_by_zero THEN NULL; END $$""")
    assert all(flushes(work))


def test_evidence_is_flushed(flushes, key):
    """Contract 5: so is every call that takes permission away; lost evidence would allow a second effect."""
    numbers = iter(range(100))

    def work(conn):
        got = reserve(conn, f"{key}{next(numbers)}")
        end(conn, "idem_mark_unknown", got)
        conn.commit()
        end(conn, "idem_add_evidence", got, finding="applied", resource_id="re_1")
    assert all(flushes(work))


@pytest.mark.parametrize("how", ["unmarked", "unknown", "nack", "resolved"])
def test_what_counts_as_the_mark_is_flushed(flushes, lazy, key, how):
    """Forgotten, nothing would tell that a marking attempt's effect may have left, and it would be granted again."""
    numbers = iter(range(100))
    with lazy.connect() as conn:
        conn.execute(f"""SELECT idem_register_action_type('lasting {how}', 'deduplicated_creation', marks_dispatch => true);
            CREATE SCHEMA IF NOT EXISTS app""")
        if how == "nack":
            conn.execute("SELECT idem_create_outbox('app.lasting')")

    def work(conn):
        got = reserve(conn, f"{key}{next(numbers)}", action_type=f"lasting {how}")
        if how == "nack":
            conn.execute("SELECT idem_outbox_put('app.lasting', 't', 'a', '1', '{}', action_id => %s)", (got.action_id,))
        conn.commit()
        if how == "unmarked":
            assert commit(conn, got) == "committed"
        elif how == "unknown":
            assert end(conn, "idem_mark_unknown", got) == "unknown"
        elif how == "nack":
            claimed = row(conn, "SELECT * FROM idem_outbox_claim('app.lasting', 1)")
            conn.commit()
            value(conn, "SELECT idem_outbox_nack('app.lasting', %s, %s, 'timeout')", (claimed.id, claimed.claim_id))
        else:
            end(conn, "idem_mark_unknown", got)
            conn.commit()
            finder = reserve(conn, f"{key}{next(numbers) - 1}", action_type=f"lasting {how}", can_reconcile=True)
            conn.commit()
            assert resolve(conn, finder, "ambiguous").state == "unknown"
    assert all(flushes(work))


def test_a_commit_is_not_flushed_where_the_grant_is_the_mark(flushes, key):
    """Forgotten, its attempt is open; whoever wants no more than that pays for no more."""
    numbers = iter(range(100))

    def work(conn):
        got = reserve(conn, f"{key}{next(numbers)}")
        conn.commit()
        assert commit(conn, got) == "committed"
    assert not all(flushes(work))


def test_a_hold_and_its_lifting_are_flushed(flushes, lazy, key):
    """A stop switch that a crash turns back by itself is none."""
    assert all(flushes(lambda conn: value(conn, "SELECT idem_hold('tenant', %s, 'a test')", (key[:100],))))
    numbers = iter(range(100))

    def work(conn):
        name = f"{key[:100]}{next(numbers)}"
        value(conn, "SELECT idem_hold('tenant', %s, 'a test')", (name,))
        conn.commit()
        assert value(conn, "SELECT idem_unhold('tenant', %s)", (name,)) == "unheld"
    assert all(flushes(work))


def test_evidence_beside_an_open_reconciling_attempt_is_flushed(flushes, key):
    """Evidence does not end the reconciling attempt that this transaction was granted."""
    numbers = iter(range(100))

    def work(conn):
        name = f"{key}{next(numbers)}"
        end(conn, "idem_mark_unknown", reserve(conn, name))
        conn.commit()
        finder = reserve(conn, name, can_reconcile=True)
        end(conn, "idem_add_evidence", finder, finding="inconclusive")
    assert all(flushes(work))


def test_after_a_crash(lazy, key):
    """kill -9 right after the answers: grants are there; a commit may be forgotten, and then its attempt is open."""
    with lazy.connect() as conn:
        open_one, ended = reserve(conn, f"{key}/open"), reserve(conn, f"{key}/ended")
        finder = reserve(conn, f"{key}/finder")
        end(conn, "idem_mark_unknown", finder)
        finder = reserve(conn, f"{key}/finder", can_reconcile=True)
        conn.autocommit = False
        prepared = reserve(conn, f"{key}/prepared")
        conn.execute("PREPARE TRANSACTION 'p'")
        conn.rollback()
        conn.autocommit = True
        conn.execute("COMMIT PREPARED 'p'")
        commit(conn, ended, response={"n": 1})
    lazy.kill9()
    lazy.start()
    with lazy.connect() as conn:
        assert status(conn, f"{key}/open").state == "started"
        assert status(conn, f"{key}/prepared").state == "started"
        assert status(conn, f"{key}/ended").state in ("started", "committed")
        assert commit(conn, open_one) == "committed"
        assert commit(conn, prepared) == "committed"
        assert commit(conn, ended, response={"n": 1}) in ("committed", "already_committed")
        assert reserve(conn, f"{key}/finder", can_reconcile=True).decision == "unknown", "the reconciler's lease is there"
        assert resolve(conn, finder, "applied").state == "committed"
        assert row(conn, "SELECT count(*) AS n FROM idem_actions WHERE state = 'committed' AND starts_with(key, %s)",
                   (key,)).n == 4


def test_a_dispatch_is_flushed_by_itself(lazy, key):
    """Who sends after an answer that a crash forgets has sent what nobody knows of."""
    with lazy.connect() as conn, lazy.connect() as observer:
        conn.execute("SELECT idem_register_action_type('marking', 'reversible', marks_dispatch => true)")
        for n in range(3):
            got = reserve(conn, f"{key}{n}", action_type="marking")
            written = value(observer, "SELECT pg_current_wal_insert_lsn()::text")
            end(conn, "idem_dispatch", got)
            assert value(observer, "SELECT pg_current_wal_flush_lsn() > %s::pg_lsn", (written,))

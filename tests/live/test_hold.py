"""The stop switch between sessions: how far a hold reaches, and that it costs nothing while there is none."""

import subprocess

import psycopg
import pytest

from cluster import Cluster
from sessions import (Sessions, commit, end, in_background, new_token, outlive, reserve, row, rows, sqlstate, status,
                      together, value, wait_for, wait_until)


def hold(conn, tenant, scope="tenant"):
    return value(conn, "SELECT idem_hold(%s, %s, 'a test')", (scope, tenant))


def unhold(conn, tenant, scope="tenant"):
    return value(conn, "SELECT idem_unhold(%s, %s)", (scope, tenant))


@pytest.fixture
def tenant(key):
    """A tenant that no other test uses: holds are never deleted."""
    return key[:200]


def test_a_session_that_knows_of_no_hold_hears_of_it(connect, tenant):
    """Its cache is warm; the next grant after the COMMIT is refused, and the next after the lifting is given."""
    worker, operator = connect(), connect()
    assert reserve(worker, "before", tenant=tenant).granted
    assert hold(operator, tenant) == "held"
    assert sqlstate(reserve, worker, "held", tenant=tenant) == "ID008"
    assert reserve(worker, "held").granted, "another tenant"
    assert unhold(operator, tenant) == "unheld"
    assert reserve(worker, "held", tenant=tenant).granted


def test_inside_a_transaction_that_holds_its_locks_already(connect, tenant):
    """A lock that is new takes in what others sent; one that is held does not. The grant asks by itself."""
    worker, operator = connect(autocommit=False), connect()
    assert reserve(worker, "first", tenant=tenant).granted
    hold(operator, tenant)
    assert sqlstate(reserve, worker, "second", tenant=tenant) == "ID008"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_an_old_snapshot_is_no_excuse(connect, tenant, level):
    """The transaction cannot see the hold's row; the hold is asked as of now."""
    worker, operator = connect(autocommit=False, isolation=level), connect()
    assert reserve(worker, "first", tenant=tenant).granted
    hold(operator, tenant)
    assert rows(worker, "SELECT FROM idem_holds WHERE value = %s", (tenant,)) == []
    assert sqlstate(reserve, worker, "second", tenant=tenant) == "ID008"
    worker.rollback()
    assert value(worker, "SELECT count(*) FROM pg_class") and unhold(operator, tenant) == "unheld"
    assert reserve(worker, "second", tenant=tenant).granted


def test_one_that_waits_is_stopped_too(connect, tenant):
    """It began before the hold, and would be granted the action after it."""
    first, second, operator = connect(autocommit=False), connect(), connect()
    reserve(first, "k", tenant=tenant)
    waiting = in_background(sqlstate, reserve, second, "k", tenant=tenant, wait_seconds=30.0)
    wait_for(operator, second, "Extension")
    hold(operator, tenant)
    first.rollback()
    assert waiting.result(20) == "ID008"


def test_a_change_that_comes_while_the_holds_are_opened(connect, tenant):
    """A session that waited for the table's lock was told of a change before it read; it hears of the next one too."""
    operator, worker, observer = connect(autocommit=False), connect(), connect()
    operator.execute("LOCK TABLE idem_held IN SHARE MODE")
    waiting = in_background(reserve, worker, "before", tenant=tenant)
    wait_for(observer, worker, "relation")
    hold(operator, tenant[:-1] + "!")
    operator.commit()
    assert waiting.result(20).granted
    hold(observer, tenant)
    assert sqlstate(reserve, worker, "after", tenant=tenant) == "ID008"


def test_grants_in_progress_go_on(connect, tenant):
    """Granted before the hold's COMMIT and committed after it: the attempt ends as it would have."""
    worker, operator = connect(autocommit=False), connect()
    got = reserve(worker, "k", tenant=tenant)
    hold(operator, tenant)
    worker.commit()
    assert value(worker, "SELECT idem_renew(%s, %s) > clock_timestamp()", (got.action_id, got.attempt_id))
    assert commit(worker, got, response={"n": 1}) == "committed"
    worker.commit()
    assert reserve(operator, "k", tenant=tenant).response == {"n": 1}


def test_the_last_gate_is_asked_again(connect, tenant):
    """An attempt of a type that marks its dispatch was granted before the hold: it does not get its provider key."""
    worker, operator = connect(), connect()
    worker.execute("SELECT idem_register_action_type('hold marks', 'deduplicated_creation', marks_dispatch => true)")
    got = reserve(worker, "k", tenant=tenant, action_type="hold marks")
    hold(operator, tenant)
    with pytest.raises(psycopg.Error) as caught:
        end(worker, "idem_dispatch", got)
    assert caught.value.sqlstate == "ID008" and "Its tenant is held" in caught.value.diag.message_detail
    unhold(operator, tenant)
    assert end(worker, "idem_dispatch", got)


def test_pull_workers_are_given_nothing(connect, tenant):
    """What is held stays in the queue, and what is not is handed out."""
    worker, operator = connect(), connect()
    for owner in (tenant, tenant[:-1] + "!"):
        end(worker, "idem_release", reserve(worker, "k", tenant=owner, store_request=True))
    hold(operator, tenant)
    due = "SELECT tenant FROM idem_due(100) WHERE tenant IN (%s, %s)"
    assert [found.tenant for found in rows(worker, due, (tenant, tenant[:-1] + "!"))] == [tenant[:-1] + "!"]
    unhold(operator, tenant)
    assert [found.tenant for found in rows(worker, due, (tenant, tenant[:-1] + "!"))] == [tenant]


def test_until_its_commit_it_stops_nobody_else(connect, tenant):
    """And never, when it is rolled back."""
    worker, operator = connect(), connect(autocommit=False)
    hold(operator, tenant)
    assert sqlstate(reserve, operator, "own", tenant=tenant) == "ID008"
    assert reserve(worker, "k1", tenant=tenant).granted
    operator.rollback()
    assert reserve(worker, "k2", tenant=tenant).granted
    assert reserve(operator, "own", tenant=tenant).granted


def test_a_prepared_hold(connect, tenant):
    """It is in force from COMMIT PREPARED on."""
    worker, operator = connect(), connect()
    reserve(worker, "warm", tenant=tenant)
    operator.execute("BEGIN")
    hold(operator, tenant)
    operator.execute("PREPARE TRANSACTION 'hold'")
    assert reserve(worker, "k1", tenant=tenant).granted
    operator.execute("COMMIT PREPARED 'hold'")
    assert sqlstate(reserve, worker, "k2", tenant=tenant) == "ID008"


def test_changes_of_one_hold_follow_one_another(connect, tenant):
    """Many operators at once: no error, and every change is on record."""
    sessions = [connect() for _ in range(8)]
    said = together(*[lambda conn=conn: hold(conn, tenant) for conn in sessions])
    assert said == ["held"] * 8
    said = together(*[lambda conn=conn: unhold(conn, tenant) for conn in sessions])
    assert sorted(said) == ["not_held"] * 7 + ["unheld"]
    found = rows(sessions[0], "SELECT n, held FROM idem_held WHERE value = %s ORDER BY n", (tenant,))
    assert found == [(n, True) for n in range(1, 9)] + [(9, False)]


def test_a_hold_from_an_old_snapshot(connect, tenant):
    """Under REPEATABLE READ an operator need not see the last change to make the next."""
    old, other = connect(autocommit=False, isolation="repeatable read"), connect()
    value(old, "SELECT count(*) FROM pg_class")
    hold(other, tenant)
    assert unhold(old, tenant) == "unheld"
    old.commit()
    assert reserve(other, "k", tenant=tenant).granted


def test_without_a_hold_nothing_is_looked_up(connect, key):
    """A session that has asked once reads neither the table nor its index again."""
    conn = connect(autocommit=False)
    scans = """SELECT pg_stat_get_xact_numscans('idem_held'::regclass) AS heap,
        pg_stat_get_xact_numscans('idem_held_pkey'::regclass) AS index"""
    commit(conn, reserve(conn, f"{key}/warm"))
    before = row(conn, scans)
    assert before.index, "the first call read the table, else nothing below would mean anything"
    for n in range(3):
        commit(conn, reserve(conn, f"{key}/{n}"))
    assert row(conn, scans) == before


def test_a_hold_travels_with_a_dump(shared_cluster, connect_fresh, fresh_dbname, tmp_path):
    """What was stopped is stopped in the copy."""
    origin = connect_fresh()
    hold(origin, "acme")
    hold(origin, "gone")
    unhold(origin, "gone")
    copy = f"{fresh_dbname}_copy"
    shared_cluster.createdb(copy)
    subprocess.run([shared_cluster.bindir / "pg_dump", "-f", tmp_path / "dump.sql", shared_cluster.dsn(fresh_dbname)],
                   check=True)
    shared_cluster.psql((tmp_path / "dump.sql").read_text(), dbname=copy)
    sessions = Sessions(shared_cluster, copy)
    conn = sessions()
    assert sqlstate(reserve, conn, "k", tenant="acme") == "ID008"
    assert reserve(conn, "k", tenant="gone").granted
    sessions.close()


# pg_idem.mode


@pytest.fixture(scope="module")
def server():
    """A server whose mode can be set, with a worker that comes by often."""
    with Cluster(settings={"fsync": False, "pg_idem.databases": "*", "pg_idem.naptime": "20ms"}) as cluster:
        cluster.psql("CREATE EXTENSION pg_idem")
        yield cluster


@pytest.fixture
def sessions(server):
    """Sessions in it; the mode is on again afterwards."""
    opened = Sessions(server, "postgres")
    yield opened
    set_mode(opened, "on")
    opened.close()


def set_mode(sessions, mode):
    """ALTER SYSTEM and a reload, waited for as any session sees it."""
    admin = sessions()
    admin.execute(f"ALTER SYSTEM SET pg_idem.mode = '{mode}'")
    admin.execute("SELECT pg_reload_conf()")
    wait_until(lambda: value(admin, "SHOW pg_idem.mode") == mode)


def heard(conn, mode):
    wait_until(lambda: value(conn, "SHOW pg_idem.mode") == mode)


def test_replay_only(sessions, key):
    """Nothing new starts in any session; answers, ends and reconciling go on."""
    conn, token = sessions(), new_token()
    done, open_one, lost = (reserve(conn, f"{key}/{name}") for name in ("done", "open", "lost"))
    free = reserve(conn, f"{key}/free", attempt_id=token)
    conn.execute("SELECT idem_register_action_type('mode marks', 'deduplicated_creation', marks_dispatch => true)")
    marking = reserve(conn, f"{key}/marking", action_type="mode marks")
    commit(conn, done, response={"n": 1})
    end(conn, "idem_mark_unknown", lost)
    set_mode(sessions, "replay_only")
    heard(conn, "replay_only")
    with pytest.raises(psycopg.Error) as caught:
        reserve(conn, f"{key}/new")
    assert caught.value.sqlstate == "ID008" and caught.value.diag.message_detail == "pg_idem.mode is replay_only."
    assert sqlstate(reserve, sessions(), f"{key}/new") == "ID008", "a session that begins now"
    assert reserve(conn, f"{key}/done").response == {"n": 1}
    assert commit(conn, open_one) == "committed"
    assert end(conn, "idem_release", free) == "retryable"
    assert sqlstate(reserve, conn, f"{key}/free") == "ID008"
    assert rows(conn, "SELECT * FROM idem_due(100)") == []
    assert sqlstate(end, conn, "idem_dispatch", marking) == "ID008", "granted before, not sent yet"
    assert reserve(conn, f"{key}/lost", can_reconcile=True).decision == "reconcile"
    set_mode(sessions, "on")
    heard(conn, "on")
    assert reserve(conn, f"{key}/new").granted
    assert end(conn, "idem_dispatch", marking)


def test_off(sessions, key):
    """Nothing is answered either; what happened can still be said, and people can look."""
    conn = sessions()
    done, open_one, lost = (reserve(conn, f"{key}/{name}") for name in ("done", "open", "lost"))
    commit(conn, done, response={"n": 1})
    set_mode(sessions, "off")
    heard(conn, "off")
    for pull in ("idem_due", "idem_reconcile_next"):
        assert sqlstate(rows, conn, f"SELECT * FROM {pull}()") == "ID008", pull
    for name in ("new", "done", "lost"):
        assert sqlstate(reserve, conn, f"{key}/{name}", can_reconcile=True) == "ID008", name
    assert commit(conn, open_one, response={"n": 2}) == "committed"
    assert end(conn, "idem_mark_unknown", lost) == "unknown"
    assert end(conn, "idem_add_evidence", lost, finding="applied") == "recorded"
    assert value(conn, "SELECT idem_decide(%s, 'applied', 'seen')", (lost.action_id,)) == "committed"
    assert status(conn, f"{key}/done").response == {"n": 1}
    set_mode(sessions, "on")
    heard(conn, "on")
    assert reserve(conn, f"{key}/open").response == {"n": 2}


def test_with_off_the_worker_stays_away(sessions, key):
    """It comes every 20 ms otherwise: a dead attempt stays as it is, and is worked off once the mode is on again."""
    conn = sessions()
    set_mode(sessions, "off")
    last_visit = "SELECT last_visit_at FROM idem_worker_status"

    def stays_away():
        """For half a second; one may have been on its way before."""
        last = value(conn, last_visit)
        outlive(conn, value(conn, "SELECT clock_timestamp() + interval '0.5 s'"))
        return value(conn, last_visit) == last and last
    last = wait_until(stays_away, timeout=30)
    set_mode(sessions, "on")
    wait_until(lambda: value(conn, last_visit) != last)


def test_no_session_is_exempt(sessions):
    """The mode is the server's: neither a session nor a role nor a database can have its own."""
    conn = sessions()
    conn.execute("SELECT idem_key('loads the library')")
    assert sqlstate(conn.execute, "SET pg_idem.mode = 'on'") == "55P02"
    assert sqlstate(conn.execute, "ALTER ROLE postgres SET pg_idem.mode = 'on'") == "55P02"
    assert sqlstate(conn.execute, "ALTER DATABASE postgres SET pg_idem.mode = 'on'") == "55P02"


def test_messages(sessions, key):
    """Nothing is claimed and nothing new accepted; what a relay has is acknowledged, duplicates are told so."""
    conn = sessions()
    conn.execute("CREATE SCHEMA IF NOT EXISTS app; SELECT idem_create_outbox('app.held')")
    conn.execute("SELECT idem_outbox_put('app.held', 't', 'a', '1', '{}'), idem_outbox_put('app.held', 't', 'a', '1', '{}')")
    claimed = row(conn, "SELECT * FROM idem_outbox_claim('app.held', 1)")
    assert row(conn, "SELECT * FROM idem_inbox_accept('c', %s)", (key,)).decision == "new"
    accept = "SELECT * FROM idem_inbox_accept('c', %s, tenant => %s)"
    for mode in ("replay_only", "off"):
        set_mode(sessions, mode)
        heard(conn, mode)
        assert sqlstate(rows, conn, "SELECT * FROM idem_outbox_claim('app.held')") == "ID008"
        assert sqlstate(row, conn, accept, (key + "2", "")) == "ID008"
        if mode == "replay_only":
            assert row(conn, accept, (key, "")).decision == "duplicate"
    assert value(conn, "SELECT idem_outbox_ack('app.held', %s, %s)", (claimed.id, claimed.claim_id)) == "acked"
    set_mode(sessions, "on")
    heard(conn, "on")
    assert len(rows(conn, "SELECT * FROM idem_outbox_claim('app.held')")) == 1
    assert row(conn, accept, (key + "2", "")).decision == "new"
    # A tenant's hold stops its own messages.
    hold(conn, key)
    assert sqlstate(row, conn, accept, (key + "3", key)) == "ID008"
    assert row(conn, accept, (key + "3", "")).decision == "new"
    unhold(conn, key)

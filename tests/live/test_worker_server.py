"""The background worker and the server's life: crashes, signals, shutdown, settings, slots, standbys, pg_upgrade."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from cluster import SUPERUSER, Cluster, _alive, _children, free_port
from sessions import commit, outlive, reserve, row, rows, value, wait_until

WORKING = {"fsync": False, "autovacuum": False, "pg_idem.databases": "*", "pg_idem.naptime": "10ms"}


@pytest.fixture(scope="module")
def server():
    with Cluster(settings=WORKING) as cluster:
        cluster.psql("CREATE EXTENSION pg_idem")
        yield cluster


@pytest.fixture
def own_server():
    """For tests that end it."""
    with Cluster(settings={**WORKING, "synchronous_standby_names": "nobody", "synchronous_commit": "local"}) as cluster:
        cluster.psql("CREATE EXTENSION pg_idem")
        yield cluster


def launcher(conn):
    found = rows(conn, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_idem launcher'")
    return found[0].pid if found else None


def works(cluster, key):
    """A dead attempt is noticed."""
    with cluster.connect() as conn:
        reserve(conn, key, lease_seconds=0.01)
        wait_until(lambda: value(conn, "SELECT state FROM idem_actions WHERE key = %s", (key,)) == "unknown", timeout=60)


def backlog(cluster, count=5000):
    with cluster.connect() as conn:
        conn.execute("SELECT count(*) FROM generate_series(1, %s) AS n, "
                     "LATERAL idem_reserve('backlog' || n, '{}', lease_seconds => 0.01)", (count,))


def test_back_after_a_crash_of_another_backend(server):
    """Failure 84: the server starts its shared memory anew, the launcher with it."""
    works(server, "before")
    for n in range(2):
        before = len(server.log())
        with server.connect() as conn:
            os.kill(conn.info.backend_pid, signal.SIGSEGV)
        wait_until(lambda: "ready to accept connections" in server.log()[before:], timeout=60)
        works(server, f"after {n}")
        assert "pg_idem " not in server.log()[before:], "no complaint at its start"


def test_back_after_its_launcher_was_terminated(own_server):
    """Failure 85: an administrator may say pg_terminate_backend; within five seconds there is a new one."""
    for n in range(2):
        with own_server.connect() as conn:
            old = wait_until(lambda: launcher(conn))
            assert value(conn, "SELECT pg_terminate_backend(%s)", (old,))
            wait_until(lambda: launcher(conn) not in (None, old), timeout=60)
        works(own_server, f"terminated {n}")


def test_terminated_workers_do_no_harm(server):
    """Cancelled or terminated in the middle of its work a worker leaves, and the next one goes on."""
    backlog(server, 4000)
    with server.connect() as conn:
        for stop in ("pg_terminate_backend", "pg_cancel_backend") * 20:
            conn.execute("SELECT pg_sleep(0.01)")
            conn.execute(f"SELECT {stop}(pid) FROM pg_stat_activity WHERE backend_type = 'pg_idem worker'")
        wait_until(lambda: value(conn, "SELECT count(*) = 0 FROM idem_actions WHERE state = 'started'"), timeout=60)
        assert value(conn, "SELECT count(*) FROM idem_unresolved WHERE key LIKE 'backlog%'") == 4000


@pytest.fixture
def configure(server):
    """Settings of the running server, changed by a reload and put back afterwards."""
    with server.connect() as conn:
        def change(**settings):
            for name, setting in settings.items():
                conn.execute(f"ALTER SYSTEM SET pg_idem.{name} = '{setting}'")
            conn.execute("SELECT pg_reload_conf()")
            for name, setting in settings.items():
                wait_until(lambda: value(conn, f"SHOW pg_idem.{name}") == setting)
        yield change
        conn.execute("ALTER SYSTEM RESET ALL")
        conn.execute("SELECT pg_reload_conf()")


LAST_VISIT = "SELECT last_visit_at FROM idem_worker_status"
PROCESSES = "SELECT * FROM pg_stat_activity WHERE backend_type LIKE 'pg_idem%'"


def between_visits(conn):
    """What a hundred looks show while no worker comes."""
    def looks():
        last = value(conn, LAST_VISIT)
        shown = [found for _ in range(100) for found in rows(conn, PROCESSES)]
        visited = value(conn, LAST_VISIT) != last or any(found.backend_type == "pg_idem worker" for found in shown)
        return None if visited else shown
    return wait_until(looks, timeout=60)


def test_settings_change_with_a_reload(server, configure):
    """naptime and databases, without a restart. Failure 89: a name that no database has is said once, and no trouble."""
    works(server, "all")
    before = len(server.log())

    def missed(name):
        return server.log()[before:].count(f'pg_idem.databases has the name "{name}", and there is no such database')

    configure(databases="nobody, else", naptime="10ms")
    wait_until(lambda: missed("else"))
    with server.connect() as conn:
        between_visits(conn)
        last = value(conn, LAST_VISIT)
        conn.execute("SELECT pg_sleep(0.5)")
        assert value(conn, LAST_VISIT) == last
        assert missed("nobody") == missed("else") == 1
        configure(databases="nobody , postgres")
        works(server, "named")
        # Once there is one, it is visited; and missed again when it is gone.
        server.createdb("nobody")
        server.psql("CREATE EXTENSION pg_idem", dbname="nobody")
        works_there(server, "nobody")
        conn.execute("DROP DATABASE nobody")
        wait_until(lambda: missed("nobody") == 2, timeout=60)

        configure(databases="*", naptime="1s")
        pause = "SELECT extract(epoch FROM next_visit_at - last_visit_at) = 1 FROM idem_worker_status"
        wait_until(lambda: value(conn, pause), timeout=60)
        visits = [value(conn, LAST_VISIT)]
        for _ in range(3):
            visits.append(wait_until(lambda: rows(conn, LAST_VISIT + " WHERE last_visit_at > %s", visits[-1:]),
                                     timeout=60)[0].last_visit_at)
        assert all((later - earlier).total_seconds() > 0.95 for earlier, later in zip(visits, visits[1:])), visits
        configure(naptime="1h")
        between_visits(conn)
        configure(naptime="10ms")
        works(server, "woken")


def works_there(server, database):
    with server.connect(database) as conn:
        wait_until(lambda: value(conn, LAST_VISIT), timeout=60)


def test_between_visits_nothing_is_held(server, configure):
    """The launcher stands there under its own name, in no database and without a snapshot, and nobody else does."""
    configure(naptime="1h")
    with server.connect() as conn:
        for found in between_visits(conn):
            assert found.backend_type == "pg_idem launcher"
            assert (found.datname, found.backend_xmin, found.backend_xid, found.xact_start) == (None, None, None, None)


def test_fast_shutdown_does_not_wait_for_a_standby(own_server):
    """Failure 86: no synchronous standby is there, and the worker has work to commit."""
    own_server.psql("ALTER DATABASE postgres SET synchronous_commit = on; ALTER SYSTEM SET synchronous_commit = on;"
                    "SELECT pg_reload_conf()")
    own_server.psql("SET synchronous_commit = local; SELECT count(*) FROM generate_series(1, 8000) AS n, "
                    "LATERAL idem_reserve('k' || n, '{}', lease_seconds => 0.01)")
    with own_server.connect() as conn:
        wait_until(lambda: value(conn, "SELECT unknown > 0 FROM idem_worker_status"))
    began = time.monotonic()
    own_server.stop("fast")
    assert time.monotonic() - began < 5


def test_a_long_batch_ends_early_when_it_has_to(own_server):
    """However long pg_idem.batch_size makes one: a database's owner waits four seconds, a shutdown under five."""
    own_server.createdb("shop")
    with own_server.connect("shop") as conn:
        for statement in ("ALTER SYSTEM SET pg_idem.batch_size = 10000",
                          "ALTER SYSTEM SET pg_idem.databases = 'none'", "SELECT pg_reload_conf()",
                          "CREATE EXTENSION pg_idem"):
            conn.execute(statement)
        conn.execute("SELECT count(*) FROM generate_series(1, 60000) AS n, "
                     "LATERAL idem_reserve('k' || n, '{}', lease_seconds => 0.01)")
        conn.execute("ALTER SYSTEM SET pg_idem.databases = 'shop'")
        conn.execute("SELECT pg_reload_conf()")
    with own_server.connect() as admin:
        busy = "SELECT FROM pg_stat_activity WHERE datname = 'shop' AND backend_type = 'pg_idem worker'"
        wait_until(lambda: rows(admin, busy))
        began = time.monotonic()
        admin.execute("ALTER DATABASE shop RENAME TO store")
        assert time.monotonic() - began < 4
    began = time.monotonic()
    own_server.stop("fast")
    assert time.monotonic() - began < 5


def test_gone_with_the_postmaster(own_server):
    """Failure 85: nothing of the server is left five seconds after its postmaster was killed."""
    backlog(own_server)
    left = _children(own_server.pid)
    own_server._server.kill()
    own_server._server.wait(timeout=10)
    wait_until(lambda: not any(_alive(pid) for pid in left), timeout=5)


@pytest.mark.parametrize("slots, said", [(0, "LOG:  too many background workers"), (1, "no free worker slot")])
def test_without_a_free_worker_slot(slots, said):
    """Failure 88: the server works, says so once, and decides rightly, since deadlines are judged when read."""
    settings = {**WORKING, "max_worker_processes": slots, "max_logical_replication_workers": 0}
    with Cluster(settings=settings) as cluster:
        cluster.psql("CREATE EXTENSION pg_idem")
        with cluster.connect() as conn:
            got = reserve(conn, "k", lease_seconds=0.01)
            outlive(conn, got.lease_expires_at)
            wait_until(lambda: said in cluster.log())
            # Time for a hundred more tries.
            conn.execute("SELECT pg_sleep(1)")
            assert reserve(conn, "k").decision == "unknown"
            conn.execute("CALL idem_sweep_all()")
            got = reserve(conn, "done")
            assert commit(conn, got) == "committed"
            assert row(conn, "SELECT * FROM idem_worker_status").last_visit_at is None
        assert cluster.log().count(said) == 1, cluster.log()


def test_quiet_on_a_standby_and_at_work_after_promotion():
    """Failure 87: nothing in recovery, no complaint, and a start without a restart."""
    settings = {**WORKING, "wal_level": "replica", "max_wal_senders": 4, "hot_standby": True}
    with Cluster(settings=settings) as primary:
        primary.psql("CREATE EXTENSION pg_idem")
        works(primary, "k")
        standby = Cluster(settings=settings)
        try:
            shutil.rmtree(standby.data)
            owner = {"user": SUPERUSER, "group": SUPERUSER} if os.geteuid() == 0 else {}
            subprocess.run([primary.bindir / "pg_basebackup", "-d", primary.dsn(), "-D", standby.data, "-R", "-X",
                            "stream", "-c", "fast"], check=True, cwd=standby.dir, **owner)
            standby._configure({"unix_socket_directories": standby.dir})
            # What the primary's worker prunes every few milliseconds would cancel the looks at the standby.
            with primary.connect() as conn:
                conn.execute("ALTER SYSTEM SET pg_idem.databases = 'none'")
                conn.execute("SELECT pg_reload_conf()")
            standby.start()
            with standby.connect() as conn:
                conn.execute("SELECT pg_sleep(0.5)")
                assert launcher(conn) is None
                assert row(conn, "SELECT * FROM idem_worker_status").preloaded
                assert "ERROR" not in standby.log() and "pg_idem " not in standby.log()
                assert value(conn, "SELECT pg_promote(wait => false)")
                wait_until(lambda: launcher(conn))
            works(standby, "promoted")
        finally:
            standby.close()


def test_no_worker_during_pg_upgrade():
    """Failure 102: pg_upgrade runs both servers with -b, and nothing may change there."""
    cluster = Cluster(settings=WORKING)
    try:
        owner = {"user": SUPERUSER, "group": SUPERUSER, "extra_groups": []} if os.geteuid() == 0 else {}
        cluster.port = free_port()
        cluster._configure({"port": cluster.port})
        with open(cluster.dir / "log", "a") as log:
            cluster._server = subprocess.Popen(
                [cluster.bindir / "postgres", "-D", cluster.data, "-b", "-c", "listen_addresses="], cwd=cluster.dir,
                stdout=log, stderr=log, start_new_session=True, **owner)
        assert cluster._wait_until_ready(), cluster.log()
        with cluster.connect() as conn:
            conn.execute("SELECT pg_sleep(0.3)")
            assert launcher(conn) is None
        assert "pg_idem " not in cluster.log()
    finally:
        cluster.close()

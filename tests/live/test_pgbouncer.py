"""Through pgbouncer in transaction mode, two servers for eight clients, nothing reset between them."""

import os
import shutil
import socket
import subprocess
import threading
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from cluster import SUPERUSER
from sessions import commit, end, new_token, reserve, rows, status, together, value, wait_until

CLIENTS, POOL = 8, 2
SUITE = Path(__file__).parents[1] / "pg_regress"
PGBOUNCER = shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin")

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")


@pytest.fixture(scope="module")
def pool(shared_cluster, dbname):
    """Opens client connections to a pooler that keeps at most POOL sessions of the server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    directory = Path(shared_cluster.dir) / "pgbouncer"
    directory.mkdir()
    (directory / "users").write_text(f'"{SUPERUSER}" ""\n')
    (directory / "ini").write_text(f"""[databases]
* = user={SUPERUSER} host={shared_cluster.dir} port={shared_cluster.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
auth_file = {directory}/users
pool_mode = transaction
default_pool_size = {POOL}
max_client_conn = 100
server_reset_query =
ignore_startup_parameters = extra_float_digits,options
""")
    if os.geteuid() == 0:
        for path in (directory, *directory.iterdir()):
            shutil.chown(path, SUPERUSER, SUPERUSER)
    owner = {"user": SUPERUSER, "group": SUPERUSER} if os.geteuid() == 0 else {}
    with open(directory / "log", "w") as log:
        process = subprocess.Popen([PGBOUNCER, directory / "ini"], stdout=log, stderr=log, cwd=directory, **owner)

    def connect(**kw):
        # Named prepared statements do not survive a change of server (facts: pgbouncer before 1.21).
        return psycopg.connect(host="127.0.0.1", port=port, user=SUPERUSER, dbname=dbname, prepare_threshold=None,
                               **{"autocommit": True, **kw})

    def answers():
        try:
            connect().close()
            return True
        except psycopg.OperationalError:
            assert process.poll() is None, (directory / "log").read_text()
            return False
    connect.port = port
    try:
        wait_until(answers)
        yield connect
    finally:
        process.terminate()
        process.wait(10)


def test_a_mixed_workload(pool, conn, key):
    """Each client reserves in one transaction and ends in another, on whatever server it gets: one effect a key."""
    effects, errors, lock = Counter(), Counter(), threading.Lock()

    def client(number):
        with pool() as mine:
            for n in range(60):
                name = f"{key}/{n}"
                try:
                    got = reserve(mine, name, worker=f"client {number}")
                    if got.granted:
                        with lock:
                            effects[name] += 1
                        if n % 3 == 0:
                            end(mine, "idem_mark_unknown", got)
                        elif n % 3 == 1:
                            end(mine, "idem_renew", got)
                        commit(mine, got, response={"n": n})
                    elif n % 7 == 0:
                        assert reserve(mine, name, {"amount": "other"}).decision == "conflict"
                except psycopg.Error as error:
                    with lock:
                        errors[error.sqlstate] += 1

    together(*[lambda number=number: client(number) for number in range(CLIENTS)])
    assert errors == {} and effects == {f"{key}/{n}": 1 for n in range(60)}
    assert value(conn, "SELECT count(*) FROM idem_actions WHERE starts_with(key, %s) AND state = 'committed'", (key,)) == 60
    used = value(conn, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
                 "AND client_port = -1")
    assert used <= POOL


def test_transactions_that_end_in_every_way(pool, conn, key):
    """What one client's transaction left in a server's memory must not reach the next client's."""
    def client(number):
        with pool(autocommit=False) as mine:
            for n in range(40):
                name = f"{key}/{number}/{n}"
                got = reserve(mine, name)
                assert got.granted
                if n % 4 == 0:
                    mine.rollback()
                    assert reserve(mine, name).granted
                    mine.rollback()
                elif n % 4 == 1:
                    try:
                        mine.execute("SELECT 1 / 0")
                    except psycopg.Error:
                        mine.rollback()
                elif n % 4 == 2:
                    mine.commit()
                    assert reserve(mine, name).decision == "pending", "not 55000: that was another transaction"
                    mine.commit()
                else:
                    commit(mine, got)
                    mine.commit()
        return "done"

    done = together(*[lambda number=number: client(number) for number in range(CLIENTS)])
    assert done == CLIENTS * ["done"], done


def test_a_tenant_is_an_argument(pool, key):
    """Failure 111: a setting of another client on the same server does not change whose action it is."""
    one, two = pool(), pool()
    with one, two:
        one.execute("SET app.tenant = 'a'")
        mine, other = reserve(one, key, tenant="a"), reserve(two, key)
        assert mine.granted and other.granted and mine.action_id != other.action_id


def test_lost_between_two_transactions(pool, conn, key):
    """A client dies between reserve and commit; the next one asks under the same token through another server."""
    token = new_token()
    mine = pool()
    assert reserve(mine, key, attempt_id=token).granted
    mine.close()
    with pool() as again:
        answer = reserve(again, key, attempt_id=token)
        assert answer.decision == "pending"
        assert value(again, "SELECT idem_commit(%s, %s::uuid)", (answer.action_id, token)) == "committed"
    assert status(conn, key).state == "committed"


def test_twins_may_outnumber_the_pool(pool, conn, key):
    """Seven clients wait for one open transaction, with two servers between them: all get an answer in the end."""
    conn.execute("SELECT 1")
    holder = pool(autocommit=False)
    got = reserve(holder, key)
    waiting = [lambda: reserve(pool(), key, wait_seconds=0.2).decision for _ in range(CLIENTS - 1)]
    assert together(*waiting) == ["pending"] * (CLIENTS - 1)
    holder.commit()
    holder.close()
    assert commit(conn, got) == "committed"


@pytest.mark.skipif(not any(SUITE.glob("expected/*.out")), reason="there is no SQL suite yet")
def test_the_sql_suite(pool, shared_cluster, fresh_dbname, tmp_path):
    """The SQL files give the same output through the pooler: nothing in them, or in us, rests on the session."""
    with shared_cluster.connect() as conn:
        # What pg_regress asks for in PGOPTIONS, which a pooler cannot pass on.
        conn.execute(f"ALTER DATABASE {fresh_dbname} SET intervalstyle = 'postgres_verbose'")
    pgxs = subprocess.run([shared_cluster.pg_config, "--pgxs"], check=True, capture_output=True, text=True).stdout.strip()
    names = sorted(path.stem for path in SUITE.glob("expected/*.out"))
    done = subprocess.run(
        [Path(pgxs).parents[1] / "test/regress/pg_regress", f"--bindir={shared_cluster.bindir}", f"--inputdir={SUITE}",
         f"--outputdir={tmp_path}", "--use-existing", f"--dbname={fresh_dbname}", "--host=127.0.0.1", f"--port={pool.port}",
         f"--user={SUPERUSER}", *names], capture_output=True, text=True, timeout=120)
    diffs = tmp_path / "regression.diffs"
    assert done.returncode == 0, diffs.read_text(errors="replace") if diffs.exists() else done.stdout + done.stderr


def test_no_session_state_is_left(pool, conn):
    """Neither advisory locks nor open transactions stay on the servers."""
    query = """SELECT a.state, l.locktype FROM pg_stat_activity AS a LEFT JOIN pg_locks AS l ON l.pid = a.pid
               WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
               AND (a.state LIKE 'idle in%%' OR l.locktype = 'advisory')"""
    assert wait_until(lambda: not rows(conn, query.replace("%%", "%")))

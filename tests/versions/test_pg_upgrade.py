"""pg_upgrade from PostgreSQL 16 to 18: every row, every answer, and the sweep goes on. Failure 102.

Run by scripts/versions.sh, which has installed the extension in both servers.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from psycopg import sql

from cluster import Cluster, _owner
from sessions import Sessions, commit, reserve, rows, status, sweep, value, wait_until
from test_dump import contents, fill

ROOT = Path(__file__).resolve().parents[2]
NAME = 'shop "one"'


def pg_config(major):
    return subprocess.run([ROOT / "scripts/servers.sh", major], check=True, text=True, capture_output=True).stdout.strip()


@pytest.mark.parametrize("preload", [True, False], ids=["preloaded", "not preloaded"])
def test_from_16_to_18(preload):
    settings = {"fsync": False, **({"pg_idem.databases": "*", "pg_idem.naptime": "10ms"} if preload else {})}
    old = Cluster(pg_config=pg_config("16"), settings=settings, preload=preload)
    new = Cluster(pg_config=pg_config("18"), settings=settings, preload=preload, initdb=["--no-data-checksums"])
    try:
        old.start()
        with old.connect() as conn:
            conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(NAME)))
            if preload:
                # So that what is filled stays as it is until the upgrade.
                conn.execute("ALTER SYSTEM SET pg_idem.databases = ''")
                conn.execute("SELECT pg_reload_conf()")
        sessions = Sessions(old, "'shop \"one\"'")
        conn = sessions()
        conn.execute('CREATE SCHEMA "My Schema"; CREATE EXTENSION pg_idem SCHEMA "My Schema"; SET search_path = "My Schema"')
        got = fill(conn)
        before = contents(conn)
        sessions.close()
        old.stop()
        upgrade(old, new)

        new.start()
        sessions = Sessions(new, "'shop \"one\"'")
        conn = sessions()
        conn.execute('SET search_path = "My Schema"')
        assert value(conn, "SHOW server_version_num").startswith("18")
        if preload:
            # Nothing has swept during the upgrade; now somebody does.
            wait_until(lambda: status(conn, "dead", "té").state == "unknown")
        else:
            assert contents(conn) == before
            sweep(conn)
            assert status(conn, "dead", "té").state == "unknown"
        replay = reserve(conn, "committed", {"of": "committed"}, tenant="té")
        assert (replay.decision, replay.response) == ("replay", {"n": [1, 2.50, "é"]})
        assert reserve(conn, "unknown", {"of": "unknown"}, tenant="té").decision == "unknown"
        assert commit(conn, got["started"], response={}) == "committed", "the token owns the attempt still"
        assert reserve(conn, "new", {}).granted
        assert rows(conn, "SELECT installation_id::text FROM idem_installation")[0].installation_id in str(before)
        sessions.close()
    finally:
        new.close()
        old.close()


def upgrade(old, new):
    """Runs pg_upgrade where its user may write, and shows that no worker ran meanwhile."""
    before = len(old.log())
    # The worker may have every database again, in the old server as in the new one.
    auto = old.data / "postgresql.auto.conf"
    auto.write_text("")
    if os.geteuid() == 0:
        shutil.chown(auto, "postgres", "postgres")
    done = subprocess.run([new.bindir / "pg_upgrade", "-b", old.bindir, "-B", new.bindir, "-d", old.data, "-D", new.data,
                           "-U", "postgres", "-s", new.dir, "--no-sync"], cwd=new.dir, text=True, capture_output=True,
                          env=new.server_env, **_owner())
    logs = "".join(path.read_text() for path in new.data.rglob("pg_upgrade_server.log"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "pg_idem " not in logs + old.log()[before:]

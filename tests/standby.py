"""Standbys of a throw-away cluster, and what happens to them."""

import shutil
import subprocess

from cluster import Cluster, _owner
from sessions import value, wait_until

SETTINGS = {"wal_level": "replica", "max_wal_senders": 4, "hot_standby": True}


def standby_of(primary):
    """A streaming standby, started; the caller closes it. The primary runs with SETTINGS."""
    standby = Cluster(pg_config=primary.pg_config)
    try:
        shutil.rmtree(standby.data)
        subprocess.run([primary.bindir / "pg_basebackup", "-d", primary.dsn(), "-D", standby.data, "-R", "-X", "stream",
                        "-c", "fast"], check=True, cwd=standby.dir, **_owner())
        # The copy has the primary's settings, and where to find it: by TCP, which is the same for every user.
        standby._configure({"unix_socket_directories": standby.dir, "synchronous_standby_names": ""})
        return standby.start()
    except BaseException:
        standby.close()
        raise


def synchronise(primary):
    """From here on the primary's commits wait for its standby."""
    with primary.connect() as conn:
        conn.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        conn.execute("SELECT pg_reload_conf()")
        wait_until(lambda: value(conn, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"), 30)
        wait_until(lambda: value(conn, "SHOW synchronous_standby_names") == "*")


def promote(standby):
    """The standby takes over, and waits for no standby itself."""
    with standby.connect() as conn:
        assert value(conn, "SELECT pg_promote()")
        conn.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        conn.execute("SELECT pg_reload_conf()")
        wait_until(lambda: value(conn, "SHOW synchronous_standby_names") == "")

"""The throw-away cluster keeps its promises: it survives a crash, leaves nothing behind, and leaks no backtraces."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import Cluster


@pytest.fixture(scope="module")
def cluster():
    with Cluster(settings={"fsync": False}, preload=False) as cluster:
        yield cluster


def test_survives_sigkill_of_every_process(cluster):
    with cluster.connect() as conn:
        conn.execute("CREATE TABLE kept AS SELECT 1 AS n")
    cluster.kill9()
    assert cluster.pid is None
    cluster.start()
    assert cluster.psql("SELECT n FROM kept") == "1\n"
    assert "not properly shut down" in cluster.log()


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1", "SQL_ASCII"])
def test_creates_databases_of_any_encoding(cluster, encoding):
    cluster.createdb(f"in_{encoding}", encoding=encoding)
    assert cluster.psql("SHOW server_encoding", dbname=f"in_{encoding}") == f"{encoding}\n"


def test_servers_have_no_rust_backtrace_in_their_environment(cluster):
    environment = Path(f"/proc/{cluster.pid}/environ").read_bytes()
    assert b"RUST_BACKTRACE" not in environment


def test_alter_system_wins_over_the_settings_given(cluster):
    cluster.psql("ALTER SYSTEM SET fsync = on")
    cluster.restart()
    assert cluster.psql("SHOW fsync") == "on\n"


def test_says_why_a_server_did_not_start():
    with pytest.raises(RuntimeError, match="no_such_setting"):
        with Cluster(settings={"no_such_setting": 1}, preload=False):
            pass


@pytest.mark.parametrize("end", ["raise RuntimeError", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"])
def test_leaves_nothing_behind(end):
    script = (
        "from cluster import Cluster\n"
        # Whoever runs the suite in the background of a script hands down that Ctrl-C is ignored.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with Cluster(preload=False) as cluster:\n"
        "    print(cluster.pid, cluster.dir, flush=True)\n"
        f"    {end}\n"
    )
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)})
    assert done.returncode in (1, -signal.SIGINT), done.stderr
    pid, directory = done.stdout.split()
    assert not Path(directory).exists()
    assert not Path(f"/proc/{pid}").exists()

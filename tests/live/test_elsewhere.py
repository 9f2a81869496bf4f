"""The SQL suite on a server that differs from the usual one: ICU's Turkish, checksums, another schema."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from cluster import Cluster
from sessions import value

ROOT = Path(__file__).resolve().parents[2]


def suite(cluster, name, results, without=None):
    """Runs the SQL files in a database that is there, those without a word."""
    files = [path.stem for path in sorted((ROOT / "tests/pg_regress/sql").glob("*.sql"))
             if not (without and re.search(without, path.read_text()))]
    assert len(files) > 40
    done = subprocess.run(["make", "--no-print-directory", "installcheck", f"DBNAME={name}", f"RESULTS={results}",
                           f"REGRESS={' '.join(files)}", "REGRESS_FLAGS=--use-existing"], cwd=ROOT, text=True, capture_output=True,
                          env={**cluster.env(), "PG_CONFIG": os.environ.get("PG_CONFIG", "pg_config")})
    diffs = results / "regression.diffs"
    assert done.returncode == 0, (diffs.read_text() if diffs.exists() else done.stdout + done.stderr)[-4000:]


@pytest.fixture(scope="module")
def server():
    settings = {"fsync": False, "default_toast_compression": "pglz", "wal_level": "logical"}
    with Cluster(settings=settings, initdb=["--data-checksums", "--locale-provider=icu", "--icu-locale=tr"]) as cluster:
        yield cluster


def test_with_another_collation_and_checksums(server, tmp_path):
    """What the database's collation says about order, case and equality must not reach identity or answers."""
    with server.connect() as conn:
        conn.execute("CREATE DATABASE \"Mağaza 1\"")
        conn.execute("ALTER DATABASE \"Mağaza 1\" SET lc_messages = 'C'")
    with server.connect("'Mağaza 1'") as conn:
        conn.execute("CREATE EXTENSION pg_idem")
        assert value(conn, "SHOW data_checksums") == "on"
        assert value(conn, "SELECT datlocprovider::text FROM pg_database WHERE datname = current_database()") == "i"
        assert value(conn, "SELECT upper('i' COLLATE \"default\")") == "İ", "Turkish it is"
    suite(server, "Mağaza 1", tmp_path)


def test_in_another_schema(server, tmp_path):
    """Failure 104: the extension's name for itself is nowhere written out."""
    server.createdb("elsewhere")
    with server.connect("elsewhere") as conn:
        conn.execute('CREATE SCHEMA "My Schema"; CREATE EXTENSION pg_idem SCHEMA "My Schema"')
        conn.execute("ALTER DATABASE elsewhere SET search_path = \"My Schema\", public")
        conn.execute("ALTER DATABASE elsewhere SET lc_messages = 'C'")
    suite(server, "elsewhere", tmp_path, without=r"search_path|\bpublic\b")

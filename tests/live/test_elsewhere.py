"""The SQL suite on a server that differs from the usual one: ICU's Turkish, the C library's German, checksums, another
schema."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from cluster import Cluster
from sessions import Sessions, commit, outlive, reserve, row, rows, sqlstate, sweep, value

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
    turkish = ["--locale-provider=icu", "--icu-locale=tr"] if built_with_icu() else []
    with Cluster(settings=settings, initdb=["--data-checksums", *turkish]) as cluster:
        yield cluster


def built_with_icu():
    asked = [os.environ.get("PG_CONFIG", "pg_config"), "--configure"]
    configure = subprocess.run(asked, check=True, text=True, capture_output=True).stdout
    # By default from PostgreSQL 16 on, not before.
    return "--with-icu" in configure or ("--without-icu" not in configure and major() >= 16)


def major():
    asked = [os.environ.get("PG_CONFIG", "pg_config"), "--version"]
    return int(re.search(r"\d+", subprocess.run(asked, check=True, text=True, capture_output=True).stdout)[0])


def test_with_another_collation_and_checksums(server, tmp_path):
    """What the database's collation says about order, case and equality must not reach identity or answers."""
    with server.connect() as conn:
        conn.execute("CREATE DATABASE \"Mağaza 1\"")
        conn.execute("ALTER DATABASE \"Mağaza 1\" SET lc_messages = 'C'")
    with server.connect("'Mağaza 1'") as conn:
        conn.execute("CREATE EXTENSION pg_idem")
        assert value(conn, "SHOW data_checksums") == "on"
        if built_with_icu():
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


# The C library's own locales


@pytest.fixture(scope="module")
def german():
    """A server whose databases sort as German dictionaries do. The locale is built where nothing else finds it."""
    locales = Path(tempfile.mkdtemp(prefix="pg_idem-locales-", dir="/tmp"))
    try:
        locales.chmod(0o755)
        subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", locales / "de_DE.UTF-8"], check=True)
        with Cluster(settings={"fsync": False, "wal_level": "logical"}, env={"LOCPATH": str(locales)},
                     initdb=["--locale-provider=libc", "--locale=de_DE.UTF-8"]) as cluster:
            yield cluster
    finally:
        shutil.rmtree(locales)


def test_with_a_locale_of_the_c_library(german, tmp_path):
    with german.connect() as conn:
        conn.execute("CREATE DATABASE \"Läden\"")
        conn.execute("ALTER DATABASE \"Läden\" SET lc_messages = 'C'")
    with german.connect("Läden") as conn:
        conn.execute("CREATE EXTENSION pg_idem")
        assert value(conn, "SELECT datcollate FROM pg_database WHERE datname = current_database()") == "de_DE.UTF-8"
        assert value(conn, "SELECT 'a b' > 'ab'") is False and value(conn, "SELECT 'Z' > 'a'") is True, "German it is"
    suite(german, "Läden", tmp_path)


# By bytes in another order than in a German dictionary, or equal there at first sight.
NAMES = ["1-1", "11", "1 1", "a b", "ab", "a-b", "A", "a", "Ä", "ä", "ae", "b", "B", "ß", "ss", "Z", "z"]


def contents(conn):
    """What names find, each thing by the name it was made under."""
    found = {name: [reserve(conn, key, tenant=tenant, action_type=kind).resource_id for tenant, kind, key in placed(name)]
             for name in NAMES}
    return found, rows(conn, "SELECT tenant, key, action_type, state FROM idem_actions ORDER BY 1, 2, 3")


def placed(name):
    """A name in the place of each: tenant, action type, key."""
    return (name, "default", "k"), ("", name, "k of " + name), ("", "default", name)


def test_names_that_sort_otherwise(german, tmp_path):
    """Failure 103: each name finds its own, is visited, held and dumped, whatever the server takes for before or equal."""
    for name in ("names", "copy"):
        with german.connect() as conn:
            conn.execute(f"CREATE DATABASE {name}")
    # One sorts by bytes: what is restored there was in another order.
    german.createdb("bytes")
    sessions = Sessions(german, "names")
    conn = sessions()
    conn.execute("CREATE EXTENSION pg_idem; CREATE SCHEMA app; SELECT idem_create_outbox('app.outbox', true)")
    orders = row(conn, """SELECT array_agg(n ORDER BY n) AS german, array_agg(n ORDER BY n COLLATE "C") AS bytes
        FROM unnest(%s::text[]) AS n""", (NAMES,))
    assert orders.german != orders.bytes, "else nothing below would mean anything"
    for name in NAMES:
        conn.execute("SELECT idem_register_action_type(%s, 'idempotent_mutation', lookup_hint => %s)", (name, name))
        for n, (tenant, kind, key) in enumerate(placed(name)):
            got = reserve(conn, key, tenant=tenant, action_type=kind)
            assert got.decision == "execute", (name, n)
            assert commit(conn, got, resource_id=f"{name} {n}") == "committed"
        dead = reserve(conn, "dead " + name, lease_seconds=0.01)
        assert row(conn, "SELECT * FROM idem_inbox_accept(%s, %s)", (name, name)).decision == "new"
        conn.execute("SELECT idem_outbox_put('app.outbox', 't', 'a', %s, '{}')", (name,))
    for name in NAMES:
        assert value(conn, "SELECT lookup_hint FROM idem_policy WHERE name = %s", (name,)) == name
        assert row(conn, "SELECT * FROM idem_inbox_accept(%s, %s)", (name, name)).decision == "duplicate"
    assert value(conn, "SELECT count(*) FROM idem_outbox_claim('app.outbox', 100)") == len(NAMES), "an aggregate each"
    # Of two that look alike one is held.
    for held, free in (("1-1", "11"), ("a b", "ab"), ("ß", "ss"), ("ä", "Ä")):
        assert value(conn, "SELECT idem_hold('tenant', %s, 'a test')", (held,)) == "held"
        assert sqlstate(reserve, conn, "new", tenant=held) == "ID008" and reserve(conn, "new", tenant=free).granted
        assert value(conn, "SELECT idem_unhold('tenant', %s)", (held,)) == "unheld"
    outlive(conn, dead.lease_expires_at)
    sweep(conn)
    assert value(conn, "SELECT count(*) FROM idem_unresolved WHERE key LIKE 'dead %'") == len(NAMES)

    expected = contents(conn)
    assert expected[0] == {name: [f"{name} {n}" for n in range(3)] for name in NAMES}
    sessions.close()
    subprocess.run([german.bindir / "pg_dump", "-Fc", "-f", tmp_path / "dump", german.dsn("names")], check=True)
    for name in ("copy", "bytes"):
        subprocess.run([german.bindir / "pg_restore", "--exit-on-error", "-d", german.dsn(name), tmp_path / "dump"], check=True)
        with german.connect(name) as copy:
            found, listed = contents(copy)
            assert found == expected[0] and sorted(listed) == sorted(expected[1])

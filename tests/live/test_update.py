"""From each released version to this one: the catalog of a fresh install, every row as it was, the SQL suite green.

sql/released has the install script of each release, put there by `make freeze`, sql/update what leads from one to the
next. Before there is a second release, a version 0.0.9 that is made up here stands in for an older one.
"""

import os
import re
import subprocess
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from catalog import catalog
from cluster import Cluster
from servertree import ServerTree
from sessions import Sessions, reserve, rows, value
from test_dump import contents, fill

ROOT = Path(__file__).resolve().parents[2]
RELEASED = {path.stem.removeprefix("pg_idem--"): path for path in (ROOT / "sql/released").glob("pg_idem--*.sql")}
MADE_UP = "0.0.9"


@pytest.fixture(scope="module")
def tree():
    tree = ServerTree()
    yield tree
    tree.close()


@pytest.fixture(scope="module")
def server(tree):
    with Cluster(pg_config=tree.pg_config, settings={"fsync": False, "autovacuum": False}) as cluster:
        fresh = Sessions(cluster, "fresh")
        cluster.createdb("fresh")
        fresh().execute("CREATE EXTENSION pg_idem")
        install_made_up(tree, fresh())
        for version, script in RELEASED.items():
            tree.script(version).write_text(script.read_text())
        fresh.close()
        yield cluster


def install_made_up(tree, fresh):
    """An older version: today's script with differences of each kind, and the update that removes them."""
    definition = value(fresh, "SELECT pg_get_functiondef('idem_state_word'::regproc)")
    comment = value(fresh, "SELECT obj_description('idem_action'::regclass)")
    tree.script(MADE_UP).write_text(tree.script(tree.version).read_text() + """
        CREATE FUNCTION @extschema@.idem_obsolete() RETURNS integer LANGUAGE sql AS 'SELECT 1';
        COMMENT ON TABLE @extschema@.idem_action IS 'Once upon a time.';
        CREATE OR REPLACE FUNCTION @extschema@.idem_state_word(state "char") RETURNS text
            LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS 'SELECT ''?''';
        GRANT SELECT ON @extschema@.idem_actions TO PUBLIC;
        ALTER TABLE @extschema@.idem_action SET (fillfactor = 90);
        ALTER TABLE @extschema@.idem_worker_visit ADD CONSTRAINT positive CHECK (visited >= 0);
    """)
    tree.script(f"{MADE_UP}--{tree.version}").write_text("SELECT @extschema@.idem_check_library();\n" + f"""
        DROP FUNCTION @extschema@.idem_obsolete();
        COMMENT ON TABLE @extschema@.idem_action IS {sql.Literal(comment).as_string(fresh)};
        {definition};
        REVOKE SELECT ON @extschema@.idem_actions FROM PUBLIC;
        ALTER TABLE @extschema@.idem_action SET (fillfactor = 30);
        ALTER TABLE @extschema@.idem_worker_visit DROP CONSTRAINT positive;
    """)
    tree.script(f"{MADE_UP}--{MADE_UP}next").write_text("")


@pytest.fixture(params=[MADE_UP, *RELEASED])
def old(request, server, tree):
    """A database with an older version of the extension."""
    name = "old " + request.param
    server.createdb(name)
    sessions = Sessions(server, f"'{name}'")
    conn = sessions()
    conn.execute(sql.SQL("CREATE EXTENSION pg_idem VERSION {}").format(sql.Literal(request.param)))
    yield conn
    sessions.close()
    with server.connect() as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_a_released_script_stays_as_it_is(tree):
    """What has changed since needs a new version number in Cargo.toml, and an update that leads there."""
    for version, script in RELEASED.items():
        if version == tree.version:
            assert script.read_text() == (ROOT / f"target/pg_idem--{version}.sql").read_text()
        else:
            assert list((ROOT / "sql/update").glob(f"pg_idem--{version}--*.sql")), version


def fresh_catalog(server):
    with server.connect("fresh") as conn:
        return catalog(conn)


def test_rows_and_catalog(server, old):
    """Filled, then updated: nothing of the rows changes, and everything else is as if it had been installed today."""
    fill(old)
    before = contents(old)
    old.execute("ALTER EXTENSION pg_idem UPDATE")
    assert contents(old) == before
    assert catalog(old) == fresh_catalog(server)
    assert reserve(old, "committed", {"of": "committed"}, tenant="té").decision == "replay"


def test_the_suite_passes_after_an_update(server, old, tmp_path):
    """The SQL files in a database that was updated."""
    old.execute("ALTER EXTENSION pg_idem UPDATE")
    old.execute(sql.SQL("ALTER DATABASE {} SET lc_messages = 'C'").format(sql.Identifier(old.info.dbname)))
    done = subprocess.run(["make", "--no-print-directory", "installcheck", f"DBNAME={old.info.dbname}",
                           f"RESULTS={tmp_path}", "REGRESS_FLAGS=--use-existing"], cwd=ROOT, text=True,
                          capture_output=True, env={**server.env(), "PG_CONFIG": os.environ.get("PG_CONFIG", "pg_config")})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_a_difference_is_noticed(server, old):
    """An update that forgets something: the comparison names each thing."""
    if value(old, "SELECT extversion FROM pg_extension WHERE extname = 'pg_idem'") != MADE_UP:
        return
    old.execute(f"ALTER EXTENSION pg_idem UPDATE TO '{MADE_UP}next'")
    different = set(catalog(old)) ^ set(fresh_catalog(server))
    kinds = {line.partition(":")[0] for line in different}
    assert kinds == {"member", "function", "comment", "relation", "constraint", "extension"}, different


# Failure 100: files and library of different versions


def test_new_files_and_an_old_library(server, tree, old):
    """Refused with what to do, for an update and for a new install; sessions go on meanwhile."""
    got = reserve(old, "k")
    before = tree.control()
    try:
        tree.set_default_version("9.9.9")
        tree.script("9.9.9").write_text(tree.script(tree.version).read_text())
        current = value(old, "SELECT extversion FROM pg_extension WHERE extname = 'pg_idem'")
        tree.script(f"{current}--9.9.9").write_text("SELECT @extschema@.idem_check_library();")
        server.createdb("another")
        with server.connect("another") as another:
            for conn, statement in ((old, "ALTER EXTENSION pg_idem UPDATE"), (another, "CREATE EXTENSION pg_idem")):
                with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="a restart is needed") as refused:
                    conn.execute(statement)
                assert "Restart the server" in refused.value.diag.message_hint
            assert not rows(another, "SELECT FROM pg_class WHERE relname LIKE 'idem%'")
        assert value(old, "SELECT idem_commit(%s, %s)", (got.action_id, got.attempt_id)) == "committed"
    finally:
        (tree.extension / "pg_idem.control").write_text(before)
        for script in tree.extension.glob("pg_idem--*9.9.9.sql"):
            script.unlink()
        with server.connect() as admin:
            admin.execute("DROP DATABASE IF EXISTS another WITH (FORCE)")


def test_the_library_serves_the_release_before_until_the_update(server, old):
    """The files are new, and the server was restarted: no call fails before ALTER EXTENSION UPDATE."""
    got = reserve(old, "before the update")
    assert value(old, "SELECT idem_commit(%s, %s)", (got.action_id, got.attempt_id)) == "committed"
    accept = "SELECT decision FROM idem_inbox_accept('c', 'before the update')"
    assert [value(old, accept), value(old, accept)] == ["new", "duplicate"]
    old.execute("UPDATE idem_inbox SET first_seen_at = now() - interval '31 days'")
    old.execute("CALL idem_sweep_all()")
    old.execute("ALTER EXTENSION pg_idem UPDATE")
    old.execute("UPDATE idem_cursor SET visited_to = '-infinity'")
    old.execute("CALL idem_sweep_all()")
    assert value(old, accept) == "new"


def test_new_library_and_old_tables(server, old):
    """A table that the library does not know like that: it refuses, in words, and writes nothing."""
    old.execute("ALTER TABLE idem_open ADD COLUMN more int")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="do not fit together") as refused:
        end = reserve(old, "k", lease_seconds=30)
        old.execute("SELECT idem_mark_unknown(%s, %s)", (end.action_id, end.attempt_id))
    assert re.search("ALTER EXTENSION pg_idem UPDATE", refused.value.diag.message_hint)
    old.execute("ALTER TABLE idem_open DROP COLUMN more")

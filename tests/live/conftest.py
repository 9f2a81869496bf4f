"""One cluster for the suite, one database for each file, keys of its own for each test."""

import itertools
import re
import uuid

import pytest
from psycopg import sql

from cluster import Cluster
from sessions import Sessions, value

TEMPLATE = "idem_template"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_cluster():
    """The suite's cluster. Autovacuum stays off: transactions that no test started would hide mistakes."""
    settings = {"fsync": False, "autovacuum": False, "max_connections": 100, "max_prepared_transactions": 20,
                "log_min_messages": "warning", "log_error_verbosity": "verbose", "deadlock_timeout": "200ms",
                # So that a hang fails its own test instead of the whole run.
                "statement_timeout": "30s"}
    with Cluster(settings=settings, preload=False) as cluster:
        cluster.createdb(TEMPLATE)
        cluster.psql("CREATE EXTENSION pg_idem", dbname=TEMPLATE)
        yield cluster


def make_database(cluster, name):
    name = re.sub(r"\W", "_", name)[:40] + f"_{next(_numbers)}"
    with cluster.connect() as conn:
        conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(TEMPLATE)))
    return name


@pytest.fixture(scope="module")
def dbname(shared_cluster, request):
    """The file's database, with the extension."""
    return make_database(shared_cluster, request.module.__name__)


@pytest.fixture
def fresh_dbname(shared_cluster, request):
    """A database that no other test has touched."""
    return make_database(shared_cluster, request.node.name)


@pytest.fixture
def connect(shared_cluster, dbname):
    """Opens sessions in the file's database, autocommit unless told otherwise; all are closed after the test."""
    sessions = Sessions(shared_cluster, dbname)
    yield sessions
    sessions.close()


@pytest.fixture
def connect_fresh(shared_cluster, fresh_dbname):
    """Opens sessions in a database of the test's own."""
    sessions = Sessions(shared_cluster, fresh_dbname)
    yield sessions
    sessions.close()


@pytest.fixture
def conn(connect):
    """One autocommit session in the file's database."""
    return connect()


@pytest.fixture
def key(request):
    """A key that no other test uses."""
    return f"{request.node.name}/{next(_numbers)}"


@pytest.fixture
def way():
    """How outboxes are worked on: as rows, or by statements, as those are that have a trigger."""
    return "rows"


@pytest.fixture
def outbox(conn, way):
    """Makes outboxes of the test's own."""
    def make(**options):
        name = f"public.outbox_{uuid.uuid4().hex[:8]}"
        arguments = "".join(f", {option} => %({option})s" for option in options)
        assert value(conn, f"SELECT idem_create_outbox('{name}'{arguments})", options) == "created"
        if way == "statements":
            conn.execute(f"""
                CREATE OR REPLACE FUNCTION public.let_pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
                    RETURN NEW;
                END $$;
                CREATE TRIGGER let_pass BEFORE INSERT OR UPDATE OR DELETE ON {name}
                    FOR EACH ROW EXECUTE FUNCTION public.let_pass()""")
        return name
    return make

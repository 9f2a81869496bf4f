"""Servers that speak another language: what is decided goes by codes, never by the words of a message."""

import pytest

from cluster import Cluster
from sessions import reserve, row, sqlstate, together, value

SESSIONS = 8


@pytest.fixture(scope="module")
def german():
    cluster = Cluster(settings={"fsync": False, "lc_messages": "C.UTF-8"}, preload=False)
    # Translations without a locale of that language: gettext's own variable.
    cluster.server_env["LANGUAGE"] = "de"
    with cluster:
        with cluster.connect() as conn:
            conn.execute("CREATE EXTENSION pg_idem")
        yield cluster


@pytest.fixture
def sessions(german):
    """Sessions that are told of duplicates in German; no test where the server brings no translations."""
    opened = [german.connect() for _ in range(SESSIONS)]
    opened[0].execute("CREATE TEMP TABLE twice (n int PRIMARY KEY); INSERT INTO twice VALUES (1)")
    with pytest.raises(Exception) as refused:
        opened[0].execute("INSERT INTO twice VALUES (1)")
    if "doppelter Schlüsselwert" not in str(refused.value):
        pytest.skip("this server speaks no German")
    yield opened
    for conn in opened:
        conn.close()


def test_one_of_many_gets_the_action(sessions):
    """Failure 75, with the race of failure 16."""
    for n in range(20):
        got = together(*[lambda c=c: reserve(c, f"action {n}") for c in sessions])
        assert sorted(one.decision for one in got) == ["execute"] + ["pending"] * (SESSIONS - 1)


def test_a_message_is_new_to_one_of_many(sessions):
    """Failure 75, with the race of failure 71."""
    accept = "SELECT * FROM idem_inbox_accept('c', %s)"
    for n in range(20):
        got = together(*[lambda c=c: row(c, accept, (f"message {n}",)).decision for c in sessions])
        assert sorted(got) == ["duplicate"] * (SESSIONS - 1) + ["new"]


def test_waiting_is_given_up_by_code(sessions):
    first, second, *_ = sessions
    first.execute("BEGIN")
    value(first, "SELECT decision FROM idem_inbox_accept('c', 'held')")
    second.execute("SET lock_timeout = '50ms'")
    assert sqlstate(row, second, "SELECT * FROM idem_inbox_accept('c', 'held')") == "55P03"
    first.execute("ROLLBACK")
    assert row(second, "SELECT * FROM idem_inbox_accept('c', 'held')").decision == "new"

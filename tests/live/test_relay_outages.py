"""Brokers and databases that are killed under a relay at work: every message arrives, its effect happens once, in order."""

import threading
from contextlib import ExitStack

import pytest

from cluster import Cluster
from relaying import (  # noqa: F401  (fixtures among them)
    WAYS, Route, assert_each_once_in_order, effects, is_empty, nats, prepare, rabbitmq, relay_program, write)
from sessions import Sessions, in_background, wait_until


@pytest.fixture(scope="module")
def cluster():
    with Cluster(settings={"fsync": False}, preload=False) as cluster:
        cluster.psql("CREATE EXTENSION pg_idem")
        yield cluster


@pytest.fixture
def connect(cluster):
    sessions = Sessions(cluster, "postgres")
    yield sessions
    sessions.close()


@pytest.mark.parametrize("name, kills", [("nats", 3), ("rabbitmq", 1)])
def test_a_broker_that_is_killed_under_load(cluster, connect, relay_program, request, name, kills):  # noqa: F811
    conn, outbox = connect(), f"to_{name}"
    prepare(conn, outbox)
    broker, stop = request.getfixturevalue(name), threading.Event()
    with WAYS[name](Route(relay_program, cluster.dsn(), outbox), request) as way, way.relay(), way.relay(CHANNEL=outbox):
        writing = in_background(write, connect(), outbox, stop)
        for _ in range(kills):
            arrived = len(effects(conn, outbox))
            wait_until(lambda: len(effects(conn, outbox)) >= arrived + 30, 180)
            broker.kill9()
            broker.start()
        arrived = len(effects(conn, outbox))
        wait_until(lambda: len(effects(conn, outbox)) >= arrived + 30, 180)
        stop.set()
        certain, perhaps = writing.result(10)
        assert perhaps == []
        wait_until(is_empty(conn, outbox), 180)
        wait_until(lambda: len(effects(conn, outbox)) >= len(certain), 180)
    assert_each_once_in_order(conn, outbox, certain)


def test_a_database_that_is_killed_under_load(cluster, connect, relay_program, request):  # noqa: F811
    """Relays, consumers and the writer have the one database; each finds it again by itself."""
    outboxes, stop = {name: f"from_{name}" for name in WAYS}, threading.Event()
    conn = connect()
    for outbox in outboxes.values():
        prepare(conn, outbox)
    with ExitStack() as stack:
        writing = {}
        for name, outbox in outboxes.items():
            way = stack.enter_context(WAYS[name](Route(relay_program, cluster.dsn(), outbox), request))
            stack.enter_context(way.relay())
            stack.enter_context(way.relay(CHANNEL=outbox))
            writing[outbox] = in_background(write, connect(), outbox, stop)
        for _ in range(2):
            each_has_more(conn, outboxes.values())
            cluster.kill9()
            cluster.start(cluster.port)
            conn = connect()
        each_has_more(conn, outboxes.values())
        stop.set()
        for outbox, written in writing.items():
            certain, perhaps = written.result(20)
            wait_until(is_empty(conn, outbox), 180)
            wait_until(lambda: set(certain) <= set(effects(conn, outbox)), 180)
            assert_each_once_in_order(conn, outbox, certain, perhaps)


def each_has_more(conn, outboxes):
    """Waits until thirty more messages of each outbox had their effect."""
    arrived = {outbox: len(effects(conn, outbox)) for outbox in outboxes}
    wait_until(lambda: all(len(effects(conn, outbox)) >= arrived[outbox] + 30 for outbox in outboxes), 180)

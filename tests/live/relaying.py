"""Relays, what they deliver to and who consumes it, for the tests of the reference relay: fixtures and a few words."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb

from brokers import Nats, RabbitMq
from sessions import in_background, rows, value

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/relay"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEYS = 40


@pytest.fixture(scope="session")
def relay_program():
    """The relay, built as its users build it."""
    target = ROOT / "target/relay"
    subprocess.run(["cargo", "build", "--quiet", "--locked", "--target-dir", target], cwd=EXAMPLE, check=True,
                   env={name: text for name, text in os.environ.items() if not name.startswith("CARGO_PROFILE")})
    return target / "debug/relay"


@pytest.fixture(scope="session")
def nats():
    with Nats() as broker:
        yield broker


@pytest.fixture(scope="session")
def rabbitmq():
    with RabbitMq() as broker:
        yield broker


def prepare(conn, outbox):
    """An empty ordered outbox with a channel of its name, and the consumers' tables."""
    conn.execute(f"""DROP TABLE IF EXISTS {outbox};
        CREATE TABLE IF NOT EXISTS delivery (n bigint GENERATED ALWAYS AS IDENTITY, message_id text, decision text);
        CREATE TABLE IF NOT EXISTS effect (n bigint GENERATED ALWAYS AS IDENTITY, message_id text, data jsonb);
        TRUNCATE delivery, effect""")
    conn.execute("SELECT idem_create_outbox(%s, ordered => true, max_attempts => 1000, notify_channel => %s)",
                 (f"public.{outbox}", outbox))


@contextmanager
def program(command, stderr=None, **settings):
    """A program of the example's that runs until the block ends."""
    # None takes a variable away.
    env = {name: text for name, text in {**os.environ, **settings}.items() if text is not None}
    with subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=stderr) as process:
        try:
            yield process
        finally:
            process.kill()


class Route:
    """A way from an outbox to the consumer. `settings` are the relay's."""

    def __init__(self, relay_program, dsn, outbox):
        self.relay_program, self.outbox = relay_program, outbox
        # "host=/dir port=1 user=x dbname=y" is what both drivers read.
        self.settings = {"DATABASE_URL": dsn, "OUTBOX": f"public.{outbox}", "LEASE_SECONDS": "3", "POLL_SECONDS": "0.05"}

    def relay(self, stderr=None, **settings):
        return program([self.relay_program], stderr, **{**self.settings, **settings})

    @contextmanager
    def consumer(self, script, **settings):
        """Runs until the block ends; gives the first line it printed, after which it consumes."""
        with program([sys.executable, EXAMPLE / script], DATABASE_URL=self.settings["DATABASE_URL"],
                     PYTHONDONTWRITEBYTECODE="1", **settings) as process:
            yield process.stdout.readline().strip()


@contextmanager
def by_webhook(route, request):
    with route.consumer("consumer.py", WEBHOOK_SECRET=SECRET) as port:
        route.settings |= {"WEBHOOK_URL": f"http://127.0.0.1:{port}/", "WEBHOOK_SECRET": SECRET}
        yield route


@contextmanager
def by_nats(route, request):
    # A stream and a queue for each test: what one leaves behind is nobody else's.
    name = f"{route.outbox}-{os.urandom(4).hex()}"
    to = {"NATS_URL": request.getfixturevalue("nats").url, "NATS_SUBJECT": name}
    with route.consumer("consumer_nats.py", NATS_STREAM=name, ACK_WAIT_SECONDS="2", **to) as ready:
        assert ready == "ready"
        route.settings |= {"SINK": "nats", **to}
        yield route


@contextmanager
def by_rabbitmq(route, request):
    name = f"{route.outbox}-{os.urandom(4).hex()}"
    to = {"RABBITMQ_URL": request.getfixturevalue("rabbitmq").url}
    with route.consumer("consumer_rabbitmq.py", RABBITMQ_QUEUE=name, **to) as ready:
        assert ready == "ready"
        route.settings |= {"SINK": "rabbitmq", "RABBITMQ_ROUTING_KEY": name, **to}
        yield route


WAYS = {"webhook": by_webhook, "nats": by_nats, "rabbitmq": by_rabbitmq}


def put(conn, outbox, n, action_id=None):
    """Puts the n-th message, for one of KEYS keys."""
    of = str(n % KEYS)
    return value(conn, "SELECT idem_outbox_put(%s, 't', 'a', %s, %s, action_id => %s)",
                 (f"public.{outbox}", of, Jsonb({"outbox": outbox, "of": of, "n": n}), action_id))


def has_delivered(process):
    """Waits until a relay with STOP_AT=delivered stands there."""
    assert in_background(process.stdout.readline).result(60) == "delivered\n"


def is_empty(conn, outbox):
    return lambda: value(conn, f"SELECT count(*) = 0 FROM {outbox}")


def effects(conn, outbox):
    """The numbers of the messages that had their effect, in its order."""
    return [effect.n for effect in rows(conn, """SELECT (data->>'n')::int AS n FROM effect WHERE data->>'outbox' = %s
                                                 ORDER BY effect.n""", (outbox,))]


def assert_each_once_in_order(conn, outbox, certain, perhaps=()):
    """Each message had its effect once, after those that were put before it under the same key."""
    found = effects(conn, outbox)
    assert sorted(found) == sorted(set(found)), "an effect is there twice"
    assert set(certain) <= set(found) <= {*certain, *perhaps}
    for key in range(KEYS):
        of = [n for n in found if n % KEYS == key]
        assert of == sorted(of), f"key {key}"
    assert value(conn, "SELECT count(*) FROM delivery WHERE decision = 'conflict'") == 0


def write(conn, outbox, stop):
    """Puts messages until told to stop, never more than 40 ahead of their effects. Those that are certainly put, and
    those whose COMMIT got no answer."""
    certain, perhaps, n = [], [], 0
    while not stop.is_set():
        try:
            if conn.closed:
                conn = psycopg.connect(conn.info.dsn, autocommit=True)
            if n - len(effects(conn, outbox)) < 40:
                n += 1
                perhaps.append(n)
                put(conn, outbox, n)
                certain.append(perhaps.pop())
            else:
                stop.wait(0.01)
        except psycopg.OperationalError:
            # conn.closed says so; until the server is back, connecting fails at once.
            stop.wait(0.05)
    conn.close()
    return certain, perhaps

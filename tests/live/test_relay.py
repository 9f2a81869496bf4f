"""The reference relay against a consumer that uses the inbox: killed at the worst point, again and again."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.types.json import Jsonb

from sessions import row, rows, value, wait_until

ROOT = Path(__file__).resolve().parents[2]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture(scope="session")
def relay_program():
    """The relay, built as its users build it."""
    target = ROOT / "target/relay"
    subprocess.run(["cargo", "build", "--quiet", "--locked", "--target-dir", target], cwd=ROOT / "examples/relay", check=True,
                   env={name: text for name, text in os.environ.items() if not name.startswith("CARGO_PROFILE")})
    return target / "debug/relay"


@pytest.fixture
def consumer(conn, connect):
    """The consumer's address; its tables are empty."""
    conn.execute("""DROP TABLE IF EXISTS delivery, effect;
        CREATE TABLE delivery (n bigint GENERATED ALWAYS AS IDENTITY, message_id text, decision text);
        CREATE TABLE effect (n bigint GENERATED ALWAYS AS IDENTITY, message_id text, data jsonb)""")
    env = {**os.environ, "DATABASE_URL": connect.cluster.dsn(connect.dbname), "WEBHOOK_SECRET": SECRET}
    with subprocess.Popen([sys.executable, ROOT / "examples/relay/consumer.py"], env=env, text=True,
                          stdout=subprocess.PIPE) as process:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/"
        process.kill()


@pytest.fixture
def outbox(conn, key):
    name = "public.relayed"
    conn.execute("DROP TABLE IF EXISTS relayed")
    conn.execute("SELECT idem_create_outbox(%s, ordered => true, max_attempts => 1000, notify_channel => 'relayed')", (name,))
    return name


@pytest.fixture
def relay(relay_program, connect, outbox, consumer):
    """Starts relays."""
    @contextmanager
    def start(url=consumer, **settings):
        # "host=/dir port=1 user=x dbname=y" is what both drivers read.
        env = {**os.environ, "DATABASE_URL": connect.cluster.dsn(connect.dbname), "OUTBOX": outbox, "WEBHOOK_URL": url,
               "WEBHOOK_SECRET": SECRET, "LEASE_SECONDS": "0.5", "POLL_SECONDS": "0.05", **settings}
        with subprocess.Popen([relay_program], env=env, text=True, stdout=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                process.kill()
    return start


def put(conn, outbox, aggregate, n, action_id=None):
    return value(conn, "SELECT idem_outbox_put(%s, 't', 'a', %s, %s, action_id => %s)",
                 (outbox, str(aggregate), Jsonb({"of": str(aggregate), "n": n}), action_id))


def is_empty(conn, outbox):
    return lambda: value(conn, f"SELECT count(*) = 0 FROM {outbox}")


def test_a_relay_killed_between_delivery_and_report_repeats_no_effect(conn, outbox, relay):
    """Fifty times the receiver has the message and the relay dies before it can say so."""
    ids = [str(put(conn, outbox, n % 5, n)) for n in range(50)]
    for _ in range(50):
        # A message at a time, so that each kill leaves one that was delivered and not reported.
        with relay(STOP_AT="delivered", BATCH="1") as process:
            assert process.stdout.readline() == "delivered\n"
            process.send_signal(signal.SIGKILL)
            process.wait(10)
    with relay(), relay(CHANNEL="relayed"):
        wait_until(is_empty(conn, outbox), 60)
    effects = rows(conn, "SELECT message_id, data FROM effect ORDER BY n")
    assert sorted(effect.message_id for effect in effects) == sorted(ids)
    assert value(conn, "SELECT count(*) FROM delivery WHERE decision = 'duplicate'") >= 5
    assert value(conn, "SELECT count(*) FROM delivery WHERE decision = 'conflict'") == 0
    for aggregate in range(5):
        order = [effect.data["n"] for effect in effects if effect.data["of"] == str(aggregate)]
        assert order == sorted(order) and len(order) == 10


def test_a_notification_wakes_the_relay(conn, outbox, relay):
    with relay(CHANNEL="relayed", POLL_SECONDS="3600"):
        wait_until(lambda: value(conn, """SELECT count(*) > 0 FROM pg_stat_activity
            WHERE query LIKE '%idem_outbox_claim%' AND pid <> pg_backend_pid() AND state = 'idle'"""), 20)
        put(conn, outbox, 1, 1)
        wait_until(is_empty(conn, outbox), 20)


def test_a_relay_that_is_told_to_stop_stops(conn, outbox, relay):
    put(conn, outbox, 1, 1)
    with relay(POLL_SECONDS="3600") as process:
        wait_until(is_empty(conn, outbox), 20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_a_receiver_that_is_down_gets_the_message_later(conn, outbox, relay, consumer):
    put(conn, outbox, 1, 1)
    with relay(url="http://127.0.0.1:1/"):
        wait_until(lambda: value(conn, f"SELECT count(*) = 1 FROM {outbox} WHERE last_error = 'no connection'"), 20)
    with relay():
        wait_until(is_empty(conn, outbox), 30)
    assert value(conn, "SELECT count(*) FROM effect") == 1


def test_an_action_is_carried_out_by_the_relay_and_its_answer_kept(conn, outbox, relay, key):
    conn.execute("SELECT idem_register_action_type('task', 'irreversible', requires_approval => false)")
    with conn.transaction():
        got = row(conn, "SELECT * FROM idem_reserve(%s, '{}', action_type => 'task')", (key,))
        put(conn, outbox, 1, 1, got.action_id)
    with relay():
        wait_until(is_empty(conn, outbox), 30)
    done = row(conn, "SELECT * FROM idem_status_by_id(%s)", (got.action_id,))
    assert (done.state, done.response["status"]) == ("committed", 200)


def test_an_action_whose_relay_was_killed_after_sending_is_unknown_and_not_sent_again(conn, outbox, relay, key):
    conn.execute("SELECT idem_register_action_type('task', 'irreversible', requires_approval => false)")
    with conn.transaction():
        got = row(conn, "SELECT * FROM idem_reserve(%s, '{}', action_type => 'task')", (key,))
        put(conn, outbox, 1, 1, got.action_id)
    with relay(STOP_AT="delivered") as process:
        assert process.stdout.readline() == "delivered\n"
    with relay():
        wait_until(lambda: row(conn, "SELECT state FROM idem_status_by_id(%s)", (got.action_id,)).state == "unknown", 20)
    assert value(conn, "SELECT count(*) FROM delivery") == 1
    assert value(conn, f"SELECT count(*) FROM {outbox}") == 1

"""The reference relay against consumers that use the inbox: killed at the worst point, again and again."""

import signal
import subprocess
from contextlib import ExitStack

import pytest

from relaying import (  # noqa: F401  (fixtures among them)
    WAYS, Route, assert_each_once_in_order, effects, has_delivered, is_empty, nats, prepare, put, rabbitmq, relay_program)
from sessions import in_background, row, value, wait_until

OUTBOX = "relayed"


@pytest.fixture
def to(conn, connect, relay_program, request):  # noqa: F811
    """Opens a way to a consumer, by its name, from an empty outbox."""
    prepare(conn, OUTBOX)
    opened = []

    def open_way(name):
        way = WAYS[name](Route(relay_program, connect.cluster.dsn(connect.dbname), OUTBOX), request)
        opened.append(way)
        return way.__enter__()
    yield open_way
    for way in opened:
        way.__exit__(None, None, None)


@pytest.fixture
def task(conn, key):
    """An action that may not be repeated, carried by the outbox's only message."""
    conn.execute("SELECT idem_register_action_type('task', 'irreversible', requires_approval => false)")
    with conn.transaction():
        got = row(conn, "SELECT * FROM idem_reserve(%s, '{}', action_type => 'task')", (key,))
        put(conn, OUTBOX, 1, got.action_id)
    return lambda: row(conn, "SELECT * FROM idem_status_by_id(%s)", (got.action_id,))


@pytest.mark.parametrize("name", WAYS)
def test_a_relay_killed_between_delivery_and_report_repeats_no_effect(conn, to, name):
    """Fifty times the receiver has the message and the relay dies before it can say so; five relays at a time."""
    way = to(name)
    for n in range(120):
        put(conn, OUTBOX, n)
    for _ in range(10):
        with ExitStack() as stack:
            # A message each, so that each kill leaves one that was delivered and not reported.
            relays = [stack.enter_context(way.relay(STOP_AT="delivered", BATCH="1")) for _ in range(5)]
            for process in relays:
                has_delivered(process)
                process.send_signal(signal.SIGKILL)
    assert value(conn, f"SELECT count(*) = 120 AND sum(attempts) >= 50 FROM {OUTBOX}")
    with way.relay(), way.relay(CHANNEL=OUTBOX):
        wait_until(is_empty(conn, OUTBOX), 180)
    wait_until(lambda: len(effects(conn, OUTBOX)) >= 120, 180)
    assert_each_once_in_order(conn, OUTBOX, range(120))


def test_a_stream_knows_a_repeat_by_the_message_id(conn, to, key):
    """The second relay's delivery is answered as a duplicate."""
    way = to("nats")
    conn.execute("SELECT idem_register_action_type('repeatable', 'idempotent_mutation')")
    with conn.transaction():
        got = row(conn, "SELECT * FROM idem_reserve(%s, '{}', action_type => 'repeatable')", (key,))
        put(conn, OUTBOX, 1, got.action_id)
    with way.relay(STOP_AT="delivered") as process:
        has_delivered(process)
    with way.relay():
        wait_until(is_empty(conn, OUTBOX), 180)
    assert row(conn, "SELECT * FROM idem_status_by_id(%s)", (got.action_id,)).response["duplicate"] is True


def test_a_notification_wakes_the_relay(conn, to):
    with to("webhook").relay(CHANNEL=OUTBOX, POLL_SECONDS="3600"):
        wait_until(lambda: value(conn, """SELECT count(*) > 0 FROM pg_stat_activity
            WHERE query LIKE '%idem_outbox_claim%' AND pid <> pg_backend_pid() AND state = 'idle'"""), 20)
        put(conn, OUTBOX, 1)
        wait_until(is_empty(conn, OUTBOX))


def test_a_relay_that_is_told_to_stop_stops(conn, to):
    way = to("webhook")
    put(conn, OUTBOX, 1)
    with way.relay(POLL_SECONDS="3600") as process:
        wait_until(is_empty(conn, OUTBOX))
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_a_receiver_that_is_down_gets_the_message_later(conn, to):
    way = to("webhook")
    put(conn, OUTBOX, 1)
    with way.relay(WEBHOOK_URL="http://127.0.0.1:1/"):
        wait_until(lambda: value(conn, f"SELECT count(*) = 1 FROM {OUTBOX} WHERE last_error = 'no connection'"))
    with way.relay():
        wait_until(is_empty(conn, OUTBOX), 180)
    assert effects(conn, OUTBOX) == [1]


def test_a_message_that_is_older_than_the_inbox_remembers_is_not_taken_for_new(conn, to):
    """Failure 77: its own time says that it may have been handled, and forgotten since."""
    way = to("webhook")
    put(conn, OUTBOX, 1)
    conn.execute(f"UPDATE {OUTBOX} SET created_at = created_at - interval '31 days'")
    put(conn, OUTBOX, 2)
    with way.relay():
        wait_until(lambda: value(conn, f"SELECT count(*) = 1 FROM {OUTBOX} WHERE last_error = 'status 410 Gone'"))
        wait_until(lambda: effects(conn, OUTBOX) == [2])
    assert value(conn, "SELECT count(*) FROM delivery WHERE decision = 'too_old'") >= 1


@pytest.mark.parametrize("name, nobody, complaint", [
    ("nats", {"NATS_URL": "nats://127.0.0.1:1"}, "Connection refused"),
    ("rabbitmq", {"RABBITMQ_URL": "amqp://127.0.0.1:1"}, "Connection refused"),
    ("rabbitmq", {"RABBITMQ_EXCHANGE": "nowhere"}, "NOT_FOUND")])
def test_while_a_broker_cannot_be_reached_no_attempt_is_used_up(conn, to, name, nobody, complaint):
    way = to(name)
    put(conn, OUTBOX, 1)
    with way.relay(stderr=subprocess.PIPE, **nobody) as process:
        said = process.stderr.readline()
        assert complaint in said and "connecting again" in said
        assert value(conn, f"SELECT attempts FROM {OUTBOX}") == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    with way.relay():
        wait_until(is_empty(conn, OUTBOX), 180)


def test_a_report_that_is_refused_keeps_no_other_message_back(conn, to):
    """One claim brings both; whatever is wrong with the first one in the database, the second one is acknowledged."""
    way = to("webhook")
    conn.execute(f"""CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'not this one'; END$$;
        CREATE TRIGGER refuse BEFORE DELETE ON {OUTBOX} FOR EACH ROW WHEN (old.aggregateid = '1') EXECUTE FUNCTION refuse()""")
    with conn.transaction():
        put(conn, OUTBOX, 1)
        put(conn, OUTBOX, 2)
    with way.relay(stderr=subprocess.PIPE) as process:
        assert "not this one" in in_background(process.stderr.readline).result(30)
        wait_until(lambda: value(conn, f"SELECT array_agg(aggregateid) FROM {OUTBOX}") == ["1"])
        conn.execute(f"DROP TRIGGER refuse ON {OUTBOX}")
        wait_until(is_empty(conn, OUTBOX), 180)
    assert sorted(effects(conn, OUTBOX)) == [1, 2]


def test_an_action_is_carried_out_by_the_relay_and_its_answer_kept(conn, to, task):
    with to("webhook").relay(LEASE_SECONDS="30"):
        wait_until(is_empty(conn, OUTBOX), 180)
    assert (task().state, task().response["status"]) == ("committed", 200)


def test_an_action_whose_relay_was_killed_after_sending_is_unknown_and_not_sent_again(conn, to, task):
    way = to("webhook")
    with way.relay(STOP_AT="delivered", LEASE_SECONDS="6") as process:
        has_delivered(process)
    with way.relay():
        wait_until(lambda: task().state == "unknown")
    assert value(conn, "SELECT count(*) FROM delivery") == 1
    assert value(conn, f"SELECT count(*) FROM {OUTBOX}") == 1


@pytest.mark.parametrize("name, nowhere, said", [
    ("rabbitmq", {"RABBITMQ_ROUTING_KEY": "nowhere"}, "returned: 312 NO_ROUTE"),
    ("nats", {"NATS_SUBJECT": "nowhere"}, "no stream takes the subject")])
def test_what_a_broker_has_no_place_for_did_not_happen_and_comes_again(conn, to, task, name, nowhere, said):
    """A refusal is a proof, also after the dispatch was marked: the action may be tried again."""
    way = to(name)
    # Time enough for an answer: without one the action would be unknown.
    way.settings["LEASE_SECONDS"] = "30"
    with way.relay(**nowhere):
        wait_until(lambda: said in (value(conn, f"SELECT last_error FROM {OUTBOX}") or ""))
    assert task().state == "retryable"
    with way.relay():
        wait_until(is_empty(conn, OUTBOX), 180)
    assert task().state == "committed"


@pytest.mark.parametrize("name", ["nats", "rabbitmq"])
def test_without_a_confirm_an_action_is_unknown(conn, to, key, request, name):
    """The broker is connected and falls silent; what it does with the message later, nobody knows."""
    with to(name).relay():
        put(conn, OUTBOX, 0)
        wait_until(is_empty(conn, OUTBOX))
        with request.getfixturevalue(name).paused():
            task = request.getfixturevalue("task")
            wait_until(lambda: task().state == "unknown")
    assert value(conn, f"SELECT last_error FROM {OUTBOX}") == "no confirm in time"


@pytest.mark.parametrize("settings, complaint", [
    ({"SINK": "kafka"}, 'SINK is "kafka", not webhook, nats or rabbitmq'),
    ({"SINK": "nats", "NATS_URL": "nats://127.0.0.1:1", "NATS_SUBJECT": "orders.>"},
     "NATS_SUBJECT is not a subject without wildcards"),
    ({"SINK": "rabbitmq", "RABBITMQ_ROUTING_KEY": None}, "RABBITMQ_ROUTING_KEY is not set"),
    ({"DATABASE_URL": "host=localhost sslmode=verify-full"}, "invalid value for option `sslmode`")])
def test_settings_that_cannot_be_honoured_are_refused(relay_program, settings, complaint):  # noqa: F811
    with Route(relay_program, "host=localhost", OUTBOX).relay(stderr=subprocess.PIPE, **settings) as process:
        assert process.wait(10) == 2
        assert complaint in process.stderr.read()

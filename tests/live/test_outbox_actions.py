"""The relay is the executor: an action that a message carries is granted to whoever claims the message."""

import threading

import pytest

from messages import ack, claim, nack, put, request, state
from sessions import outlive, row, rows, sqlstate, sweep, together, value, wait_until


@pytest.fixture(params=["rows", "statements"])
def way(request):
    return request.param


@pytest.fixture(autouse=True)
def action_types(conn):
    conn.execute("SELECT idem_register_action_type('refund', 'reversible')")
    conn.execute("SELECT idem_register_action_type('status', 'idempotent_mutation')")
    conn.execute("SELECT idem_register_action_type('payment', 'irreversible', requires_approval => false)")


def test_a_relay_that_dies_after_sending_leaves_an_unknown_and_the_message_waits(connect, conn, outbox, key):
    name, relay, other = outbox(), connect(), connect()
    action_id = request(conn, name, key)
    [message] = claim(relay, name, lease=0.2)
    assert message.provider_key and state(conn, action_id) == "started"
    relay.close()
    outlive(conn, message.lease_expires_at)
    sweep(conn)
    assert state(conn, action_id) == "unknown"
    assert claim(other, name) == []
    # A reconciler finds that nothing happened; a person allows another try; the message is claimed again.
    assert value(conn, "SELECT idem_decide(%s, 'retry', 'not there')", (action_id,)) == "retryable"
    assert row(conn, "SELECT decision FROM idem_reserve(%s, '{}', action_type => 'refund')", (key,)).decision == "pending"
    conn.execute(f"UPDATE {name} SET due_at = now()")
    [again] = claim(other, name)
    assert again.id == message.id and again.fence > message.fence and again.provider_key == message.provider_key
    assert value(other, "SELECT idem_outbox_ack(%s, %s, %s, '{}', 're')", (name, again.id, again.claim_id)) == "acked"
    assert state(conn, action_id) == "committed"


def test_what_may_repeat_is_repeated_by_the_next_relay(connect, conn, outbox, key):
    name, other = outbox(), connect()
    action_id = request(conn, name, key, "status")
    [message] = claim(conn, name, lease=0.1)
    outlive(conn, message.lease_expires_at)
    [again] = claim(other, name)
    assert again.attempt == 2 and again.attempt_id != message.attempt_id
    # The first one's report comes too late, and does not count.
    assert ack(conn, name, [message]) == ["lost"]
    assert ack(other, name, [again]) == ["acked"] and state(conn, action_id) == "committed"


def test_where_dispatch_is_marked_the_key_comes_from_there(conn, outbox, key):
    name = outbox()
    action_id = request(conn, name, key, "payment")
    [message] = claim(conn, name)
    assert message.attempt_id and message.provider_key is None
    assert value(conn, "SELECT idem_dispatch(%s, %s)", (action_id, message.attempt_id))
    assert sqlstate(nack, conn, name, message, proof="not_sent") == "ID006"
    assert nack(conn, name, message) == "waiting" and state(conn, action_id) == "unknown"


def test_a_lapsed_claim_that_marked_nothing_is_taken_over(connect, conn, outbox, key):
    """Nothing was sent before the mark, so an irreversible effect may be tried by the next relay."""
    name = outbox()
    action_id = request(conn, name, key, "payment")
    [message] = claim(conn, name, lease=0.1)
    outlive(conn, message.lease_expires_at)
    [again] = claim(conn, name)
    assert again.attempt_id != message.attempt_id
    assert sqlstate(value, conn, "SELECT idem_dispatch(%s, %s)", (action_id, message.attempt_id)) == "ID002"
    assert value(conn, "SELECT idem_dispatch(%s, %s)", (action_id, again.attempt_id))


def test_a_message_waits_for_the_approval_of_its_action(conn, outbox, key):
    """A purchase that somebody has to approve, requested and written in one transaction: it leaves once it is approved."""
    conn.execute("""SELECT idem_register_action_type('purchase', 'irreversible', requires_approval => true,
        distinct_approver => 'name')""")
    name = outbox()
    with conn.transaction():
        got = row(conn, """SELECT * FROM idem_propose(%s, '{"n": 1}', action_type => 'purchase', proposer => 'ann')""", (key,))
        assert got.decision == "awaiting_approval"
        put(conn, name, action_id=got.action_id)
    assert claim(conn, name) == []
    fingerprint = value(conn, "SELECT fingerprint FROM idem_action WHERE action_id = %s", (got.action_id,))
    assert value(conn, "SELECT idem_approve(%s, %s, 'bob')", (got.action_id, fingerprint)) == "approved"
    # It is the message's, and nobody else's.
    again = row(conn, """SELECT * FROM idem_reserve(%s, '{"n": 1}', action_type => 'purchase')""", (key,))
    assert again.decision == "pending"
    conn.execute(f"UPDATE {name} SET due_at = now()")
    [message] = claim(conn, name)
    assert message.attempt == 1 and message.provider_key is None
    assert value(conn, "SELECT idem_dispatch(%s, %s)", (got.action_id, message.attempt_id))
    assert value(conn, "SELECT idem_outbox_ack(%s, %s, %s, '{}', 'po_1')", (name, message.id, message.claim_id)) == "acked"
    assert state(conn, got.action_id) == "committed"


def test_what_was_rejected_is_a_dead_letter(conn, outbox, key):
    conn.execute("SELECT idem_register_action_type('purchase', 'irreversible', requires_approval => true, distinct_approver => 'name')")
    name = outbox()
    with conn.transaction():
        got = row(conn, "SELECT * FROM idem_propose(%s, '{}', action_type => 'purchase', proposer => 'ann')", (key,))
        put(conn, name, action_id=got.action_id)
    assert value(conn, "SELECT idem_reject(%s, 'bob')", (got.action_id,)) == "rejected"
    assert claim(conn, name) == []
    assert value(conn, f"SELECT dead_at IS NOT NULL FROM {name}")


def test_an_action_on_hold_keeps_its_message_and_no_other(conn, outbox, key):
    name = outbox()
    request(conn, name, key)
    free = put(conn, name)
    conn.execute("SELECT idem_hold('action_type', 'refund', 'provider is down')")
    try:
        assert [message.id for message in claim(conn, name)] == [free]
    finally:
        conn.execute("SELECT idem_unhold('action_type', 'refund')")
    conn.execute(f"UPDATE {name} SET due_at = now() WHERE carries")
    assert [message.carried for message in rows(conn, f"SELECT attempt_id IS NOT NULL AS carried FROM idem_outbox_claim('{name}')")] == [True]


def test_claims_of_many_relays_grant_each_action_once(connect, conn, outbox, key):
    name, relays = outbox(), [connect() for _ in range(6)]
    actions = [request(conn, name, f"{key}/{n}") for n in range(60)]
    granted, lock = [], threading.Lock()

    def work(session):
        while claimed := claim(session, name, 3):
            with lock:
                granted.extend(message.action_id for message in claimed)
            assert ack(session, name, claimed) == ["acked"] * len(claimed)

    assert together(*[lambda s=s: work(s) for s in relays]) == [None] * 6
    assert sorted(granted) == sorted(actions)
    assert {state(conn, action) for action in actions} == {"committed"}


# Retention


@pytest.fixture
def over(conn, outbox, key):
    """The outbox and the action of a message that is not acknowledged, while the action ended and is past its retention."""
    conn.execute("SELECT idem_register_action_type('brief', 'reversible', lease => '0.05 s', ttl => '0.1 s')")
    name = outbox()
    action_id = request(conn, name, key, "brief")
    [message] = claim(conn, name, lease=0.05)
    assert nack(conn, name, message) == "waiting"
    assert value(conn, "SELECT idem_decide(%s, 'applied', 'it is there')", (action_id,)) == "committed"
    outlive(conn, value(conn, "SELECT greatest(expires_at, visit_at) FROM idem_action WHERE action_id = %s", (action_id,)))
    conn.execute(f"UPDATE {name} SET due_at = now()")
    return name, action_id


def swept(conn, action_id):
    """The action's stored state after the sweep has come by."""
    def visited():
        sweep(conn)
        return value(conn, """SELECT state = 'x' OR EXISTS (SELECT FROM idem_open AS o WHERE o.action_id = a.action_id AND
            visit_at > clock_timestamp()) FROM idem_action AS a WHERE action_id = %s""", (action_id,))
    wait_until(visited)
    return value(conn, "SELECT state::text FROM idem_action WHERE action_id = %s", (action_id,))


def visit_again(conn, action_id):
    conn.execute("UPDATE idem_open SET visit_at = now() WHERE action_id = %s", (action_id,))


def test_a_record_outlives_its_retention_while_its_message_is_not_acknowledged(conn, over):
    """Contract 9: the relay that comes late learns that the effect has happened. Readers see an expired record."""
    name, action_id = over
    assert swept(conn, action_id) == "c" and state(conn, action_id) == "expired"
    again = value(conn, "SELECT visit_at - clock_timestamp() FROM idem_open WHERE action_id = %s", (action_id,))
    assert again.total_seconds() > 3000, "it is not looked at all the time"
    assert claim(conn, name) == []
    assert rows(conn, f"SELECT last_error FROM {name}") == [], "delivered, and no dead letter"
    visit_again(conn, action_id)
    assert swept(conn, action_id) == "x"


def test_a_dead_letter_keeps_its_record_until_it_is_skipped(conn, over):
    name, action_id = over
    conn.execute(f"UPDATE {name} SET dead_at = now(), due_at = 'infinity'")
    assert swept(conn, action_id) == "c"
    assert value(conn, f"SELECT (idem_outbox_redrive('{name}', ARRAY(SELECT id FROM {name}), skip => true)).outcome") == "skipped"
    visit_again(conn, action_id)
    assert swept(conn, action_id) == "x"


def test_a_sweep_does_not_wait_for_an_outbox_and_does_not_miss_one(connect, conn, over):
    name, action_id = over
    owner = connect(autocommit=False)
    owner.execute(f"LOCK TABLE {name}")
    assert swept(conn, action_id) == "c", "it may have the message"
    owner.rollback()
    # A table that is no outbox any more may be repaired; one that is gone has no messages.
    conn.execute(f"ALTER TABLE {name} RENAME COLUMN carries TO carried")
    visit_again(conn, action_id)
    assert swept(conn, action_id) == "c"
    conn.execute(f"DROP TABLE {name}")
    visit_again(conn, action_id)
    assert swept(conn, action_id) == "x"


def test_a_delivered_message_that_is_kept_keeps_no_record(conn, outbox, key):
    conn.execute("SELECT idem_register_action_type('brief', 'reversible', lease => '0.05 s', ttl => '0.1 s')")
    name = outbox(keep_delivered="1 day")
    action_id = request(conn, name, key, "brief")
    assert ack(conn, name, claim(conn, name)) == ["acked"]
    outlive(conn, value(conn, "SELECT greatest(expires_at, visit_at) FROM idem_action WHERE action_id = %s", (action_id,)))
    assert swept(conn, action_id) == "x"
    assert value(conn, f"SELECT count(*) FROM {name}") == 1

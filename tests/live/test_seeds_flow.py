"""Each row of the seeds' other tables: the contract of a request, the classes of tools, the envelope of an action, and the
steps of its execution."""

from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb

from sessions import call, commit, end, outlive, reserve, resolve, row, rows, sqlstate, status, sweep, value

REQUEST = {"order": "ord_4821", "amount": 149000, "currency": "VND"}


@pytest.fixture
def conn(connect_fresh):
    conn = connect_fresh()
    for name, of_class, more in (
        ("project.search", "read_only", ""),
        ("status.set", "idempotent_mutation", ""),
        ("note.create", "idempotent_mutation", ", ttl => '0'"),
        ("invoice.create", "deduplicated_creation", ", settle_delay => '0', probes_required => 1"),
        ("seat.hold", "reversible", ", settle_delay => '0', probes_required => 1, compensation_type => 'seat.release'"),
        ("seat.release", "idempotent_mutation", ""),
        ("payment.release", "irreversible", ", distinct_approver => 'none', settle_delay => '0', probes_required => 1"),
    ):
        conn.execute(f"SELECT idem_register_action_type('{name}', '{of_class}'{more})")
    return conn


def dead(conn, key, action_type, **named):
    """Its worker was granted the action, perhaps carried it out, and is never heard of again."""
    got = reserve(conn, key, REQUEST, action_type=action_type, lease_seconds=0.02, **named)
    assert got.granted
    outlive(conn, got.lease_expires_at)
    return got


def proposed(conn, key, request=REQUEST):
    return row(conn, "SELECT * FROM idem_propose(%s, %s, action_type => 'payment.release')", (key, Jsonb(request)))


def approve(conn, action_id, request=REQUEST):
    """Somebody has seen this request."""
    seen = value(conn, "SELECT idem_action_fingerprint(idem_fingerprint(%s::jsonb), 'payment.release')", (Jsonb(request),))
    return call(conn, "idem_approve", action_id=action_id, fingerprint=seen)


# What an incoming request is told, by what is stored.

def test_new_key(conn):
    """Atomically reserve the key and start the action."""
    got = reserve(conn, "refund", REQUEST)
    assert (got.granted, got.decision, status(conn, "refund").state) == (True, "execute", "started")


def test_same_key_same_fingerprint_committed(conn):
    """Return the stored result; do not call the tool again."""
    commit(conn, reserve(conn, "refund", REQUEST), response={"id": "re_1"})
    again = reserve(conn, "refund", REQUEST)
    assert (again.granted, again.decision, again.response) == (False, "replay", {"id": "re_1"})


def test_same_key_same_fingerprint_started(conn):
    """Return a pending state or wait within a bounded budget."""
    reserve(conn, "refund", REQUEST)
    for named in ({}, {"wait_seconds": 0.05}):
        again = reserve(conn, "refund", REQUEST, **named)
        assert (again.granted, again.decision) == (False, "pending") and again.retry_after_seconds >= 0


def test_same_key_same_fingerprint_unknown(conn):
    """Reconcile first; do not blindly replay a non-idempotent tool."""
    end(conn, "idem_mark_unknown", reserve(conn, "invoice", REQUEST, action_type="invoice.create"))
    assert reserve(conn, "invoice", REQUEST, action_type="invoice.create").decision == "unknown"
    got = reserve(conn, "invoice", REQUEST, action_type="invoice.create", can_reconcile=True)
    assert got.decision == "reconcile"


def test_same_key_different_fingerprint(conn):
    """Reject and alert; never overwrite the original intent."""
    got = reserve(conn, "refund", REQUEST)
    before = row(conn, "SELECT * FROM idem_action WHERE action_id = %s", (got.action_id,))
    assert reserve(conn, "refund", {**REQUEST, "amount": 1}).decision == "conflict"
    assert row(conn, "SELECT * FROM idem_action WHERE action_id = %s", (got.action_id,)) == before
    commit(conn, got)


def test_expired_key(conn):
    """Require a new explicit action before creating anything."""
    commit(conn, reserve(conn, "note", REQUEST, action_type="note.create"), response={"id": "n_1"})
    for _ in range(2):  # before the sweep has been there, and after it
        again = reserve(conn, "note", REQUEST, action_type="note.create")
        assert (again.granted, again.decision, again.response) == (False, "expired", None)
        sweep(conn)
    assert reserve(conn, "note, once more", REQUEST, action_type="note.create").granted


# Classes of tools, and what becomes of an action whose worker has died.

@pytest.mark.parametrize("action_type", ["project.search", "status.set"])
def test_what_is_safe_to_repeat_is_repeated(conn, action_type):
    """Read-only: normally safe to retry. Idempotent mutation: repeated safely when the final state is explicit."""
    first = dead(conn, "k", action_type)
    again = reserve(conn, "k", REQUEST, action_type=action_type)
    assert (again.granted, again.attempt) == (True, 2) and again.fence > first.fence


def test_deduplicated_creation(conn):
    """Stable identities and duplicate protection: the provider's key is the action's own, and nobody creates twice."""
    first = dead(conn, "k", "invoice.create")
    assert not reserve(conn, "k", REQUEST, action_type="invoice.create").granted
    looking = reserve(conn, "k", REQUEST, action_type="invoice.create", can_reconcile=True)
    assert looking.decision == "reconcile"
    assert resolve(conn, looking, "not_applied").state == "retryable"
    again = reserve(conn, "k", REQUEST, action_type="invoice.create")
    assert again.granted and again.provider_key == first.provider_key


def test_reversible_action(conn):
    """A defined cancellation or compensation path."""
    got = reserve(conn, "k", REQUEST, action_type="seat.hold")
    commit(conn, got, resource_id="seat_7")
    undo = row(conn, "SELECT * FROM idem_compensate(%s, 'undo k', '{}')", (got.action_id,))
    assert undo.granted
    commit(conn, undo)
    both = row(conn, "SELECT * FROM idem_compensations")
    assert (both.action_type, both.compensation_type) == ("seat.hold", "seat.release")


def test_irreversible_action(conn):
    """Stricter policy: no grant without a person, no effect without a mark before it, no second try by itself."""
    assert not reserve(conn, "k", REQUEST, action_type="payment.release").granted
    action_id = row(conn, "SELECT * FROM idem_actions WHERE key = 'k'").action_id
    assert approve(conn, action_id) == "approved"
    got = reserve(conn, "k", REQUEST, action_type="payment.release", lease_seconds=0.5)
    assert got.granted and got.provider_key is None, "the key comes with the mark"
    assert end(conn, "idem_dispatch", got)
    outlive(conn, got.lease_expires_at)
    assert not reserve(conn, "k", REQUEST, action_type="payment.release").granted
    assert status(conn, "k").state == "unknown"


# The envelope.

def test_envelope(conn):
    """What identifies an action: assigned by the application, the same at every attempt; and its arguments under a digest."""
    named = {"tenant": "acme", "actor": "user_9", "session_id": "conv_3", "action_type": "status.set"}
    first = dead(conn, "refund", ttl_seconds=40 * 86400.0, **named)
    again = reserve(conn, "refund", REQUEST, **named)
    stored = row(conn, "SELECT * FROM idem_actions WHERE key = 'refund'")
    assert first.action_id == again.action_id == stored.action_id
    assert first.attempt_id != again.attempt_id
    assert (stored.action_type, stored.actor, stored.tenant, stored.session_id, stored.key) == (
        "status.set", "user_9", "acme", "conv_3", "refund")
    assert stored.policy_version == 1
    digest = value(conn, """SELECT fingerprint = idem_action_fingerprint(idem_fingerprint(%s), 'status.set', 'acme', 'user_9')
        FROM idem_action WHERE action_id = %s""", (Jsonb(REQUEST), stored.action_id))
    assert digest
    for other in ({"actor": "user_10"}, {"action_type": "project.search"}, {"target": "another"}):
        assert reserve(conn, "refund", REQUEST, **{**named, **other}).decision == "conflict", "a protected scope"
    commit(conn, again)
    ended = row(conn, "SELECT * FROM idem_actions WHERE key = 'refund'")
    assert ended.created_at == stored.created_at and ended.expires_at >= ended.ended_at + timedelta(days=40)


def test_model_changes_a_protected_argument(conn):
    """A new fingerprint and new approval are required."""
    action_id = proposed(conn, "k").action_id
    assert approve(conn, action_id) == "approved"
    changed = {**REQUEST, "amount": 1}
    assert reserve(conn, "k", changed, action_type="payment.release").decision == "conflict"
    anew = proposed(conn, "k, changed", changed)
    assert anew.decision == "awaiting_approval"
    assert sqlstate(approve, conn, anew.action_id, REQUEST) is not None, "what was approved is another request"
    assert approve(conn, anew.action_id, changed) == "approved"
    assert reserve(conn, "k, changed", changed, action_type="payment.release").granted


# The steps of an execution.

def test_execution_flow(conn):
    """From the proposal to the correction: each step under the one identity."""
    # The agent proposes a structured action; permission and policy are checked, and its identity does not change any more.
    proposal = proposed(conn, "flow")
    assert proposal.decision == "awaiting_approval"
    assert reserve(conn, "flow", REQUEST, action_type="payment.release").decision == "awaiting_approval"
    assert approve(conn, proposal.action_id) == "approved"
    # The ledger has no result yet, so the action is reserved.
    got = reserve(conn, "flow", REQUEST, action_type="payment.release")
    assert (got.granted, got.action_id) == (True, proposal.action_id)
    # The tool is called with an idempotency key, and refuses for now: the same identity, and the same key, once more.
    key = end(conn, "idem_dispatch", got)
    end(conn, "idem_fail", got, proof="refused", retryable=True, retry_after_seconds=0)
    again = reserve(conn, "flow", REQUEST, action_type="payment.release")
    assert (again.granted, again.action_id, again.attempt) == (True, proposal.action_id, 2)
    assert end(conn, "idem_dispatch", again) == key
    # The result and the external reference are stored, and told to whoever asks again.
    commit(conn, again, response={"status": "sent"}, resource_id="pay_1", external_request_id="req_1")
    told = reserve(conn, "flow", REQUEST, action_type="payment.release")
    assert (told.decision, told.response, told.resource_id) == ("replay", {"status": "sent"}, "pay_1")
    # A permanent failure is an exception, not a retry.
    refused = reserve(conn, "refused", REQUEST, action_type="invoice.create")
    end(conn, "idem_fail", refused, proof="refused", retryable=False)
    assert reserve(conn, "refused", REQUEST, action_type="invoice.create").decision == "failed"
    # Partial completion triggers a correction of its own.
    held = reserve(conn, "held", REQUEST, action_type="seat.hold")
    commit(conn, held, resource_id="seat_7")
    assert row(conn, "SELECT * FROM idem_compensate(%s, 'held, undone', '{}')", (held.action_id,)).granted
    assert len(rows(conn, "SELECT * FROM idem_compensations")) == 1

"""Each row of the seeds' tables of recovery, failure injection and ledger fields, with the provider's side played."""

import pytest

from sessions import call, commit, end, outlive, reserve, resolve, row, rows, status, together, value

SHORT = 0.02


class Provider:
    """What really happened, by client reference; a look-up may see all of it, or nothing yet."""

    def __init__(self):
        self.made = []
        self.searchable = True

    def create(self, reference, **what):
        self.made.append({"id": f"id_{len(self.made) + 1}", "reference": reference, **what})
        return self.made[-1]

    def search(self, reference):
        return [one for one in self.made if one["reference"] == reference] if self.searchable else []


@pytest.fixture
def provider():
    return Provider()


@pytest.fixture
def conn(connect_fresh):
    conn = connect_fresh()
    for statement in (
        "SELECT idem_register_action_type('ticket.create', 'deduplicated_creation', settle_delay => '0',"
        " probes_required => 1, lookup_hint => 'search by client reference')",
        "SELECT idem_register_action_type('email.send', 'deduplicated_creation', settle_delay => '0',"
        " resolve_deadline => '300 ms')",
        "SELECT idem_register_action_type('refund.create', 'deduplicated_creation', settle_delay => '0',"
        " probes_required => 1)",
        "SELECT idem_register_action_type('crm.update', 'idempotent_mutation')",
        "SELECT idem_register_action_type('vm.create', 'reversible', settle_delay => '0', probes_required => 1,"
        " compensation_type => 'vm.delete')",
        "SELECT idem_register_action_type('vm.delete', 'irreversible')",
    ):
        conn.execute(statement)
    return conn


def timed_out(conn, key, action_type, effect=lambda got: None, **named):
    """The request went out, its effect may have happened, and no answer came back."""
    got = reserve(conn, key, action_type=action_type, lease_seconds=SHORT, **named)
    assert got.granted
    effect(got)
    end(conn, "idem_mark_unknown", got, reason="timed out")
    outlive(conn, got.lease_expires_at)
    return got


def leased(conn):
    return row(conn, "SELECT * FROM idem_reconcile_next(1, worker => 'reconciler')")


# Recovery by side effect, and when a person is asked.

def test_create_a_support_ticket(conn, provider):
    """Lookup by client reference; reuse the found ticket."""
    timed_out(conn, "ticket 1", "ticket.create", lambda got: provider.create(str(got.action_id)))
    item = leased(conn)
    assert item.lookup_hint == "search by client reference"
    [found] = provider.search(str(item.action_id))
    assert resolve(conn, item, "applied", resource_id=found["id"]).state == "committed"
    again = reserve(conn, "ticket 1", action_type="ticket.create")
    assert (again.decision, again.resource_id) == ("replay", "id_1") and len(provider.made) == 1


@pytest.mark.parametrize("finding", ["incomplete", "several"])
def test_create_a_support_ticket_asks_a_person(conn, provider, finding):
    """Provider search is incomplete or multiple candidates match."""
    timed_out(conn, "ticket 2", "ticket.create",
              lambda got: [provider.create(str(got.action_id)) for _ in range(2)])
    item = leased(conn)
    if finding == "several":
        candidates = provider.search(str(item.action_id))
        assert len(candidates) == 2
        resolve(conn, item, "ambiguous", candidates=candidates)
    else:
        assert call(conn, "idem_escalate", action_id=item.action_id, note="the search is incomplete") == "unknown"
    assert reserve(conn, "ticket 2", action_type="ticket.create", can_reconcile=True).decision == "review"
    assert rows(conn, "SELECT * FROM idem_reconcile_next(10)") == [], "it is no reconciler's any more"
    assert row(conn, "SELECT needs_review, next_step FROM idem_unresolved").next_step.startswith("a person decides")


def test_send_an_email_asks_a_person(conn, provider):
    """Delivery state is unknown and a duplicate email is harmful: at the deadline, with nobody running."""
    got = timed_out(conn, "mail 1", "email.send")
    assert resolve(conn, leased(conn), "inconclusive", next_probe_seconds=0).state == "unknown"
    outlive(conn, value(conn, "SELECT deadline_at FROM idem_actions"))
    # No sweep, no worker, no reconciler has been here since.
    assert reserve(conn, "mail 1", action_type="email.send", can_reconcile=True).decision == "review"
    assert rows(conn, "SELECT * FROM idem_reconcile_next(10)") == []
    listed = row(conn, "SELECT needs_review, late > interval '0' AS late FROM idem_unresolved JOIN idem_overdue USING (key)")
    assert listed.needs_review and listed.late
    # A late answer is an answer still.
    assert commit(conn, got, resource_id="msg_1") == "committed"


def test_charge_or_refund_money(conn, provider):
    """Provider idempotency key plus payment lookup: the reconciler has the key that went out with the attempt."""
    got = timed_out(conn, "refund 1", "refund.create",
                    lambda got: provider.create(str(got.provider_key), amount=500), target="order 4821")
    item = leased(conn)
    assert (item.provider_key, item.target) == (got.provider_key, "order 4821")
    [found] = provider.search(str(item.provider_key))
    assert resolve(conn, item, "applied", resource_id=found["id"], evidence=found).state == "committed"


def test_charge_or_refund_money_asks_a_person(conn, provider):
    """Amount, currency, or account scope cannot be reconciled: a finding of its own, and what was seen is kept."""
    timed_out(conn, "refund 2", "refund.create", lambda got: provider.create(str(got.provider_key), amount=499))
    item = leased(conn)
    [found] = provider.search(str(item.provider_key))
    resolve(conn, item, "ambiguous", candidates=[found], evidence={"asked for": 500, "found": found["amount"]})
    assert reserve(conn, "refund 2", action_type="refund.create").decision == "review"
    kept = row(conn, "SELECT evidence, candidates FROM idem_event WHERE evidence IS NOT NULL")
    assert kept.evidence == {"asked for": 500, "found": 499} and kept.candidates == [found]
    assert call(conn, "idem_decide", action_id=item.action_id, finding="applied", note="the fee was taken off",
                resource_id=found["id"]) == "committed"


def test_update_a_crm_record(conn):
    """Use an external version or upsert key; verify the final record: it may be repeated, by whoever comes."""
    got = timed_out(conn, "crm 1", "crm.update", store_request=True)
    [again] = rows(conn, "SELECT * FROM idem_due(1)")
    assert (again.key, again.attempt, again.provider_key) == ("crm 1", 2, got.provider_key)
    assert commit(conn, again, response={"version": 8}) == "committed"


def test_update_a_crm_record_asks_a_person(conn):
    """Concurrent edits make the target version ambiguous."""
    timed_out(conn, "crm 2", "crm.update")
    resolve(conn, leased(conn), "ambiguous", candidates=[{"version": 7}, {"version": 8}])
    assert reserve(conn, "crm 2", action_type="crm.update").decision == "review", "not even what may be repeated"


def test_provision_a_resource(conn, provider):
    """Lookup by client token: not there, for certain, so it is made once more under the same token."""
    got = timed_out(conn, "vm 1", "vm.create")
    item = leased(conn)
    assert provider.search(str(item.provider_key)) == []
    assert resolve(conn, item, "not_applied").state == "retryable"
    again = reserve(conn, "vm 1", action_type="vm.create")
    assert (again.attempt, again.provider_key) == (2, got.provider_key)
    assert commit(conn, again, resource_id="vm_1") == "committed"


def test_provision_a_resource_asks_a_person(conn):
    """Two resources already exist: the second one's report is a discrepancy, whatever the action's state."""
    got = timed_out(conn, "vm 2", "vm.create")
    assert resolve(conn, leased(conn), "applied", resource_id="vm_2").state == "committed"
    assert commit(conn, got, resource_id="vm_3") == "discrepancy"
    listed = row(conn, "SELECT state, resource_id, last_resource_id, discrepancy, next_step FROM idem_unresolved")
    assert (listed.resource_id, listed.last_resource_id, listed.discrepancy) == ("vm_2", "vm_3", True)
    assert listed.next_step.startswith("a person decides")


def test_cancel_or_compensate(conn):
    """Create a new, explicitly named action with its own key. A person is asked where it cannot be undone."""
    got = reserve(conn, "vm 4", action_type="vm.create")
    commit(conn, got, resource_id="vm_4")
    made = row(conn, "SELECT * FROM idem_compensate(%s, 'delete vm 4', '{\"id\": \"vm_4\"}')", (got.action_id,))
    assert (made.granted, made.decision) == (False, "awaiting_approval")
    shown = row(conn, "SELECT key, state, compensation_key, compensation_state FROM idem_compensations")
    assert shown == ("vm 4", "committed", "delete vm 4", "proposed")


# Failures injected, and what has to hold.

def test_connection_closes_after_provider_commit(conn, provider):
    """A retry returns the original resource, not a second resource."""
    timed_out(conn, "order 1", "ticket.create", lambda got: provider.create(str(got.action_id)))
    assert not reserve(conn, "order 1", action_type="ticket.create").granted
    item = leased(conn)
    [found] = provider.search(str(item.action_id))
    resolve(conn, item, "applied", response=found, resource_id=found["id"])
    assert reserve(conn, "order 1", action_type="ticket.create").response == found and len(provider.made) == 1


def test_two_workers_receive_the_same_key_concurrently(connect_fresh, conn, provider):
    """Only one external action is started."""
    def work(conn):
        got = reserve(conn, "order 2", action_type="ticket.create")
        if got.granted:
            provider.create("order 2")
        return got.decision
    workers = [connect_fresh() for _ in range(6)]
    decisions = together(*(lambda conn=conn: work(conn) for conn in workers))
    assert sorted(decisions) == ["execute"] + ["pending"] * 5 and len(provider.made) == 1


def test_same_key_arrives_with_a_changed_amount(conn):
    """The request is rejected as a conflict, in every state that recovery passes through."""
    timed_out(conn, "order 3", "ticket.create")
    ask = {"request": {"amount": 6}, "action_type": "ticket.create", "can_reconcile": True}
    assert reserve(conn, "order 3", **ask).decision == "conflict"
    item = leased(conn)
    assert reserve(conn, "order 3", **ask).decision == "conflict"
    resolve(conn, item, "not_applied")
    assert reserve(conn, "order 3", **ask).decision == "conflict"


def test_provider_returns_a_delayed_result(conn, provider):
    """The action remains unknown until a lookup resolves it."""
    provider.searchable = False
    timed_out(conn, "order 4", "ticket.create", lambda got: provider.create(str(got.action_id)))
    item = leased(conn)
    assert provider.search(str(item.action_id)) == []
    assert resolve(conn, item, "inconclusive", next_probe_seconds=0).state == "unknown"
    for _ in range(3):
        assert reserve(conn, "order 4", action_type="ticket.create").decision == "unknown"
    provider.searchable = True
    item = leased(conn)
    [found] = provider.search(str(item.action_id))
    assert resolve(conn, item, "applied", resource_id=found["id"]).state == "committed"


def test_user_clicks_retry_twice(connect_fresh, conn):
    """Both UI requests map to one logical action."""
    first, second = together(*(lambda conn=conn: reserve(conn, "order 5") for conn in (connect_fresh(), connect_fresh())))
    assert first.action_id == second.action_id and first.granted != second.granted
    assert value(conn, "SELECT count(*) FROM idem_actions WHERE key = 'order 5'") == 1


def test_model_emits_reordered_json_fields(conn):
    """The canonical fingerprint remains equivalent, for the reconciler's comparison too."""
    got = reserve(conn, "order 6", request={"amount": 5, "to": "ann"}, action_type="ticket.create", lease_seconds=SHORT)
    outlive(conn, got.lease_expires_at)
    other = {"to": "ann", "amount": 5.0}
    assert reserve(conn, "order 6", request=other, action_type="ticket.create").decision == "unknown"
    assert value(conn, "SELECT %s = idem_action_fingerprint(idem_fingerprint('{\"to\": \"ann\", \"amount\": 5.0}'), %s)",
                 (leased(conn).fingerprint, "ticket.create"))


# Fields of the ledger.

def test_ledger_fields(conn):
    """Seed: a useful action ledger contains each of these; none of them is the request."""
    got = reserve(conn, "fields", action_type="ticket.create", workflow_id="wf_1", target="order 7", worker="w")
    commit(conn, got, response={"id": "t_1"}, resource_id="t_1", external_request_id="req_1")
    found = row(conn, "SELECT * FROM idem_actions WHERE key = 'fields'")
    assert found.action_id == got.action_id
    assert (found.workflow_id, found.action_type, found.target, found.state, found.resource_id,
            found.external_request_id, found.attempt) == (
        "wf_1", "ticket.create", "order 7", "committed", "t_1", "req_1", 1)
    assert found.created_at <= found.ended_at < found.expires_at
    assert status(conn, "fields").response == {"id": "t_1"}
    assert value(conn, "SELECT count(*) FROM idem_trace('fields') WHERE detail LIKE '%%fingerprint=%%'") == 1


# Known ways to fail.

@pytest.mark.parametrize("reason", ["time-out", "500", "504", "connection reset"])
def test_an_ambiguous_failure_stays_unknown(conn, reason):
    """Failure 48: nothing that may have happened is forgotten; retries are told so."""
    got = reserve(conn, f"charge {reason}", action_type="refund.create")
    assert end(conn, "idem_mark_unknown", got, reason=reason) == "unknown"
    for _ in range(3):
        assert reserve(conn, f"charge {reason}", action_type="refund.create").decision == "unknown"
    assert row(conn, "SELECT reason FROM idem_unresolved").reason == reason


@pytest.mark.parametrize("proof", ["not_sent", "refused"])
def test_a_certain_failure_allows_a_retry(conn, proof):
    """Failure 48, the other half: under the same key, as attempt 2."""
    got = reserve(conn, "charge", action_type="refund.create")
    assert end(conn, "idem_fail", got, proof=proof, retryable=True, retry_after_seconds=0) == "retryable"
    again = reserve(conn, "charge", action_type="refund.create")
    assert (again.granted, again.attempt) == (True, 2)


def test_a_time_out_that_landed(conn, provider):
    """Failure 49: pending during the lease, unknown after the mark, replay once it was found; granted once."""
    got = reserve(conn, "landed", action_type="refund.create")
    provider.create(str(got.provider_key))
    assert reserve(conn, "landed", action_type="refund.create").decision == "pending"
    end(conn, "idem_mark_unknown", got)
    assert reserve(conn, "landed", action_type="refund.create").decision == "unknown"
    resolve(conn, leased(conn), "applied", resource_id=provider.made[0]["id"])
    last = reserve(conn, "landed", action_type="refund.create")
    assert (last.decision, last.resource_id, last.attempt) == ("replay", "id_1", 1)
    assert value(conn, "SELECT count(*) FROM idem_trace('landed') WHERE event = 'execute'") == 1


def test_evidence_of_a_superseded_attempt_blocks_a_contrary_finding(conn):
    """However many probes find nothing: somebody who was there says that it happened."""
    got = timed_out(conn, "seen", "refund.create")
    assert end(conn, "idem_add_evidence", got, finding="applied", resource_id="re_1") == "recorded"
    item = leased(conn)
    assert [one["resource_id"] for one in item.evidence] == ["re_1"]
    assert resolve(conn, item, "not_applied").state == "unknown"
    assert reserve(conn, "seen", action_type="refund.create", can_reconcile=True).decision == "review"


def test_agreeing_probes_have_to_be_apart(conn):
    """Two look-ups in a row see the same moment; the queue gives the action out again when the next one counts."""
    conn.execute("SELECT idem_register_action_type('apart', 'deduplicated_creation', settle_delay => '0',"
                 " probes_required => 2, probe_interval => '400 ms')")
    timed_out(conn, "apart", "apart")
    first = leased(conn)
    resolved = resolve(conn, first, "not_applied")
    assert resolved.state == "unknown"
    assert rows(conn, "SELECT * FROM idem_reconcile_next(1)") == [], "not before the probe would count"
    outlive(conn, resolved.next_probe_at)
    second = leased(conn)
    assert second.probes == 1 and resolve(conn, second, "not_applied").state == "retryable"

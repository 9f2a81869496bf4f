"""Approvals with real sessions: whoever comes first decides, and nothing passes after what was taken away.

Two sessions start each round at the same moment. What the losers are told must fit what is stored, in every round, and
each winner must have been seen at least once.
"""

from collections import Counter

import psycopg
import pytest

from sessions import (call, end, in_background, new_token, outlive, reserve, row, rows, sqlstate, status, sweep, together,
                      value, wait_for)

PATIENCE = 20
ROUNDS = 100
PAYMENT = "payment.release"


@pytest.fixture(autouse=True, scope="module")
def types(shared_cluster, dbname):
    with shared_cluster.connect(dbname) as conn:
        conn.execute("SELECT idem_register_action_type(%s, 'irreversible', distinct_approver => 'none')", (PAYMENT,))


def propose(conn, key, **named):
    got = call_row(conn, "idem_propose", key=key, request={"amount": 5}, action_type=PAYMENT, **named)
    assert got.decision == "awaiting_approval"
    return got.action_id


def call_row(conn, function, **named):
    arguments = ", ".join(f"{name} => %({name})s" for name in named)
    named = {name: psycopg.types.json.Jsonb(given) if isinstance(given, dict) else given for name, given in named.items()}
    return row(conn, f"SELECT * FROM {function}({arguments})", named)


def fingerprint(conn, action_id):
    return value(conn, "SELECT fingerprint FROM idem_action WHERE action_id = %s", (action_id,))


def approve(conn, action_id, **named):
    return call(conn, "idem_approve", action_id=action_id, fingerprint=fingerprint(conn, action_id), **named)


def approved(conn, key, **named):
    action_id = propose(conn, key)
    assert approve(conn, action_id, **named) == "approved"
    return action_id


def withdraw(conn, action_id):
    return call(conn, "idem_withdraw", action_id=action_id)


def start(conn, key, **named):
    return reserve(conn, key, action_type=PAYMENT, **named)


def said(answer):
    return answer.sqlstate if isinstance(answer, psycopg.Error) else answer


def events(conn, action_id):
    return [event.event for event in rows(conn, "SELECT event FROM idem_event WHERE action_id = %s ORDER BY n", (action_id,))]


def test_approve_against_withdraw(connect, key):
    a, b, seen = connect(), connect(), Counter()
    for n in range(ROUNDS):
        action_id = propose(a, f"{key}/{n}")
        seal = fingerprint(a, action_id)
        answers = [said(answer) for answer in together(
            lambda: call(a, "idem_approve", action_id=action_id, fingerprint=seal), lambda: withdraw(b, action_id))]
        # In whichever order: the withdrawal stands.
        assert answers in (["approved", "stopped"], ["ID003", "stopped"]), answers
        seen[answers[0]] += 1
        assert (status(a, f"{key}/{n}").state, start(a, f"{key}/{n}").decision) == ("rejected", "rejected")
    assert len(seen) == 2, seen


def test_withdraw_against_reserve(connect, key):
    a, b, seen = connect(), connect(), Counter()
    for n in range(ROUNDS):
        action_id = approved(a, f"{key}/{n}")
        got, answer = together(lambda: start(a, f"{key}/{n}"), lambda: withdraw(b, action_id))
        assert answer == "stopped", answer
        seen[got.decision] += 1
        if got.decision == "execute":
            # The grant came first. It cannot be used.
            assert sqlstate(end, a, "idem_dispatch", got) == "ID005"
            assert end(a, "idem_release", got) == "rejected"
        else:
            assert got.decision == "rejected"
        assert start(b, f"{key}/{n}").decision == "rejected"
        assert not value(a, "SELECT dispatched_at IS NOT NULL FROM idem_action WHERE action_id = %s", (action_id,))
    assert len(seen) == 2, seen


@pytest.mark.parametrize("off", ["idem_withdraw", "idem_cancel"])
def test_withdraw_against_dispatch(connect, key, off):
    """Either the key is handed out and the answer is too_late, or neither."""
    a, b, seen = connect(), connect(), Counter()
    for n in range(ROUNDS):
        action_id = approved(a, f"{key}/{n}")
        got = start(a, f"{key}/{n}")
        sent, answer = map(said, together(lambda: end(a, "idem_dispatch", got), lambda: call(b, off, action_id=action_id)))
        went = sent not in ("ID005", "ID003")
        assert answer == ("too_late" if went else "stopped"), (sent, answer)
        seen[went] += 1
        # Whatever came of it, nobody else starts it.
        assert end(a, "idem_mark_unknown", got) == "unknown" if went else end(a, "idem_release", got) == "rejected"
        assert start(b, f"{key}/{n}").decision in (("unknown", "review") if went else ("rejected",))
        assert events(a, action_id).count("withdrawn" if off == "idem_withdraw" else "cancelled") == 1
    assert len(seen) == 2, seen


def test_two_approvers(connect, key):
    a, b = connect(), connect()
    for n in range(ROUNDS):
        action_id = propose(a, f"{key}/{n}")
        seal = fingerprint(a, action_id)
        answers = together(*[lambda s=s, v=v: call(s, "idem_approve", action_id=action_id, fingerprint=seal, valid_seconds=v)
                             for s, v in ((a, 60.0), (b, 600.0))])
        assert answers == ["approved", "approved"]
        assert events(a, action_id) == ["proposed", "approved", "approved"]
        assert start(a, f"{key}/{n}").granted and not start(b, f"{key}/{n}").granted, "one action, one start"


def test_approve_against_reject(connect, key):
    a, b, seen = connect(), connect(), Counter()
    for n in range(ROUNDS):
        action_id = propose(a, f"{key}/{n}")
        seal = fingerprint(a, action_id)
        answers = tuple(map(said, together(lambda: call(a, "idem_approve", action_id=action_id, fingerprint=seal),
                                           lambda: call(b, "idem_reject", action_id=action_id))))
        assert answers in (("approved", "rejected"), ("ID003", "rejected")), answers
        seen[answers] += 1
        assert start(a, f"{key}/{n}").decision == "rejected"
    assert len(seen) == 2, seen


def test_many_callers_of_one_approved_action(connect, key):
    sessions = [connect() for _ in range(8)]
    action_id = approved(sessions[0], key)
    decisions = [got.decision for got in together(*[lambda s=s: start(s, key) for s in sessions])]
    assert sorted(decisions) == ["execute"] + 7 * ["pending"]
    assert events(sessions[0], action_id) == ["proposed", "approved", "execute"]


def test_withdrawal_waits_for_the_grant_that_is_under_way(connect, key):
    owner, other = connect(autocommit=False), connect()
    action_id = approved(other, key)
    got = start(owner, key)
    waiting = in_background(withdraw, other, action_id)
    wait_for(connect(), other, "transactionid", "tuple")
    owner.commit()
    assert waiting.result(PATIENCE) == "stopped"
    assert sqlstate(end, connect(), "idem_dispatch", got) == "ID005"


def test_withdrawal_that_is_rolled_back(connect, key):
    """A gate that waited for it opens."""
    owner, other = connect(), connect(autocommit=False)
    action_id = approved(owner, key)
    got = start(owner, key)
    assert withdraw(other, action_id) == "stopped"
    waiting = in_background(end, owner, "idem_dispatch", got)
    wait_for(connect(), owner, "transactionid", "tuple")
    other.rollback()
    assert waiting.result(PATIENCE)


def test_approval_lapses_while_the_gate_waits(connect, key):
    """The time that counts is the one after the wait."""
    owner, other = connect(), connect(autocommit=False)
    action_id = approved(owner, key, valid_seconds=1.0)
    got = start(owner, key)
    lapses = value(owner, "SELECT approval_expires_at FROM idem_action WHERE action_id = %s", (action_id,))
    other.execute("SELECT FROM idem_action WHERE action_id = %s FOR UPDATE", (action_id,))
    waiting = in_background(sqlstate, end, owner, "idem_dispatch", got)
    wait_for(connect(), owner, "transactionid", "tuple")
    outlive(connect(), lapses)
    other.rollback()
    assert waiting.result(PATIENCE) == "ID005"


def test_type_changes_while_a_grant_waits(connect, key):
    """The grant is decided on again after the wait: under the policy that holds then the approval is none."""
    name = f"changing/{new_token()}"
    owner, other = connect(), connect(autocommit=False)
    owner.execute("SELECT idem_register_action_type(%s, 'irreversible', distinct_approver => 'none')", (name,))
    action_id = call_row(owner, "idem_propose", key=key, request={"amount": 5}, action_type=name).action_id
    approve(owner, action_id)
    assert reserve(owner, key, action_type=name, attempt_id=(token := new_token())).granted
    other.execute("SELECT idem_register_action_type(%s, 'irreversible', distinct_approver => 'none', max_attempts => 9)", (name,))
    other.commit()
    # It keeps the policy it was granted under;
    got = reserve(owner, key, action_type=name, attempt_id=token)
    assert got.decision == "resume" and end(owner, "idem_release", got) == "retryable"
    # the next one does not.
    assert reserve(owner, key, action_type=name).decision == "awaiting_approval"


def test_two_logins_and_a_wrapper(shared_cluster, dbname, connect, key):
    """Who logs in is who proposes or approves, whatever function or role stands between."""
    admin = connect()
    admin.execute("SELECT idem_register_action_type('apart', 'irreversible')")
    admin.execute("""
        CREATE ROLE live_app LOGIN; CREATE ROLE live_boss LOGIN; CREATE ROLE live_hat;
        GRANT live_hat TO live_app, live_boss;
        SELECT idem_grant('live_app', 'execute', 'approve'), idem_grant('live_boss', 'approve'), idem_grant('live_hat', 'execute', 'approve');
        CREATE FUNCTION wrapped(id uuid, seal bytea) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT idem_approve(id, seal)';
        GRANT EXECUTE ON FUNCTION wrapped TO live_app, live_boss""")
    app, boss = connect(user="live_app"), connect(user="live_boss")
    try:
        action_id = call_row(app, "idem_propose", key=key, request={"amount": 5}, action_type="apart").action_id
        seal = fingerprint(admin, action_id)
        direct = "SELECT idem_approve(%s, %s)"
        for role in ("live_app", "live_hat"):
            app.execute(f"SET ROLE {role}")
            assert sqlstate(value, app, direct, (action_id, seal)) == "42501"
        app.execute("RESET ROLE")
        assert sqlstate(value, app, "SELECT wrapped(%s, %s)", (action_id, seal)) == "42501"
        assert value(boss, "SELECT wrapped(%s, %s)", (action_id, seal)) == "approved"
        assert reserve(app, key, action_type="apart").granted
    finally:
        app.close()
        boss.close()
        admin.execute("DROP FUNCTION wrapped; DROP OWNED BY live_app, live_boss, live_hat; DROP ROLE live_app, live_boss, live_hat")


def test_proposals_outlive_a_sweep_and_lapse_by_themselves(connect_fresh, key):
    conn = connect_fresh()
    conn.execute("SELECT idem_register_action_type('short', 'irreversible', approval_ttl => '500 ms')")
    got = call_row(conn, "idem_propose", key=key, request={"amount": 5}, action_type="short")
    assert sweep(conn).unknown == 0 and status(conn, key).state == "proposed"
    outlive(conn, value(conn, "SELECT approval_expires_at FROM idem_action WHERE action_id = %s", (got.action_id,)))
    assert not rows(conn, "SELECT FROM idem_proposals")
    sweep(conn)
    assert status(conn, key).state == "rejected" and events(conn, got.action_id) == ["proposed", "lapsed"]


def test_what_a_trigger_of_an_outbox_proposes_is_its_owners_proposal(conn, connect, key):
    """Else the owner could have a putter stand for the proposer, and approve by himself."""
    conn.execute("""SELECT idem_register_action_type('wire', 'irreversible');
        CREATE ROLE live_owner LOGIN; CREATE ROLE live_putter LOGIN; CREATE ROLE live_third LOGIN;
        SELECT idem_grant('live_owner', 'execute', 'approve'); SELECT idem_grant('live_putter', 'execute', 'approve');
        SELECT idem_grant('live_third', 'approve');
        SELECT idem_create_outbox('public.owned'); ALTER TABLE owned OWNER TO live_owner; GRANT INSERT ON owned TO live_putter;
        CREATE FUNCTION live_asks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM public.idem_propose(new.aggregateid, '{"amount": 5}', action_type => 'wire'); RETURN new; END $$;
        CREATE TRIGGER asks BEFORE INSERT ON owned FOR EACH ROW EXECUTE FUNCTION live_asks()""")
    owner, putter, third = connect(user="live_owner"), connect(user="live_putter"), connect(user="live_third")
    try:
        assert call(putter, "idem_outbox_put", outbox="public.owned", type="t", aggregatetype="a", aggregateid=key, payload={})
        action_id = value(conn, "SELECT idem_action_id(%s)", (key,))
        assert rows(conn, "SELECT event, role, session_role FROM idem_event WHERE action_id = %s", (action_id,)) == [
            ("proposed", "live_owner", "live_putter")]
        seal = fingerprint(conn, action_id)
        for session in (owner, putter):
            assert sqlstate(call, session, "idem_approve", action_id=action_id, fingerprint=seal) == "42501"
        assert call(third, "idem_approve", action_id=action_id, fingerprint=seal) == "approved"
    finally:
        for session in (owner, putter, third):
            session.close()
        conn.execute("""DROP TABLE owned; DROP FUNCTION live_asks; DROP OWNED BY live_owner, live_putter, live_third;
            DROP ROLE live_owner, live_putter, live_third""")

"""Messages move with their transaction, each to one relay at a time, and none is lost or out of order."""

import random
import subprocess
import threading
import uuid

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from sessions import Sessions, in_background, outlive, row, rows, sqlstate, sweep, together, value, wait_for, wait_until


@pytest.fixture
def outbox(conn):
    """Makes outboxes of the test's own."""
    def make(**options):
        name = f"public.outbox_{uuid.uuid4().hex[:8]}"
        arguments = "".join(f", {option} => %({option})s" for option in options)
        assert value(conn, f"SELECT idem_create_outbox('{name}'{arguments})", options) == "created"
        return name
    return make


def put(conn, outbox, aggregateid="1", payload=None, **named):
    named = {"outbox": outbox, "type": "t", "aggregatetype": "a", "aggregateid": str(aggregateid),
             "payload": Jsonb({} if payload is None else payload), **named}
    arguments = ", ".join(f"{name} => %({name})s" for name in named)
    return value(conn, f"SELECT idem_outbox_put({arguments})", named)


def put_many(conn, outbox, *messages):
    messages = [{"type": "t", "aggregatetype": "a", "aggregateid": str(aggregate), "payload": payload}
                for aggregate, payload in messages]
    return [found.id for found in rows(conn, "SELECT id FROM idem_outbox_put_many(%s, %s)", (outbox, Jsonb(messages)))]


def claim(conn, outbox, max=10, lease=30.0):
    return rows(conn, "SELECT * FROM idem_outbox_claim(%s, %s, %s)", (outbox, max, lease))


def ack(conn, outbox, claimed):
    ids = [message.id for message in claimed]
    if not ids:
        return []
    return [found.outcome for found in rows(conn, "SELECT outcome FROM idem_outbox_ack_many(%s, %s, %s)",
                                            (outbox, claimed[0].claim_id, ids))]


def nack(conn, outbox, message, delay=0.0, **named):
    return value(conn, "SELECT idem_outbox_nack(%s, %s, %s, %s, %s, %s)",
                 (outbox, message.id, message.claim_id, named.get("error", "no"), named.get("proof"), delay))


def test_twenty_sessions_make_the_same_outbox_at_once(connect):
    name = f"public.outbox_{uuid.uuid4().hex[:8]}"
    sessions = [connect() for _ in range(20)]
    made = together(*[lambda conn=conn: value(conn, "SELECT idem_create_outbox(%s)", (name,)) for conn in sessions])
    assert sorted(made) == ["created"] + ["unchanged"] * 19


def test_a_message_is_there_when_its_transaction_commits(connect, outbox):
    """Failure 67."""
    name, writer, relay = outbox(), connect(autocommit=False), connect()
    put(writer, name)
    assert claim(relay, name) == []
    writer.rollback()
    assert claim(relay, name) == []
    first = put(writer, name)
    with writer.transaction(force_rollback=True):
        put(writer, name)
    with writer.transaction():
        second = put(writer, name)
    writer.commit()
    assert [message.id for message in claim(relay, name)] == [first, second]
    third = put(writer, name)
    writer.execute("PREPARE TRANSACTION 'outbox'")
    assert claim(relay, name) == []
    writer.commit()
    relay.execute("COMMIT PREPARED 'outbox'")
    assert [message.id for message in claim(relay, name)] == [third]


def test_nobody_is_notified_unless_asked(connect, outbox):
    """Failure 68: a transaction that notifies cannot be prepared, so that is off."""
    listener, writer, name = connect(), connect(), outbox(notify_channel="news")
    listener.execute("LISTEN news")
    put(writer, name)
    [notice] = listener.notifies(timeout=10, stop_after=1)
    assert (notice.channel, notice.payload) == ("news", name)
    with writer.transaction(), pytest.raises(psycopg.errors.FeatureNotSupported):
        put(writer, name)
        writer.execute("PREPARE TRANSACTION 'notified'")


@pytest.mark.parametrize("batch", [1, 7, 20])
def test_what_is_committed_late_is_not_passed_by(connect, outbox, batch):
    """Failure 58: the first message commits after hundreds of later ones were delivered and the cursor has moved on."""
    name, writer, other, relay = outbox(), connect(autocommit=False), connect(), connect()
    late = put(writer, name)
    with other.transaction(force_rollback=True):
        put(other, name)
    put_many(other, name, *[(n, n) for n in range(300)])
    delivered = 0
    while claimed := claim(relay, name, batch):
        delivered += ack(relay, name, claimed).count("acked")
    assert delivered == 300
    writer.commit()
    assert [message.id for message in claim(relay, name, batch)] == [late]


def test_what_was_acked_and_rolled_back_is_not_passed_by(connect, outbox):
    """Claims in transactions that acked everything before a place, and were rolled back, do not move the cursor there."""
    name, relay = outbox(), connect()
    put_many(relay, name, *[(n, n) for n in range(40)])
    claimed = claim(relay, name, 20, lease=1.0)
    for _ in range(24):
        with relay.transaction(force_rollback=True):
            assert ack(relay, name, claimed) == ["acked"] * 20
            claim(relay, name, 1)
    outlive(relay, claimed[0].lease_expires_at)
    assert [message.id for message in claim(relay, name, 20)] == [message.id for message in claimed]


def test_time_is_the_clocks_also_late_in_a_transaction(connect, outbox):
    """Failure 69: now() would make the lease begin with the transaction."""
    name, writer = outbox(), connect(autocommit=False)
    writer.execute("SELECT pg_sleep(0.3)")
    put(writer, name)
    [message] = claim(writer, name, lease=0.25)
    assert value(writer, "SELECT %s > clock_timestamp()", (message.lease_expires_at,))
    writer.commit()
    assert claim(connect(), name) == []


def test_failing_messages_do_not_starve_the_others(conn, outbox):
    """Failure 61: the first messages always fail; the others are through within the first claims."""
    name = outbox(max_attempts=1000)
    put_many(conn, name, *[("bad", n) for n in range(10)], *[("good", n) for n in range(10)])
    good, cycles = 0, 0
    while good < 10:
        cycles += 1
        assert cycles <= 4
        for message in claim(conn, name):
            if message.aggregateid == "bad":
                assert nack(conn, name, message) == "retry"
            else:
                good += ack(conn, name, [message]).count("acked")
    # No rest was asked for, and there is one.
    assert claim(conn, name) == [] or value(conn, "SELECT clock_timestamp()")


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
def test_relays_that_fail_and_die_deliver_each_message_and_keep_order(connect, conn, outbox, ordered):
    """Four relays; deliveries fail, relays stop reporting, writers run at the same time. Every message arrives, never two
    relays hold one at once, and in an ordered outbox the first deliveries of an aggregate come in commit order."""
    name = outbox(ordered=ordered, max_attempts=1000)
    aggregates, each = 6, 15
    delivered, holding, lock = [], set(), threading.Lock()
    committed = {str(aggregate): [] for aggregate in range(aggregates)}

    def write(session, aggregate):
        for n in range(each):
            with session.transaction():
                put(session, name, aggregate, n)
            committed[str(aggregate)].append(n)

    def relay(session, seed):
        chance = random.Random(seed)
        while True:
            with lock:
                if len(set(delivered)) == aggregates * each:
                    return
            for message in claim(session, name, 3, lease=0.5):
                with lock:
                    assert message.id not in holding
                    holding.add(message.id)
                what = chance.random()
                with lock:
                    # Let go before the database is told, so that nobody can have it before.
                    holding.remove(message.id)
                    if what < 0.8:
                        delivered.append((message.aggregateid, message.payload))
                if what < 0.6:
                    assert ack(session, name, [message]) in (["acked"], ["lost"], ["missing"])
                elif what < 0.8:
                    pass  # delivered, and nobody is told
                else:
                    assert nack(session, name, message) in ("retry", "lost", "missing")

    writers = [lambda s=connect(), a=a: write(s, a) for a in range(aggregates)]
    relays = [lambda s=connect(), n=n: relay(s, n) for n in range(4)]
    assert not [failed for failed in together(*writers, *relays, timeout=100) if failed]
    for aggregate, payloads in committed.items():
        first = list(dict.fromkeys(payload for of, payload in delivered if of == aggregate))
        assert sorted(first) == payloads
        if ordered:
            assert first == payloads


def test_putting_in_order_waits_for_the_same_aggregate_only(connect, conn, outbox):
    name, first, second, third = outbox(ordered=True), connect(autocommit=False), connect(), connect()
    early = put(first, name, "a")
    waiting = in_background(put, second, name, "a")
    wait_for(conn, second, "advisory")
    put(third, name, "b")
    first.commit()
    late = waiting.result(10)
    assert value(conn, f"SELECT array_agg(id ORDER BY seq) FROM {name} WHERE aggregateid = 'a'") == [early, late]


def test_batches_in_opposite_order_do_not_deadlock(connect, outbox):
    name, sessions = outbox(ordered=True), [connect() for _ in range(4)]

    def write(conn, aggregates):
        for _ in range(30):
            put_many(conn, name, *[(aggregate, 1) for aggregate in aggregates])

    there = list(range(10))
    done = together(*[lambda c=c, n=n: write(c, there if n % 2 else there[::-1]) for n, c in enumerate(sessions)])
    assert done == [None] * 4


def test_a_report_and_a_renewal_at_once_do_not_deadlock(connect, conn, outbox):
    name, other = outbox(), connect()
    for _ in range(20):
        put_many(conn, name, *[(n, n) for n in range(50)])
        claimed = claim(conn, name, 50)
        renewed, acked = together(
            lambda: value(other, "SELECT idem_outbox_renew(%s, %s, 60)", (name, claimed[0].claim_id)),
            lambda: ack(conn, name, claimed[::-1]))
        assert acked == ["acked"] * 50 and 0 <= renewed <= 50


def test_a_relay_that_is_killed_leaves_its_messages_to_others(connect, conn, outbox):
    """Before its claim commits nothing is claimed; after that the lease has to pass, and the attempt counts."""
    name, dying = outbox(), connect(autocommit=False)
    put(conn, name)
    [message] = claim(dying, name, lease=0.2)
    assert claim(conn, name) == []
    assert value(conn, "SELECT pg_terminate_backend(%s)", (dying.info.backend_pid,))
    [message] = wait_until(lambda: claim(conn, name, lease=0.2))
    assert message.attempt == 1
    outlive(conn, message.lease_expires_at)
    [again] = claim(conn, name)
    assert again.attempt == 2 and again.id == message.id
    assert ack(conn, name, [message]) == ["lost"] and ack(conn, name, [again]) == ["acked"]


def test_privileges_are_the_tables(connect, conn, outbox):
    """EXECUTE is not enough; what the table's owner may do is done as the owner, restricted."""
    name, role = outbox(), f"role_{uuid.uuid4().hex[:8]}"
    owner = f"owner_{uuid.uuid4().hex[:8]}"
    conn.execute(f"CREATE ROLE {role}; CREATE ROLE {owner}; ALTER TABLE {name} OWNER TO {owner}")
    conn.execute(f"SELECT idem_grant('{role}', 'execute', 'relay')")
    caller = connect()
    caller.execute(f"SET ROLE {role}")
    assert sqlstate(put, caller, name) == "42501" and sqlstate(claim, caller, name) == "42501"
    conn.execute(f"GRANT INSERT ON {name} TO {role}")
    # A trigger of the owner's runs as the owner, and not on the caller's search_path.
    conn.execute(f"""CREATE FUNCTION {name}_seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        new.relay := current_user || ' ' || current_setting('search_path'); RETURN new; END $$;
        CREATE TRIGGER seen BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_seen()""")
    caller.execute("SET search_path TO evil, public")
    put(caller, name)
    assert value(conn, f"SELECT relay FROM {name}") == f"{owner} pg_catalog, pg_temp"
    assert value(caller, "SELECT current_user || ' ' || current_setting('search_path')") == f"{role} evil, public"
    assert sqlstate(claim, caller, name) == "42501"
    conn.execute(f"GRANT SELECT, UPDATE, DELETE ON {name} TO {role}")
    assert ack(caller, name, claim(caller, name)) == ["acked"]
    # What the caller could not do itself, the trigger cannot do for it by changing roles.
    conn.execute(f"""CREATE OR REPLACE FUNCTION {name}_seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        SET ROLE postgres; RETURN new; END $$""")
    assert sqlstate(put, caller, name) == "42501"
    with caller.transaction():
        with pytest.raises(psycopg.errors.InsufficientPrivilege), caller.transaction():
            put(caller, name)
        assert value(caller, "SELECT current_user || ' ' || current_setting('search_path')") == f"{role} evil, public"
    assert value(caller, "SELECT current_user") == role
    conn.execute(f"DROP OWNED BY {role}; DROP TABLE {name}; DROP FUNCTION {name}_seen; DROP ROLE {role}, {owner}")


def test_hostile_objects_have_no_say(connect, conn, outbox):
    """Contract 11: a caller's search_path, temporary tables and operators change nothing."""
    name, caller = outbox(ordered=True), connect()
    caller.execute("""CREATE SCHEMA IF NOT EXISTS hostile;
        CREATE OR REPLACE FUNCTION hostile.no(uuid, uuid) RETURNS boolean LANGUAGE sql AS 'SELECT true OR 1/0 = 1';
        CREATE OR REPLACE FUNCTION hostile.no(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT 1/0 = 1';
        CREATE OPERATOR hostile.= (LEFTARG = text, RIGHTARG = text, FUNCTION = hostile.no);
        CREATE OPERATOR hostile.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = hostile.no);
        CREATE TEMP TABLE idem_outbox (outbox regclass); CREATE TEMP TABLE idem_inbox (message_id text);
        SET search_path TO hostile, pg_catalog, public""")
    put(caller, name)
    put(caller, name)
    claimed = claim(caller, name)
    assert len(claimed) == 1 and ack(caller, name, claimed) == ["acked"]
    assert value(caller, "SELECT idem_create_outbox(%s, true)", (name,)) == "unchanged"
    assert [row(caller, "SELECT decision FROM public.idem_inbox_accept('h', 'm')").decision for _ in "12"] == \
        ["new", "duplicate"]


def test_a_dump_carries_messages_and_options(shared_cluster, connect_fresh, fresh_dbname):
    """Failure 59: nothing in a row means something in its old cluster only."""
    conn = connect_fresh()
    conn.execute("CREATE SCHEMA app")
    assert value(conn, "SELECT idem_create_outbox('app.outbox', true, 3, '1 day')") == "created"
    put_many(conn, "app.outbox", *[(n, n) for n in range(10)])
    [gone] = claim(conn, "app.outbox", 1)
    ack(conn, "app.outbox", [gone])
    row(conn, "SELECT * FROM idem_inbox_accept('c', 'm')")
    copy = f"{fresh_dbname}_copy"
    shared_cluster.createdb(copy)
    dumped = subprocess.run([shared_cluster.bindir / "pg_dump", shared_cluster.dsn(fresh_dbname)], check=True,
                            capture_output=True).stdout
    subprocess.run([shared_cluster.bindir / "psql", "-qX1", "-v", "ON_ERROR_STOP=1", "-d", shared_cluster.dsn(copy)],
                   check=True, input=dumped, capture_output=True)
    sessions = Sessions(shared_cluster, copy)
    try:
        there = sessions()
        assert row(there, "SELECT ordered, max_attempts FROM idem_outbox WHERE outbox = 'app.outbox'::regclass") == (True, 3)
        put(there, "app.outbox", 11)
        assert len(claim(there, "app.outbox", 100)) == 10
        assert row(there, "SELECT decision FROM idem_inbox_accept('c', 'm')").decision == "duplicate"
        # Dropped, the extension leaves the messages.
        there.execute("DROP EXTENSION pg_idem CASCADE")
        assert value(there, "SELECT count(*) FROM app.outbox") == 11
    finally:
        sessions.close()


def test_options_that_change_are_known_in_every_session(connect, conn, outbox):
    name, other = outbox(max_attempts=5), connect()
    put(other, name)
    [message] = claim(other, name)
    assert value(conn, "SELECT idem_create_outbox(%s, max_attempts => 1)", (name,)) == "changed"
    assert nack(other, name, message) == "dead"


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_stricter_isolation_puts_and_claims(connect, conn, outbox, isolation):
    name, session = outbox(), connect(isolation=isolation)
    with session.transaction():
        put(session, name)
    with session.transaction():
        claimed = claim(session, name)
        assert ack(session, name, claimed) == ["acked"]


# The relay is the executor


@pytest.fixture
def refunds(conn):
    conn.execute("SELECT idem_register_action_type('refund', 'reversible')")
    conn.execute("SELECT idem_register_action_type('status', 'idempotent_mutation')")
    conn.execute("SELECT idem_register_action_type('payment', 'irreversible', requires_approval => false)")


def request(conn, name, key, action_type="refund"):
    """A business transaction that asks for an action and leaves it to the relay."""
    with conn.transaction():
        got = row(conn, "SELECT * FROM idem_reserve(%s, '{}', action_type => %s)", (key, action_type))
        put(conn, name, action_id=got.action_id)
    return got.action_id


def state(conn, action_id):
    return value(conn, "SELECT state FROM idem_status_by_id(%s)", (action_id,))


def test_a_relay_that_dies_after_sending_leaves_an_unknown_and_the_message_waits(connect, conn, outbox, refunds, key):
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


def test_what_may_repeat_is_repeated_by_the_next_relay(connect, conn, outbox, refunds, key):
    name, other = outbox(), connect()
    action_id = request(conn, name, key, "status")
    [message] = claim(conn, name, lease=0.1)
    outlive(conn, message.lease_expires_at)
    [again] = claim(other, name)
    assert again.attempt == 2 and again.attempt_id != message.attempt_id
    # The first one's report comes too late, and does not count.
    assert ack(conn, name, [message]) == ["lost"]
    assert ack(other, name, [again]) == ["acked"] and state(conn, action_id) == "committed"


def test_where_dispatch_is_marked_the_key_comes_from_there(conn, outbox, refunds, key):
    name = outbox()
    action_id = request(conn, name, key, "payment")
    [message] = claim(conn, name)
    assert message.attempt_id and message.provider_key is None
    assert value(conn, "SELECT idem_dispatch(%s, %s)", (action_id, message.attempt_id))
    assert sqlstate(nack, conn, name, message, proof="not_sent") == "ID006"
    assert nack(conn, name, message) == "waiting" and state(conn, action_id) == "unknown"


def test_a_lapsed_claim_that_marked_nothing_is_taken_over(connect, conn, outbox, refunds, key):
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


def test_an_action_on_hold_keeps_its_message_and_no_other(conn, outbox, refunds, key):
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


def test_claims_of_many_relays_grant_each_action_once(connect, conn, outbox, refunds, key):
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


def test_a_claim_survives_a_crash_whatever_synchronous_commit_says(connect, conn, outbox, refunds, key):
    """A granted attempt is durable: the claim's transaction is flushed when it commits."""
    name, relay = outbox(), connect()
    request(conn, name, key)
    relay.execute("SET synchronous_commit = off")
    claim(relay, name)
    assert value(relay, "SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()")

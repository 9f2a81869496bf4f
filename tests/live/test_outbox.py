"""Messages move with their transaction, each to one relay at a time, and none is lost or out of order."""

import random
import subprocess
import threading
import uuid

import psycopg
import pytest

from messages import ack, claim, nack, put, put_many
from sessions import Sessions, in_background, outlive, row, sqlstate, together, value, wait_for, wait_until


@pytest.fixture(params=["rows", "statements"])
def way(request):
    return request.param


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


def test_a_relay_that_acks_and_claims_in_one_transaction_moves_on(connect, conn, outbox):
    """Its looks do not pass all that it has delivered, while an old snapshot keeps that from being removed."""
    name, relay, old = outbox(), connect(), connect(autocommit=False, isolation="repeatable read")
    put_many(conn, name, *[(n, n) for n in range(800)])
    value(old, f"SELECT count(*) FROM {name}")
    claimed = claim(relay, name)
    while claimed:
        with relay.transaction():
            assert ack(relay, name, claimed) == ["acked"] * 10
            claimed = claim(relay, name)

    def passed():
        relay.execute("SELECT pg_stat_force_next_flush()")
        return value(conn, "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relid = %s::regclass", (name,))
    before = passed()
    with relay.transaction():
        relay.execute("SELECT pg_current_xact_id()")
        assert claim(relay, name) == []
    assert passed() - before < 400


def test_an_old_snapshot_does_not_make_claims_read_more_and_more(connect, conn, outbox):
    """Failure 70: what was delivered stays on its pages until the snapshot ends, and is not passed by again and again."""
    name, relay, old = outbox(), connect(), connect(autocommit=False, isolation="repeatable read")
    value(old, "SELECT 1")

    def blocks_read_by_claims():
        """Of 500 messages that are put, claimed and acknowledged: the blocks that the claims looked at."""
        read = 0
        for _ in range(50):
            put_many(conn, name, *[(n, n) for n in range(10)])
            before = looked_at()
            claimed = claim(relay, name)
            read += looked_at() - before
            assert ack(relay, name, claimed) == ["acked"] * 10
        return read

    def looked_at():
        relay.execute("SELECT pg_stat_force_next_flush()")
        return value(relay, "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read "
                            "FROM pg_statio_user_tables WHERE relid = %s::regclass", (name,))

    first, *_, last = [blocks_read_by_claims() for _ in range(10)]
    assert last < 2 * first
    old.rollback()
    conn.execute(f"VACUUM {name}")
    assert blocks_read_by_claims() < 1.5 * first


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
    caller.execute("""DROP SCHEMA IF EXISTS hostile CASCADE; CREATE SCHEMA hostile;
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
    accept = "SELECT decision FROM public.idem_inbox_accept('h', %s)"
    assert [row(caller, accept, (name,)).decision for _ in "12"] == ["new", "duplicate"]


def test_a_dump_carries_messages_and_options(shared_cluster, connect_fresh, fresh_dbname):
    """Failure 59: nothing in a row means something in its old cluster only. Failure 97: pg_dump crashed where an outbox was
    half a member of the extension; table, sequence and indexes are none of its members."""
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

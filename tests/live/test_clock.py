"""The server's clock steps back and forward, a year included: nothing is granted twice, nothing is lost, fences rise.

The server runs under libfaketime, which reads its offset from a file. Only the wall clock is moved, as by an
administrator or ntpd; the monotonic one, by which processes sleep, is not.
"""

import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import Cluster
from sessions import commit, end, reserve, row, rows, sqlstate, status, sweep, value, wait_until

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
HOUR, DAY, YEAR = 3600, 86400, 365 * 86400


class Clock:
    """The offset of the server's clock, in seconds."""

    def __init__(self, path):
        self.path = path
        self.step_to(0)

    def step_to(self, offset):
        new = self.path.with_suffix(".new")
        new.write_text(f"{offset:+d}\n")
        new.rename(self.path)


@contextmanager
def clocked(**settings):
    cluster = Cluster(settings={"fsync": False, "autovacuum": False, **settings})
    clock = Clock(cluster.dir / "clock")
    plain_select = cluster.dir / "plain_select.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", plain_select, Path(__file__).with_name("plain_select.c")], check=True)
    cluster.server_env.update(LD_PRELOAD=f"{plain_select}:{FAKETIME}", FAKETIME_TIMESTAMP_FILE=str(clock.path), FAKETIME_NO_CACHE="1",
                              FAKETIME_DONT_FAKE_MONOTONIC="1", FAKETIME_DONT_RESET="1")
    with cluster:
        cluster.psql("""CREATE EXTENSION pg_idem;
            SELECT idem_register_action_type('safe', 'idempotent_mutation', max_attempts => 100);
            SELECT idem_register_action_type('payment', 'deduplicated_creation')""")
        yield cluster, clock


@pytest.fixture(scope="module")
def server():
    """Without a worker: each test sweeps when it means to."""
    with clocked() as found:
        yield found


@pytest.fixture
def clock(server):
    yield server[1]
    server[1].step_to(0)


@pytest.fixture
def conn(server, clock):
    with server[0].connect() as conn:
        yield conn


def test_the_clock_obeys(conn, clock):
    """Else nothing below would mean anything."""
    before = value(conn, "SELECT clock_timestamp()")
    clock.step_to(YEAR)
    assert 364 <= (value(conn, "SELECT clock_timestamp()") - before).days <= 365
    clock.step_to(-HOUR)
    assert value(conn, "SELECT clock_timestamp()") < before


@pytest.mark.parametrize("step", [-YEAR, -DAY, -HOUR, -1, 1, HOUR, DAY, YEAR])
def test_a_payment_is_granted_once(conn, clock, step):
    """Whatever the clock does, the lease of a payment that may have been sent ends in unknown, never in a grant."""
    key = f"payment {step}"
    got = reserve(conn, key, action_type="payment", lease_seconds=60)
    clock.step_to(step)
    again = reserve(conn, key, action_type="payment")
    assert not again.granted and again.decision == ("pending" if step < 60 else "unknown" if step <= DAY else "review")
    sweep(conn)
    clock.step_to(0)
    assert not reserve(conn, key, action_type="payment").granted
    # Its owner's late answer is still an answer.
    assert commit(conn, got, response={"n": 1}) == "committed"
    for offset in (step, 0):
        clock.step_to(offset)
        found = reserve(conn, key, action_type="payment")
        assert found.decision == ("expired" if offset == YEAR else "replay") and not found.granted


@pytest.mark.parametrize("steps", [(0, -YEAR, 0), (YEAR, 0, -HOUR), (-1, -2, -3), (HOUR, -HOUR, HOUR)], ids=str)
def test_fences_rise(conn, clock, steps):
    """Each acquisition's is higher than all before, and no token of an earlier one is good for anything."""
    key, fences, owners = f"fence {steps}", [], []
    for offset in steps:
        clock.step_to(offset)
        got = reserve(conn, key, action_type="safe", lease_seconds=0.001)
        if not got.granted:
            # Its lease was given by a clock that was ahead: it is alive, and nobody else gets in.
            assert got.decision == "pending"
            end(conn, "idem_mark_unknown", owners[-1])
            got = reserve(conn, key, action_type="safe", lease_seconds=0.001)
        assert got.decision == "execute"
        fences.append(got.fence)
        owners.append(got)
    assert fences == sorted(set(fences)) and fences[-1] < 2 ** 53
    for lost in owners[:-1]:
        assert sqlstate(commit, conn, lost) == "ID002"
    assert commit(conn, owners[-1]) == "committed"


def test_a_retryable_action_waits_by_the_clock(conn, clock):
    """A step back makes it wait longer, a step forward shorter; either way there is one grant."""
    got = reserve(conn, "retryable", action_type="payment")
    end(conn, "idem_fail", got, proof="not_sent", retryable=True, retry_after_seconds=60.0)
    clock.step_to(-HOUR)
    assert reserve(conn, "retryable", action_type="payment").decision == "pending"
    clock.step_to(120)
    assert reserve(conn, "retryable", action_type="payment").decision == "execute"
    clock.step_to(0)
    assert not reserve(conn, "retryable", action_type="payment").granted


def test_the_sweep_after_a_step_back(conn, clock):
    """Its cursors were far ahead: what is due by the clock that counts now is found all the same."""
    clock.step_to(YEAR)
    sweep(conn)
    clock.step_to(0)
    reserve(conn, "left behind", action_type="payment", lease_seconds=0.01)
    wait_until(lambda: sweep(conn) and status(conn, "left behind").state == "unknown")


@pytest.mark.parametrize("offset", [600, -600, YEAR])
def test_the_clients_clock_does_not_count(server, clock, conn, offset):
    """Failure 113: a program whose clock is wrong passes lengths of time, and what it gets counts by the server's."""
    cluster, _ = server
    env = {**cluster.env(), "LD_PRELOAD": str(FAKETIME), "FAKETIME": f"{offset:+d}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    script = r"""
        \set there `date +%s`
        SELECT :there - extract(epoch FROM clock_timestamp());
        SELECT action_id, attempt_id, extract(epoch FROM lease_expires_at - clock_timestamp()) AS lease
        FROM idem_reserve('client ' || :offset, '{}', action_type => 'payment', lease_seconds => 100) \gset
        SELECT :lease;
        SELECT extract(epoch FROM idem_renew(:'action_id', :'attempt_id', 200) - clock_timestamp());
        SELECT retry_after_seconds FROM idem_reserve('client ' || :offset, '{}', action_type => 'payment', wait_seconds => 0.2);
        SELECT extract(epoch FROM lease_expires_at - clock_timestamp()) FROM idem_status('client ' || :offset);
    """
    done = subprocess.run([cluster.bindir / "psql", "-X", "-qAt", "-v", "ON_ERROR_STOP=1", "-v", f"offset={offset}"],
                          input=script, text=True, capture_output=True, env=env)
    assert done.returncode == 0, done.stderr
    wrong, lease, renewed, wait, left = map(float, done.stdout.split())
    assert abs(wrong - offset) < 30, "the program's clock is another one, else nothing below would mean anything"
    assert 70 < lease <= 100 and 170 < renewed <= 200 and 140 < left <= 200
    assert 0 < wait <= 200


@pytest.fixture
def working():
    """A server of its own, with the worker."""
    with clocked(**{"pg_idem.databases": "*", "pg_idem.naptime": "10ms"}) as found:
        yield found


def test_nothing_is_scrubbed_after_a_jump(working):
    """The worker goes on noticing dead attempts, and takes nothing away until somebody says that the clock is right."""
    cluster, clock = working
    with cluster.connect() as conn:
        def visited():
            """A whole visit has come and gone."""
            for _ in range(2):
                before = value(conn, "SELECT visits FROM (SELECT last_visit_at AS visits FROM idem_worker_status) AS s")
                wait_until(lambda: value(conn, "SELECT last_visit_at FROM idem_worker_status") != before)

        conn.execute("SELECT idem_register_action_type('brief', 'idempotent_mutation', ttl => '1 hour', tombstone_ttl => '1 day')")
        for key, named in (("usual", {}), ("brief", {"action_type": "brief"})):
            commit(conn, reserve(conn, key, lease_seconds=0.01, **named), response={"kept": True})
        visited()
        clock.step_to(YEAR)
        reserve(conn, "dead", lease_seconds=0.01)
        wait_until(lambda: status(conn, "dead").state == "unknown", timeout=60)
        for _ in range(5):
            visited()
        stored = "SELECT key, state::text, response FROM idem_action WHERE key IN ('brief', 'usual') ORDER BY key"
        kept = [("brief", "c", {"kept": True}), ("usual", "c", {"kept": True})]
        assert rows(conn, stored) == kept, "retention rests"
        assert reserve(conn, "usual").decision == "expired", "by this clock it is; nothing is granted again"
        shown = row(conn, "SELECT * FROM idem_worker_status")
        assert shown.clock_jump_at is not None and shown.scrubbed == shown.removed == 0
        assert cluster.log().count("retention rests until idem_acknowledge_clock") == 1

        # It was wrong, and is put right: everything is there.
        clock.step_to(0)
        visited()
        assert rows(conn, stored) == kept
        assert reserve(conn, "usual").decision == reserve(conn, "brief", action_type="brief").decision == "replay"
        assert value(conn, "SELECT idem_acknowledge_clock()") == "acknowledged"
        assert value(conn, "SELECT idem_acknowledge_clock()") == "nothing_to_acknowledge"
        clock.step_to(2 * HOUR)
        wait_until(lambda: rows(conn, stored)[0].state == "x")
        assert reserve(conn, "brief", action_type="brief").decision == "expired"

        # It was right, as after a long rest: acknowledged, retention goes on.
        clock.step_to(YEAR)
        wait_until(lambda: value(conn, "SELECT clock_jump_at FROM idem_worker_status"))
        assert len(rows(conn, stored)) == 2
        value(conn, "SELECT idem_acknowledge_clock()")
        wait_until(lambda: rows(conn, stored) == [], timeout=30)


def test_the_worker_after_a_step_back(working):
    """A clock that goes back an hour, or a year, does not keep it away."""
    cluster, clock = working
    with cluster.connect() as conn:
        for n, offset in enumerate((0, -HOUR, -YEAR)):
            clock.step_to(offset)
            reserve(conn, f"dead {n}", lease_seconds=0.01)
            wait_until(lambda: status(conn, f"dead {n}").state == "unknown")
        assert value(conn, "SELECT clock_jump_at FROM idem_worker_status") is None

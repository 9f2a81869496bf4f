"""Of several sessions that end, take over or sweep one attempt, one decides and the others are told the truth."""

import random
import socket
import threading
import time
from collections import Counter

import psycopg
import pytest

from sessions import (commit, end, in_background, new_token, outlive, reserve, resolve, row, rows, sqlstate, status,
                      sweep, together, value, wait_for)

PATIENCE = 20
SHORT = 0.01  # a lease that is over as soon as it is looked at


@pytest.fixture
def free(conn):
    """A type that may repeat: a dead attempt is taken over with `execute`."""
    conn.execute("SELECT idem_register_action_type('free', 'idempotent_mutation', max_attempts => 1000000)")
    return "free"


def dead(conn, key, **named):
    """An attempt whose lease is over, not noticed by anybody yet."""
    got = reserve(conn, key, lease_seconds=SHORT, **named)
    assert got.granted
    outlive(conn, got.lease_expires_at)
    return got


def history(conn, action_id):
    return rows(conn, "SELECT attempt, outcome, reconciling FROM idem_attempt WHERE action_id = %s ORDER BY n",
                (action_id,))


@pytest.mark.parametrize("how", ["takeover", "sweep", "mark_unknown"])
def test_commit_against_another_end_a_thousand_rounds(connect_fresh, how):
    """Failure 30: both writes passing would leave an action finished and lost at once, or history with two ends."""
    a, b, rounds = connect_fresh(), connect_fresh(), 1000
    a.execute("SELECT idem_register_action_type('free', 'idempotent_mutation', max_attempts => 1000000)")
    results = Counter()
    turn, end_of_turn = threading.Barrier(2), threading.Barrier(2)
    won = {}

    def committer():
        for n in range(rounds):
            won["got"] = reserve(a, f"{how}/{n}", action_type="free", lease_seconds=0.001 if how != "mark_unknown" else 60.0)
            turn.wait(PATIENCE)
            # The others take longer to reach the row than a commit: a start that varies lets either be first.
            time.sleep(random.random() * (0.004 if how == "sweep" else 0.001))
            try:
                won["said"] = commit(a, won["got"], response={"n": n})
            except psycopg.Error as error:
                won["said"] = error.sqlstate
            end_of_turn.wait(PATIENCE)
            check(n)

    def other():
        for n in range(rounds):
            turn.wait(PATIENCE)
            try:
                if how == "takeover":
                    answer = reserve(b, f"{how}/{n}", action_type="free")
                    won["other"], won["taken"] = answer.decision, answer
                elif how == "sweep":
                    won["other"] = "unknown" if sweep(b).unknown else "nothing"
                else:
                    won["other"] = end(b, "idem_mark_unknown", won["got"])
            except psycopg.Error as error:
                won["other"] = error.sqlstate
            end_of_turn.wait(PATIENCE)

    def check(n):
        said, did = won["said"], won["other"]
        results[said, did] += 1
        state = row(a, "SELECT state, fence, response FROM idem_action WHERE action_id = %s", (won["got"].action_id,))
        if how == "takeover":
            # The commit stands, or another attempt runs: never both.
            assert (said, did) in {("committed", "replay"), ("committed", "pending"), ("ID002", "execute")}, n
            assert state.state == ("c" if said == "committed" else "s"), n
            if did == "execute":
                assert won["taken"].fence == state.fence > won["got"].fence
        else:
            # Late or not, nobody took over: the commit counts, whoever came first.
            assert said == "committed" and state.state == "c" and state.response == {"n": n}, (n, said, did)
            assert did in ({"unknown", "nothing"} if how == "sweep" else {"unknown", "ID003"}), (n, did)
        events = [e.event for e in rows(a, "SELECT event FROM idem_event WHERE action_id = %s", (won["got"].action_id,))]
        assert sum(event.startswith("committed") for event in events) <= 1, (n, events)

    committing, contending = in_background(committer), in_background(other)
    committing.result(200)
    contending.result(PATIENCE)
    assert sum(results.values()) == rounds
    assert len(results) > 1, f"the two never met: {results}"


@pytest.mark.parametrize("function", ["idem_commit", "idem_mark_unknown", "idem_release", "idem_renew"])
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_an_ender_waits_in_a_row_lock_for_whoever_holds_the_row(connect, key, function, outcome):
    """It waits as any UPDATE does, then decides on what is there: also when the holder's change came to nothing."""
    owner, holder, observer = connect(), connect(autocommit=False), connect()
    got = reserve(owner, key)
    end(holder, "idem_renew", got, lease_seconds=100.0)
    waiting = in_background(end, owner, function, got)
    wait_for(observer, owner, "transactionid", "tuple")
    getattr(holder, outcome)()
    answer = waiting.result(PATIENCE)
    expected = {"idem_commit": "committed", "idem_mark_unknown": "unknown", "idem_release": "retryable"}
    assert function == "idem_renew" or answer == expected[function]
    if function == "idem_renew":
        left = value(observer, "SELECT extract(epoch FROM %s - clock_timestamp())::float8", (answer,))
        assert (90 < left < 101) if outcome == "commit" else (50 < left < 61)


@pytest.mark.parametrize("setting, state", [("lock_timeout", "55P03"), ("statement_timeout", "57014")])
def test_timeouts_while_an_ender_waits(connect, key, setting, state):
    """Failure 119: a clean error, nothing changed, and the commit can be repeated."""
    owner, holder = connect(), connect(autocommit=False)
    got = reserve(owner, key)
    end(holder, "idem_renew", got, lease_seconds=100.0)
    owner.execute(f"SET {setting} = '150ms'")
    assert sqlstate(commit, owner, got) == state
    holder.commit()
    assert commit(owner, got) == "committed"


def test_a_row_locked_by_the_same_transaction_can_be_ended_in_it(connect, key):
    """Under REPEATABLE READ reserve locks the row it answers from; its owner's commit there must not spin."""
    conn, observer = connect(), connect()
    got = reserve(conn, key)
    locked = connect(autocommit=False, isolation="repeatable read")
    assert reserve(locked, key).decision == "pending"
    ending = in_background(commit, locked, got)
    assert ending.result(5) == "committed"
    locked.commit()
    assert status(observer, key).state == "committed"


def test_enders_refuse_an_attempt_that_lost_the_action(conn, free, key):
    """Failure 31: refused before and after the new owner committed; its row is untouched, byte for byte."""
    lost = dead(conn, key, action_type=free)
    owner = reserve(conn, key, action_type=free)
    assert owner.decision == "execute" and owner.attempt == 2 and owner.fence > lost.fence
    whole = "SELECT a::text AS text FROM idem_action AS a WHERE action_id = %s"
    for _ in range(2):
        before = row(conn, whole, (owner.action_id,))
        for function, named in [("idem_commit", {}), ("idem_mark_unknown", {}), ("idem_renew", {}), ("idem_release", {}),
                                ("idem_fail", {"proof": "refused"})]:
            assert sqlstate(end, conn, function, lost, **named) == "ID002", function
        assert row(conn, whole, (owner.action_id,)) == before
        commit(conn, owner, response={"n": 1})


def test_a_late_result_is_recorded_not_thrown_away(conn, free, key):
    """Failure 33: on_lost => 'record' keeps it, says superseded, and blocks a further grant until a person decides."""
    lost = dead(conn, key, action_type=free)
    owner = reserve(conn, key, action_type=free, lease_seconds=SHORT)
    assert commit(conn, lost, resource_id="re_1", external_request_id="x-1", on_lost="record") == "superseded"
    found = row(conn, "SELECT resource_id, external_request_id, event FROM idem_event WHERE action_id = %s AND "
                "resource_id IS NOT NULL", (owner.action_id,))
    assert (found.resource_id, found.external_request_id, found.event) == ("re_1", "x-1", "discrepancy")
    outlive(conn, owner.lease_expires_at)
    assert not reserve(conn, key, action_type=free).granted


def test_a_late_commit_counts_while_nobody_took_over(conn, key):
    """From unknown by any attempt: a late answer is still an answer."""
    got = dead(conn, key)
    assert reserve(conn, key).decision == "unknown"
    assert commit(conn, got, response={"late": True}) == "committed"
    assert commit(conn, got) == "already_committed"
    assert reserve(conn, key).response == {"late": True}


def test_a_late_commit_against_a_live_reconciler(connect, key):
    """While somebody finds out, the late attempt is refused; the reconciler's finding decides."""
    conn = connect()
    got = dead(conn, key)
    finder = reserve(conn, key, can_reconcile=True)
    assert finder.decision == "reconcile" and not finder.granted and finder.fence > got.fence
    assert sqlstate(commit, conn, got) in ("ID002", "ID003")
    assert resolve(conn, finder, "applied", resource_id="re_9").state == "committed"
    assert commit(conn, got, resource_id="re_9") == "already_committed"


def test_reconcilers_are_one_at_a_time(connect, key):
    """A dozen sessions that could reconcile start together: one lease, one fence."""
    conn = connect()
    dead(conn, key)
    sessions = [connect() for _ in range(12)]
    answers = together(*[lambda c=c: reserve(c, key, can_reconcile=True) for c in sessions])
    assert Counter(answer.decision for answer in answers) == {"reconcile": 1, "unknown": 11}


def test_takeovers_are_one_at_a_time_and_the_fence_rises(connect, free, key):
    """Every takeover is contended by eight sessions; grants, attempts and fences stay in step."""
    sessions = [connect() for _ in range(8)]
    first = reserve(sessions[0], key, action_type=free, lease_seconds=SHORT)
    fences, attempts = [first.fence], [1]
    for _ in range(30):
        outlive(sessions[0], value(sessions[0], "SELECT lease_expires_at FROM idem_action WHERE action_id = %s",
                                   (first.action_id,)))
        answers = together(*[lambda c=c: reserve(c, key, action_type=free, lease_seconds=SHORT) for c in sessions])
        granted = sorted((a.fence, a.attempt) for a in answers if a.granted)
        assert granted, answers
        fences += [fence for fence, _ in granted]
        attempts += [attempt for _, attempt in granted]
    assert all(low < high for low, high in zip(fences, fences[1:]))
    assert attempts == list(range(1, len(attempts) + 1))
    lapsed = [h.attempt for h in history(sessions[0], first.action_id)]
    assert lapsed == attempts[:-1]


def test_the_fence_rises_across_rollback(connect, key):
    """A fence that was handed out and rolled back is not handed out again."""
    conn = connect(autocommit=False)
    fences = []
    for _ in range(20):
        fences.append(reserve(conn, key).fence)
        conn.rollback()
    assert all(low < high for low, high in zip(fences, fences[1:])), fences


class Cut:
    """A proxy that hands COMMIT to the server, sees that it was done, and cuts the line before the client hears."""

    def __init__(self, path, port):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.target, self.cut = f"{path}/.s.PGSQL.{port}", threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        client, _ = self.listener.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(self.target)

        def upwards():
            while data := client.recv(65536):
                server.sendall(data)
        threading.Thread(target=upwards, daemon=True).start()
        while data := server.recv(65536):
            if self.cut.is_set() and b"COMMIT\0" in data:
                break
            client.sendall(data)
        client.shutdown(socket.SHUT_RDWR)
        server.close()
        self.listener.close()


@pytest.mark.parametrize("action_type, second", [("default", "pending"), ("free", "resume")])
def test_the_lost_answer_to_commit(shared_cluster, dbname, connect, free, key, action_type, second):
    """Failure 116: the client cannot know whether COMMIT was done. The same attempt_id asks and gets the truth."""
    proxy, token = Cut(shared_cluster.dir, shared_cluster.port), new_token()
    lost = psycopg.connect(host="127.0.0.1", port=proxy.port, user="postgres", dbname=dbname, sslmode="disable",
                           gssencmode="disable")
    got = reserve(lost, key, attempt_id=token, action_type=action_type)
    proxy.cut.set()
    with pytest.raises(psycopg.OperationalError):
        lost.commit()
    again = connect()
    answer = reserve(again, key, attempt_id=token, action_type=action_type)
    assert answer.decision == second
    assert answer.granted == (second == "resume")
    assert reserve(again, key, attempt_id=new_token(), action_type=action_type).decision == "pending"
    assert commit(again, got, response={"n": 1}) == "committed", "its token still owns the action"
    assert reserve(again, key, attempt_id=token, action_type=action_type).decision == "replay"


def test_the_lost_answer_to_an_ender(conn, key):
    """Repeating idem_commit after a lost answer is harmless; another resource is a discrepancy and is kept."""
    got = reserve(conn, key)
    assert commit(conn, got, response={"n": 1}, resource_id="a") == "committed"
    assert commit(conn, got, response={"n": 2}, resource_id="a") == "already_committed"
    assert reserve(conn, key).response == {"n": 1}
    assert commit(conn, got, resource_id="b") == "discrepancy"
    assert status(conn, key).discrepancy and status(conn, key).resource_id == "a"


def test_an_attempt_id_is_not_granted_twice(conn, free, key):
    """A token that an earlier attempt used would let its owner end the new one: 22023."""
    token = new_token()
    got = reserve(conn, key, attempt_id=token, action_type=free, lease_seconds=SHORT)
    outlive(conn, got.lease_expires_at)
    assert sqlstate(reserve, conn, key, attempt_id=token, action_type=free) == "22023"
    reserve(conn, key, action_type=free, lease_seconds=SHORT)
    outlive(conn, status(conn, key).lease_expires_at)
    assert sqlstate(reserve, conn, key, attempt_id=token, action_type=free) == "22023"
    assert reserve(conn, key, action_type=free).attempt == 3

"""Every parameter of every function with values it must not take: a clear error, and nothing stored."""

import psycopg
import pytest
from psycopg.types.json import Jsonb

from sessions import new_token, reserve, row, rows, sqlstate, value

TEXTS = ["x" * 256, "x" * 10_000]
BAD_KEYS = ["", " ", "\t\n", "\u3000\u2003", "\u200b", "a\u200bb", "a\x01", "a\n", "\u00ad", "\ufeff", "\u202e", "\x7f", *TEXTS]
BAD_SECONDS = [float("nan"), float("inf"), float("-inf"), -1.0, -1e-9, 11 * 365.25 * 86400, 1e300]
BAD_TOKENS = ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
              "9c97c593-aa18-1fb7-8a03-8d9e2ea47297", "9c97c593-aa18-3fb7-8a03-8d9e2ea47297",
              "9c97c593-aa18-5fb7-8a03-8d9e2ea47297", "9c97c593-aa18-8fb7-8a03-8d9e2ea47297",
              "9c97c593-aa18-4fb7-ca03-8d9e2ea47297", "9c97c593-aa18-4fb7-0a03-8d9e2ea47297"]
ENDERS = {"idem_commit": {}, "idem_mark_unknown": {}, "idem_fail": {"proof": "refused"}, "idem_renew": {},
          "idem_release": {}, "idem_add_evidence": {"finding": "applied"}, "idem_resolve": {"finding": "applied"}}

BAD = [("idem_reserve", {"key": key}) for key in [None, *BAD_KEYS]]
BAD += [("idem_reserve", {"key": "k", "tenant": tenant}) for tenant in [None, *TEXTS]]
BAD += [("idem_reserve", {"key": "k", "action_type": name}) for name in [None, "", "x" * 101, "x" * 10_000]]
BAD += [("idem_reserve", {"key": "k", name: text}) for text in TEXTS
        for name in ("actor", "target", "worker", "workflow_id", "session_id", "payload_version")]
BAD += [("idem_reserve", {"key": "k", "request": Jsonb(scalar)}) for scalar in ("text", 1, True, None, '{"a": 1}')]
BAD += [("idem_reserve", {"key": "k", "fingerprint": digest}) for digest in (b"", b"x", b"x" * 31, b"x" * 33, b"x" * 100_000)]
BAD += [("idem_reserve", {"key": "k", "request": Jsonb({}), "fingerprint": b"x" * 32})]
BAD += [("idem_reserve", {"key": "k", "attempt_id": token}) for token in BAD_TOKENS]
BAD += [("idem_reserve", {"key": "k", name: number}) for number in BAD_SECONDS
        for name in ("lease_seconds", "ttl_seconds", "wait_seconds")]
BAD += [("idem_reserve", {"key": "k", "lease_seconds": number}) for number in (0.0, 1e-9, 3600.001, 86400.0)]
BAD += [("idem_reserve", {"key": "k", "policy_version": version}) for version in (-1, 1, 2**31 - 1)]
BAD += [(function, {"action_id": "A", "attempt_id": "T", **named, **bad}) for function, named in ENDERS.items()
        for bad in ({"action_id": None}, {"attempt_id": None})]
BAD += [("idem_commit", {"action_id": "A", "attempt_id": "T", name: text}) for text in TEXTS
        for name in ("resource_id", "external_request_id")]
BAD += [("idem_commit", {"action_id": "A", "attempt_id": "T", "on_lost": word}) for word in ("", "ERROR", "ignore", "x" * 10_000)]
BAD += [("idem_mark_unknown", {"action_id": "A", "attempt_id": "T", name: text}) for text in TEXTS
        for name in ("reason", "external_request_id")]
BAD += [("idem_fail", {"action_id": "A", "attempt_id": "T", "proof": word}) for word in (None, "", "timeout", "REFUSED", "x" * 10_000)]
BAD += [("idem_fail", {"action_id": "A", "attempt_id": "T", "proof": "refused", "retryable": True, "retry_after_seconds": number})
        for number in BAD_SECONDS]
BAD += [("idem_renew", {"action_id": "A", "attempt_id": "T", "lease_seconds": number}) for number in [*BAD_SECONDS, 0.0, 3601.0]]
BAD += [(function, {"action_id": "A", "attempt_id": "T", "finding": word})
        for function in ("idem_add_evidence", "idem_resolve") for word in (None, "", "maybe", "Applied", "x" * 10_000)]
BAD += [("idem_add_evidence", {"action_id": "A", "attempt_id": "T", "finding": "applied", name: text}) for text in TEXTS
        for name in ("resource_id", "external_request_id", "note")]
BAD += [("idem_resolve", {"action_id": "A", "attempt_id": "T", "finding": "inconclusive", "next_probe_seconds": number})
        for number in BAD_SECONDS]
BAD += [("idem_resolve", {"action_id": "A", "attempt_id": "T", "finding": "applied", name: text}) for text in TEXTS
        for name in ("resource_id", "external_request_id")]
BAD += [("idem_status", {"key": key}) for key in [None, *BAD_KEYS]] + [("idem_status", {"key": "k", "tenant": None})]
BAD += [("idem_status_by_id", {"action_id": None})]
BAD += [("idem_action_id", {"key": key}) for key in [None, *BAD_KEYS]] + [("idem_action_id", {"key": "k", "tenant": None})]
BAD += [("idem_sweep", {"max_rows": number}) for number in (0, -1, -2**31)]
BAD += [("idem_action_fingerprint", {"request_fingerprint": digest, "action_type": "t"}) for digest in (None, b"", b"x" * 31)]
BAD += [("idem_action_fingerprint", {"request_fingerprint": b"x" * 32, **bad})
        for bad in ({"action_type": None}, {"action_type": ""}, {"action_type": "t", "tenant": None},
                    {"action_type": "t", "actor": "x" * 256}, {"action_type": "t", "target": "x" * 256})]
TYPE = {"name": "bad", "class": "read_only"}
BAD += [("idem_register_action_type", {**TYPE, **bad}) for bad in (
    {"name": None}, {"name": ""}, {"name": "x" * 101}, {"class": None}, {"class": ""}, {"class": "Read_Only"},
    {"effect": ""}, {"effect": "LOCAL"}, {"lease": "0"}, {"lease": "2 h"}, {"lease": "-1 s"}, {"max_lease": "11 years"},
    {"lease": "1 s", "max_lease": "0.5 s"}, {"ttl": "-1 us"}, {"ttl": "100 years"}, {"tombstone_ttl": "-1 day"},
    {"max_attempts": 0}, {"max_attempts": -1}, {"probes_required": 0}, {"backoff_base": "0"}, {"backoff_cap": "0.1 s"},
    {"settle_delay": "-1 s"}, {"probe_interval": "11 years"}, {"resolve_deadline": "-1 h"})]

CASTS = {"request": "jsonb", "fingerprint": "bytea", "request_fingerprint": "bytea", "attempt_id": "uuid", "action_id": "uuid",
         "lease_seconds": "float8", "ttl_seconds": "float8", "wait_seconds": "float8", "retry_after_seconds": "float8",
         "next_probe_seconds": "float8", "policy_version": "int", "max_rows": "int", "max_attempts": "int",
         "probes_required": "int", "retryable": "boolean", "lease": "interval", "max_lease": "interval", "ttl": "interval",
         "tombstone_ttl": "interval", "backoff_base": "interval", "backoff_cap": "interval", "settle_delay": "interval",
         "probe_interval": "interval", "resolve_deadline": "interval"}


def told(case):
    function, named = case
    return f"{function}({', '.join(f'{name}={str(given)[:18]!r}' for name, given in named.items() if given not in ('A', 'T'))})"


@pytest.fixture(scope="module")
def bench(shared_cluster, dbname):
    """A session, and an attempt that every bad ending is aimed at."""
    with shared_cluster.connect(dbname) as conn:
        yield conn, reserve(conn, "the attempt")


def everything(conn):
    return [rows(conn, f"SELECT t::text FROM {table} AS t ORDER BY 1")
            for table in ("idem_action", "idem_open", "idem_attempt", "idem_event", "idem_action_type")]


def bad(conn, statement, parameters=None):
    """Runs what must fail and returns the error: classes 22 and ID, with a message, never XX000."""
    with pytest.raises(psycopg.Error) as caught:
        rows(conn, statement, parameters)
    assert caught.value.sqlstate[:2] in ("22", "ID", "0A"), caught.value
    return caught.value


@pytest.mark.parametrize("case", BAD, ids=told)
def test_bad_argument(bench, case):
    """SQLSTATE of class 22 or ID, the backend lives, all tables stay as they were."""
    conn, got = bench
    function, named = case
    named = {name: {"A": got.action_id, "T": got.attempt_id}.get(given, given) if isinstance(given, str) else given
             for name, given in named.items()}
    before, pid = everything(conn), conn.info.backend_pid
    arguments = ", ".join(f"{name} => %({name})s::{CASTS.get(name, 'text')}" for name in named)
    error = bad(conn, f"SELECT * FROM {function}({arguments})", named)
    assert (error.sqlstate == "22004") == any(given is None for given in named.values()), error
    assert everything(conn) == before
    assert value(conn, "SELECT pg_backend_pid()") == pid


@pytest.mark.parametrize("statement", [
    "SELECT idem_key()", "SELECT idem_key(VARIADIC '{}')", "SELECT idem_key(NULL)", "SELECT idem_key('a', NULL)",
    "SELECT idem_key(VARIADIC ARRAY[['a', 'b'], ['c', 'd']])", "SELECT idem_key(VARIADIC NULL::text[])",
    *("SELECT idem_fingerprint_text('%s')" % document for document in (
        "", " ", "{", "nul", "tru", "01", "1.", ".5", "+1", "1e", "-", "NaN", "Infinity", "0x1", "\"\\x\"", "\"\\u12\"",
        "{\"a\":1,\"a\":2}", "{\"b\":{\"a\":1,\"\\u0061\":2}}", "\"\\u0000\"", "{\"\\u0000\":1}", "\"\\ud83d\"", "\"\\ude00\"",
        "\"\\ud83d\\ud83d\"", "1 2", "{} x", "[1,]", "{\"a\":1,}", "{a:1}", "\"\t\"", "/**/1", "[1 2]", "\ufeff{}"))])
def test_bad_parts_and_documents(conn, statement):
    """What is no list of parts, and what strict reading refuses."""
    if statement == "SELECT idem_key()":
        assert sqlstate(conn.execute, statement) == "42883"
    else:
        bad(conn, statement)


@pytest.mark.parametrize("document", [
    "'{\"n\": 1e400}'", "'{\"n\": 1e131071}'", "('{\"n\": ' || repeat('9', 130000) || '}')",
    "('{\"n\": 0.' || repeat('0', 16000) || '1}')", "(repeat('[', 6000) || repeat(']', 6000))",
    "(repeat('{\"a\":', 5900) || '1' || repeat('}', 5900))", "('[\"' || repeat('x', 3000000) || '\"]')", "'{}'", "'[]'"])
def test_extreme_documents_work_or_are_refused(conn, key, document):
    """Failures 2, 3: exact, or 22xxx/0A000 with nothing stored; a stored response is replayed byte for byte."""
    got = []
    state = sqlstate(lambda: got.append(row(conn, f"SELECT * FROM idem_reserve(%s, {document}::jsonb)", (key,))))
    if state:
        assert state[:2] in ("22", "0A", "54"), state
        assert rows(conn, "SELECT FROM idem_action WHERE key = %s", (key,)) == []
        return
    conn.execute(f"SELECT idem_commit(%s, %s, {document}::jsonb)", (got[0].action_id, got[0].attempt_id))
    replay = row(conn, f"SELECT decision, response::text = {document}::jsonb::text AS same, response_state "
                 f"FROM idem_reserve(%s, {document}::jsonb)", (key,))
    assert replay.decision == "replay"
    assert replay.same or replay.response_state == "too_large"
    assert value(conn, f"SELECT idem_fingerprint({document}::jsonb) = idem_fingerprint_text({document})")


@pytest.mark.parametrize("one, two, same", [
    ("18446744073709551616", "18446744073709551617", False), ("9007199254740992", "9007199254740993", False),
    ("0.10", "0.1000000000000000055", False), ("1e23", "100000000000000000000000.10", False), ("1.0", "1", True),
    ("1e2", "100", True), ("-0", "0", True), ("\"1\"", "1", False), ("true", "1", False), ("null", "0", False)])
def test_amounts_that_differ_conflict(conn, key, one, two, same):
    """Failures 2 and 4, through reserve."""
    row(conn, "SELECT * FROM idem_reserve(%s, %s::jsonb)", (key, f'{{"amount": {one}}}'))
    again = row(conn, "SELECT * FROM idem_reserve(%s, %s::jsonb)", (key, f'{{"amount": {two}}}'))
    assert again.decision == ("pending" if same else "conflict")


def test_null_means_the_default_elsewhere(conn, key):
    """Drivers send NULL for an argument that was left out."""
    names = ["request", "actor", "target", "fingerprint", "attempt_id", "lease_seconds", "ttl_seconds", "wait_seconds",
             "can_reconcile", "worker", "workflow_id", "session_id", "payload_version", "policy_version", "store_request"]
    got = row(conn, f"SELECT * FROM idem_reserve(%s, {', '.join(f'{name} => NULL' for name in names)})", (key,))
    assert got.granted and got.attempt_id
    assert row(conn, "SELECT * FROM idem_reserve(%s)", (key,)).decision == "pending", "the same request: none"
    assert value(conn, "SELECT idem_commit(%s, %s, NULL, NULL, NULL, NULL)", (got.action_id, got.attempt_id)) == "committed"


def test_nobody_else_ends_an_attempt(conn, key):
    """A stranger's token, and an action that is not there."""
    got = reserve(conn, key)
    for function, named in ENDERS.items():
        extra = "".join(f", '{word}'" for word in named.values())
        assert bad(conn, f"SELECT * FROM {function}(%s, %s{extra})", (got.action_id, new_token())).sqlstate == "ID002"
        assert bad(conn, f"SELECT * FROM {function}(%s, %s{extra})", (new_token(), new_token())).sqlstate == "ID004"

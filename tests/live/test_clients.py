"""Two real clients, psycopg and node-postgres: one document has one fingerprint however each of them sends it, an
action goes through in autocommit, and refusals arrive with their SQLSTATE."""

import json
import time
import uuid
from datetime import datetime
from pathlib import Path

import node
import psycopg
import pytest
import rfc8785
from psycopg.rows import dict_row
from psycopg.types.json import Json, Jsonb, JsonbBinaryDumper, JsonbDumper

from differential.judges import sha256

SCRIPT = Path(__file__).with_name("clients") / "node_postgres.cjs"
# Numbers that both languages write differently from each other and from PostgreSQL, names that each sorts otherwise.
DOCUMENT = {"amount": 129.9, "ratio": 1e-7, "large": 1e21, "exact": 9007199254740991, "zero": -0.0, "whole": 100.0,
            "\ufb33": "דּ", "😂": ["é", "e\u0301", "\u0001\"\\/", True, None], "10": {}, "9": [],
            "": {"b": 1, "a": [[]]}}
DIGEST = sha256(rfc8785.dumps(DOCUMENT))
RESPONSE = {"refund": "rf_1", "list": [1, 2.5]}
RESERVE = "SELECT * FROM idem_reserve(key => %s, request => %s)"


@pytest.fixture(scope="module")
def database(shared_cluster, dbname):
    """Its name; it knows an action type whose attempts may be repeated at once when their lease is over."""
    with shared_cluster.connect(dbname) as connection:
        connection.execute("SELECT idem_register_action_type('lookup', 'read_only')")
    return dbname


@pytest.fixture
def connection(shared_cluster, database):
    with shared_cluster.connect(database, row_factory=dict_row) as connection:
        yield connection


@pytest.fixture(scope="module")
def told(shared_cluster, database):
    """What node-postgres was told; the script does everything in one go."""
    return json.loads(node.run(SCRIPT, json.dumps(DOCUMENT, ensure_ascii=False), env=shared_cluster.env(database)))


@pytest.mark.parametrize("parameter, send", [
    ("%s::jsonb", Json), ("%s", Jsonb), ("%b", Jsonb), ("%s::jsonb", json.dumps), ("%t", json.dumps),
    ("%s::jsonb", lambda document: json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True)),
    ("%s", lambda document: dict(reversed(document.items()))), ("%b", dict)],
    ids=["Json", "Jsonb", "binary Jsonb", "str::jsonb", "str", "indented", "dict", "binary dict"])
def test_psycopg_one_document_one_fingerprint(connection, parameter, send):
    """Wrapped, as text, or a bare dict with a dumper, in text and binary: the digest that the JCS library gives."""
    connection.adapters.register_dumper(dict, JsonbBinaryDumper)
    connection.adapters.register_dumper(dict, JsonbDumper)
    row = connection.execute(f"SELECT idem_fingerprint({parameter}) AS digest", [send(DOCUMENT)]).fetchone()
    assert row["digest"] == DIGEST


def test_psycopg_json_needs_a_cast(connection):
    """Json goes as json, for which there is no function: an error before anything happens, not another digest."""
    with pytest.raises(psycopg.errors.UndefinedFunction):
        connection.execute("SELECT idem_fingerprint(%s)", [Json(DOCUMENT)])


def test_node_postgres_one_document_one_fingerprint(told):
    """An object as a parameter, JSON.stringify with and without a cast, and the text entry: the same digest again."""
    assert told["fingerprints"] == dict.fromkeys(
        ["object", "JSON.stringify", "JSON.stringify and a cast", "text"], DIGEST.hex())


def test_node_postgres_arrays_must_be_stringified(told):
    """node-postgres makes a PostgreSQL array of a bare one: refused, but for the empty one, which reads as {}.

    So the docs tell applications to stringify arrays.
    """
    assert told["arrays"]["stringified"] == sha256(b'[1,"a"]').hex()
    assert told["arrays"]["bare"]["code"] == "22P02"
    assert told["arrays"]["emptyBare"] == sha256(b"{}").hex()


def test_node_postgres_reserve_commit_replay(told):
    """In autocommit: a grant, its commit, the replay with the very response, and a conflict for another request."""
    granted, replay, conflict = told["granted"], told["replay"], told["conflict"]
    assert (granted["granted"], granted["decision"], granted["attempt"]) == (True, "execute", 1)
    assert told["committed"] == {"outcome": "committed"}
    assert (replay["granted"], replay["decision"], replay["state"]) == (False, "replay", "committed")
    assert (replay["response"], replay["response_state"], replay["resource_id"]) == (RESPONSE, "stored", "rf_1")
    assert replay["action_id"] == granted["action_id"] and replay["attempt_id"] is None
    assert (conflict["granted"], conflict["decision"], conflict["response"]) == (False, "conflict", None)


def test_node_postgres_gets_plain_values(told):
    """No unparsed composite, no void, no interval: booleans, numbers, strings and a Date, with whole uuids."""
    assert told["types"] == {
        "granted": "boolean", "decision": "string", "action_id": "string", "attempt_id": "string",
        "fence": "string",  # bigint: JavaScript's numbers would do, node-postgres does not know that
        "attempt": "number", "state": "string", "lease_expires_at": "Date", "provider_key": "string",
        **dict.fromkeys(["retry_after_seconds", "response", "response_state", "resource_id", "external_request_id",
                         "error"], "null")}
    assert uuid.UUID(told["granted"]["attempt_id"]).version in (4, 7)
    assert 0 < int(told["granted"]["fence"]) < 2 ** 53


def test_node_postgres_gets_our_sqlstates(told):
    """error.code is the code of the contract, and the connection goes on."""
    codes = told["errors"]["codes"]
    assert {expected: error["code"] for expected, error in codes.items()} == {code: code for code in codes}
    assert "idem_add_evidence" in codes["ID002"]["hint"]
    assert told["errors"]["after"] == 1


def test_psycopg_reserve_commit_replay(connection):
    """The same with psycopg, whose values are Python's own."""
    granted = connection.execute(RESERVE, ["psycopg:1", Jsonb(DOCUMENT)]).fetchone()
    assert (granted["granted"], granted["decision"]) == (True, "execute")
    assert isinstance(granted["attempt_id"], uuid.UUID) and isinstance(granted["lease_expires_at"], datetime)
    assert isinstance(granted["fence"], int)
    outcome = connection.execute("SELECT idem_commit(%s, %s, response => %s) AS outcome",
                                 [granted["action_id"], granted["attempt_id"], Jsonb(RESPONSE)]).fetchone()["outcome"]
    assert outcome == "committed"
    replay = connection.execute(RESERVE, ["psycopg:1", json.dumps(DOCUMENT, indent=2)]).fetchone()
    assert (replay["granted"], replay["decision"], replay["response"]) == (False, "replay", RESPONSE)


def test_psycopg_gets_our_sqlstates(connection):
    """As error.sqlstate, for codes that psycopg has no class for, and in autocommit the connection goes on."""
    def refused(query, *parameters):
        with pytest.raises(psycopg.Error) as raised:
            connection.execute(query, parameters)
        return raised.value.sqlstate

    lookup = "SELECT * FROM idem_reserve(key => 'psycopg:2', action_type => 'lookup', lease_seconds => 0.01)"
    commit = "SELECT idem_commit(%s, %s)"
    lost = connection.execute(lookup).fetchone()
    time.sleep(0.05)
    owner = connection.execute(lookup).fetchone()
    assert (owner["granted"], owner["attempt"]) == (True, 2)
    assert refused(commit, lost["action_id"], lost["attempt_id"]) == "ID002"
    assert refused(commit, uuid.uuid4(), owner["attempt_id"]) == "ID004"
    assert refused(RESERVE, "psycopg:3", json.dumps(json.dumps(DOCUMENT))) == "22023"
    connection.execute(commit, [owner["action_id"], owner["attempt_id"]])
    assert refused("SELECT idem_renew(%s, %s)", owner["action_id"], owner["attempt_id"]) == "ID003"
    assert connection.execute("SELECT 1 AS one").fetchone()["one"] == 1


def test_a_document_is_one_action_for_both_clients(connection, told):
    """What node-postgres reserved psycopg finds again, not as a conflict: one digest is stored."""
    row = connection.execute(RESERVE, ["node:1", Jsonb(DOCUMENT)]).fetchone()
    assert row["decision"] == "replay" and row["action_id"] == uuid.UUID(told["granted"]["action_id"])

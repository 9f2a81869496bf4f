"""Other server encodings: the same digests and ids as in UTF-8, or a clear refusal; never a wrong one."""

import pytest

from sessions import Sessions, commit, reserve, sqlstate, status, value

ACCENTED = "clé-ü"


@pytest.fixture(scope="module", params=["LATIN1", "SQL_ASCII"])
def encoded(request, shared_cluster):
    name = f"in_{request.param.lower()}"
    shared_cluster.createdb(name, encoding=request.param)
    shared_cluster.psql("CREATE EXTENSION pg_idem", dbname=name)
    sessions = Sessions(shared_cluster, name)
    yield request.param, sessions
    sessions.close()


def test_ascii_is_the_same_everywhere(encoded, conn):
    """Digest, canonical text and ids do not depend on the encoding."""
    _, connect = encoded
    other = connect()
    other.execute("SET client_encoding = 'UTF8'")  # else psycopg hands out bytes from SQL_ASCII
    for expression in ("""idem_canonical('{"b": [1.0, "x"], "a": {}}')""", """idem_fingerprint('{"b": 1, "a": "x"}')""",
                       "idem_fingerprint_text('{\"a\": \"x\"}')", "idem_action_id('k', 't')", "idem_key('a', 'b')"):
        assert value(other, f"SELECT {expression}") == value(conn, f"SELECT {expression}"), expression
    got = reserve(other, "k", {"a": "x"}, tenant="t", actor="me")
    assert commit(other, got, response={"ok": "yes"}) == "committed"
    assert reserve(other, "k", {"a": "x"}, tenant="t", actor="me").response == {"ok": "yes"}


@pytest.mark.parametrize("expression", [
    "idem_action_id(%(text)s, 'm' || %(text)s)", "idem_key(%(text)s)",
    "idem_action_fingerprint(sha256('x'), %(text)s, %(text)s, %(text)s, %(text)s)",
    "idem_fingerprint(jsonb_build_object(%(text)s, %(text)s))",
    "idem_fingerprint_text('{\"' || %(text)s || '\": 1}')",
    "convert_to(idem_canonical(jsonb_build_object(%(text)s, 1)), 'UTF8')"])
def test_letters_beyond_ascii(encoded, conn, expression):
    """The value that the same letters have in UTF-8, or 22xxx / 0A000; another value would split one action in two."""
    encoding, connect = encoded
    other = connect()
    other.execute("SET client_encoding = 'UTF8'")
    parameters = {"text": ACCENTED}
    expected = value(conn, f"SELECT {expression.replace('%(text)s', '%(text)s::text')}", parameters)
    found = []
    state = sqlstate(lambda: found.append(value(other, f"SELECT {expression.replace('%(text)s', '%(text)s::text')}",
                                                parameters)))
    if state is None:
        assert found == [expected]
    else:
        assert state[:2] == "22" or state == "0A000", state


def test_a_whole_action_with_letters_beyond_ascii(encoded):
    """It works and replays, or is refused and leaves nothing."""
    encoding, connect = encoded
    other = connect()
    other.execute("SET client_encoding = 'UTF8'")
    named = {"tenant": ACCENTED, "actor": ACCENTED, "worker": ACCENTED}
    got = []
    state = sqlstate(lambda: got.append(reserve(other, ACCENTED, {"ü": "é"}, **named)))
    if state is not None:
        assert encoding == "SQL_ASCII" or state == "0A000"
        assert state[:2] == "22" or state == "0A000"
        assert value(other, "SELECT count(*) FROM idem_action WHERE key = %s", (ACCENTED,)) == 0
        return
    assert commit(other, got[0], response={"ä": "ö"}, resource_id=ACCENTED) == "committed"
    replay = reserve(other, ACCENTED, {"ü": "é"}, **named)
    assert (replay.decision, replay.response, replay.resource_id) == ("replay", {"ä": "ö"}, ACCENTED)
    assert status(other, ACCENTED, ACCENTED).state == "committed"
    assert reserve(other, ACCENTED, {"ü": "e"}, **named).decision == "conflict"


def test_a_character_the_encoding_does_not_have(encoded):
    """In LATIN1 the server refuses it on the way in, and a \\u escape in jsonb is refused cleanly: nothing is stored."""
    encoding, connect = encoded
    other = connect()
    other.execute("SET client_encoding = 'UTF8'")
    statement = """SELECT * FROM idem_reserve('beyond', '{"n": "\\u20ac"}')"""
    state = sqlstate(other.execute, statement)
    assert state and (state[:2] == "22" or state == "0A000")
    assert value(other, "SELECT count(*) FROM idem_action WHERE key = 'beyond'") == 0


def test_raw_bytes_in_sql_ascii(shared_cluster, encoded):
    """SQL_ASCII takes any bytes; a key or a document that is no UTF-8 is refused, not hashed as something else."""
    encoding, connect = encoded
    other = connect()
    if encoding != "SQL_ASCII":
        pytest.skip("other encodings check on the way in")
    for expression in (r"idem_action_id(E'k\xff')", r"idem_key(E'\xff')", r"""idem_fingerprint(E'{"a":"\xff"}')""",
                       r"""idem_fingerprint_text(E'{"a":"\xff"}')"""):
        state = sqlstate(other.execute, f"SELECT {expression}")
        assert state and (state[:2] == "22" or state == "0A000"), expression
    for named in ("tenant", "actor", "target", "worker", "workflow_id", "session_id", "payload_version", "action_type"):
        state = sqlstate(other.execute, rf"SELECT * FROM idem_reserve('raw', '{{}}', {named} => E'\xff')")
        assert state is None or state[:2] == "22", (named, state)
    assert sqlstate(other.execute, r"SELECT * FROM idem_actions") is None

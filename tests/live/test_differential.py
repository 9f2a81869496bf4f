"""The canonical text and the fingerprint against two JCS libraries of other languages, and numbers against decimals.

PG_IDEM_SEED=n replays what a run with that seed did; the seed is printed.
"""

import json
import os
import time
from collections import defaultdict
from decimal import Decimal
from random import Random

import node
import psycopg
import pytest

from differential import judges as jury
from differential import numbers, shrinking
from differential.documents import Census, Generator
from differential.judges import Judges

DOCUMENTS = 100_000
BATCH = 5_000
SEED = int(os.environ.get("PG_IDEM_SEED") or int.from_bytes(os.urandom(4)))


BY_JSONB, BY_TEXT = "SELECT idem_fingerprint(%s::jsonb)", "SELECT idem_fingerprint_text(%s)"


@pytest.fixture(scope="module")
def judges(shared_cluster, dbname):
    with Judges(shared_cluster, dbname) as judges:
        yield judges


@pytest.fixture
def random(request):
    """Of its own for every test, so that one test alone can be replayed."""
    return Random(f"{SEED}/{request.node.name}")


@pytest.fixture
def say(capsys):
    """Prints to the terminal although pytest keeps what tests print."""
    began = time.monotonic()

    def say(text):
        with capsys.disabled():
            print(f"\n{text}\nPG_IDEM_SEED={SEED}, {time.monotonic() - began:.1f} s", flush=True)
    return say


def sqlstate(judges, query, document):
    """What a call is refused with, None if it is not."""
    try:
        judges.connection.execute(query, [document])
    except psycopg.Error as error:
        return error.sqlstate
    return None


def test_generated_documents(judges, random, say):
    """A hundred thousand documents, spelled in every way JSON has: five digests each, all equal.

    Fails for another order of members, another escape, another layout of numbers, or an entry that reads otherwise.
    """
    generator = Generator(random)
    census = Census(generator.hard)
    for _ in range(DOCUMENTS // BATCH):
        documents = [generator.document() for _ in range(BATCH)]
        judges.check(documents)
        for document in documents:
            census.add(document)
    say(census)
    assert census.counts["documents"] >= 100_000
    assert census.share_at_least(5) >= 0.2
    assert min(census.counts[what] for what in ("non-BMP names", "escapes", "hard numbers")) >= 50_000


def test_hard_numbers(judges, random, say):
    """The doubles that are hardest to print, both signs, in several spellings: one text each, and the libraries'."""
    groups = numbers.hard_doubles(random)
    values = [sign * numbers.shortest(double) for group in groups.values() for double in group for sign in (1, -1)]
    documents = [f"[{','.join(numbers.spellings(random, value))}]" for value in values]
    judges.check(documents)
    for value, text in zip(values, jury.npm(map(str, values)), strict=True):
        assert numbers.ecmascript(value) == text.decode(), "the oracle for longer numbers is wrong"
    say(f"{len(values) // 2:,} hard doubles: " + ", ".join(f"{len(group)} {name}" for name, group in groups.items())
        + f"; {sum(document.count(',') + 1 for document in documents):,} spellings")
    assert len(set(values)) >= 2 * 2_000


def test_numbers_beyond_doubles_are_exact(judges, random, say):
    """Equal decimal values have one digest however they are spelled, different ones have different digests.

    Python's decimal says which are equal, and the digits of each stand in the canonical text. The libraries, which
    read doubles, would fail this, and so would any reader that rounds.
    """
    spelled = [text for value in numbers.beyond_doubles(random) for text in numbers.spellings(random, value)]
    by_value, by_digest = defaultdict(set), defaultdict(set)
    for text, (digest, by_text, _) in zip(spelled, judges.server(spelled), strict=True):
        assert by_text == digest, text[:100]
        by_value[Decimal(text)].add(digest)
        by_digest[digest].add(Decimal(text))
    assert [str(value)[:100] for value, digests in by_value.items() if len(digests) > 1] == []
    assert [str(values)[:100] for values in by_digest.values() if len(values) > 1] == []
    for value, [digest] in by_value.items():
        assert digest == jury.sha256(numbers.ecmascript(value).encode()), str(value)[:100]
    say(f"{len(by_value):,} decimals in {len(spelled):,} spellings, up to {max(map(len, spelled)):,} characters")
    assert len(by_value) > 2_000 and len(spelled) > 2 * len(by_value)


def test_numbers_that_a_double_cannot_tell_apart(judges):
    """The pairs that a payment system would be sorry for: one double each, two fingerprints."""
    for one, other in [("9007199254740992", "9007199254740993"), ("0.1", "0.1000000000000000055"),
                       ("18446744073709551616", "18446744073709551617"), ("1e23", "99999999999999991611392"),
                       ("100000000000000000000000.10", "100000000000000008388608")]:
        assert float(one) == float(other)
        (digest, _, _), (other_digest, _, _) = judges.server([one, other])
        assert digest != other_digest


@pytest.mark.parametrize("document, jsonb_says", [
    ("1e131072", "22003"), ("1" + "0" * 131_072, "22003"), ("1e-16384", "22003"), ("1e400000", "22003"),
    ("1e99999999999999999999", "22003"), ("1e-99999999999999999999", "22003")])
def test_numbers_beyond_numeric_are_refused(judges, document, jsonb_says):
    """What PostgreSQL's numeric does not hold is an ordinary error in both entries, and the session lives on."""
    in_it = f'{{"n":{document}}}'
    assert sqlstate(judges, BY_JSONB, in_it) == jsonb_says
    assert sqlstate(judges, BY_TEXT, in_it) == "22P02"
    judges.check(["{}"])


def test_webhook_payloads(judges, say):
    """Real documents: every example payload that GitHub's users collected, each second one indented."""
    files = sorted(node.MODULES.glob("@octokit/webhooks-examples/*/index.json"))
    payloads = [shrinking.write(example) for file in files for event in shrinking.read(file.read_text())
                for example in dict(event)["examples"]]
    payloads[::2] = [json.dumps(json.loads(payload), indent=2, ensure_ascii=False) for payload in payloads[::2]]
    judges.check(payloads)
    say(f"{len(payloads)} payloads, {sum(map(len, payloads)):,} characters")
    assert len(payloads) >= 329


@pytest.mark.parametrize("depth", [1_000, 6_000])
@pytest.mark.parametrize("opening, middle, closing", [
    ("[", "", "]"), ('{"a":', "1e400", "}"), ('[{"ﬀ":', "{}", "}]")], ids=["arrays", "objects", "both"])
def test_depth(judges, opening, middle, closing, depth):
    """As deep as PostgreSQL 15 reads jsonb; such a document is its own canonical text."""
    depth //= len(closing)
    document = opening * depth + middle + closing * depth
    canonical = document.replace("1e400", "1e+400").encode()
    assert set(judges.server([document])[0]) == {jury.sha256(canonical)}


TWICE = ['{"a":1,"a":1}', '{"a":1,"b":0,"a":2}', '{"a":1,"\\u0061":2}', '[{"x":{"":1,"":1}}]',
         '{"😂":1,"\\ud83d\\ude02":1}', '{"a":{"a":1},"a":{"a":1}}', '[{"a":[],"a":{}}]']
LONE = ['"\\ud83d"', '"\\ude02"', '"\\ud83dx"', '"\\ud83d\\u0041"', '"\\ude02\\ud83d"', '"\\ud83d\\ud83d\\ude02"',
        '{"\\udfff":1}', '["\\ud800\\n"]', '"\\uD83D\\\\ude02"']
NUL = ['"\\u0000"', '{"\\u0000":1}', '["a\\u0000b"]', '{"a":{"b":"\\u0000"}}']
TRAILING = ["{} x", "{}{}", "1 2", "[1],", '{"a":1}}', "[]]", '"a" "b"', "null null", "{}//", "1,", '{}\\u0000']
NOT_JSON = ["", " ", "{", "[", '"', "[1,]", '{"a":}', '{"a"}', '{"a":1,}', "{a:1}", "{'a':1}", "{1:1}", "{,}", "[,]",
            "[1 2]", "nul", "True", "NaN", "Infinity", "-", "+1", ".5", "1.", "1.e1", "1e", "1e+", "01", "-01", "00",
            "0x1", "1_000", '"\\x41"', '"\\u12"', '"\\u12g4"', '"\\U00000041"', '"a\nb"', '"\t"', '"\x01"', "\ufeff{}",
            "\u00a0{}", "\f{}", "\v1", "{}\x1f", "/**/{}", '"\\', '"\\"', "undefined", '{"a":1 "b":2}', '[1;2]', "[1}",
            '{"a":1]']


@pytest.mark.parametrize("expected, documents", [
    ("22P02", LONE), ("22P05", NUL), ("22P02", TRAILING), ("22P02", NOT_JSON)],
    ids=["lone", "nul", "trailing", "not JSON"])
def test_what_is_not_json_is_refused_by_both_entries(judges, expected, documents):
    """Under the same SQLSTATE as jsonb's own, whether or not the caller has cast before."""
    for document in documents:
        by_text, by_jsonb = (sqlstate(judges, query, document) for query in (BY_TEXT, BY_JSONB))
        assert (by_text, by_jsonb) == (expected, expected), document


@pytest.mark.parametrize("document", TWICE)
def test_a_name_twice_is_refused_where_it_can_be_seen(judges, document):
    """The text entry refuses; jsonb has dropped all but the last before the other entry sees it."""
    assert sqlstate(judges, BY_TEXT, document) == "22P02"
    reduced = json.dumps(json.loads(document))
    [[digest]] = judges.connection.execute(BY_JSONB, [document])
    assert digest == judges.server([reduced])[0][1]


def test_damaged_documents_are_judged_alike(judges, random, say):
    """One character inserted, lost, doubled or replaced: the text entry takes what jsonb takes, and digests it alike.

    But for names that stand twice, which only the text entry refuses.
    """
    judges.connection.execute("""
        CREATE FUNCTION pg_temp.attempt(query text, document text) RETURNS text LANGUAGE plpgsql AS $$
        DECLARE result bytea;
        BEGIN EXECUTE query INTO result USING document; RETURN result;
        EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$""")
    generator = Generator(random)
    documents = []
    while len(documents) < 5_000:
        text = generator.document()
        at = random.randrange(len(text))
        letter = random.choice('{}[]:,"\\ 0123456789eE+-.utfn\n\x01é😂')
        damaged = random.choice((text[:at] + letter + text[at:], text[:at] + text[at + 1:],
                                 text[:at] + letter + text[at + 1:], text[:at] + text[at] + text[at:]))
        if not names_twice(damaged):
            documents.append(damaged)
    verdicts = judges.connection.execute(r"""
        SELECT pg_temp.attempt('SELECT idem_fingerprint($1::jsonb)', document),
               pg_temp.attempt('SELECT idem_fingerprint_text($1)', document)
        FROM unnest(%s::text[]) WITH ORDINALITY AS given(document, n) ORDER BY n""", [documents]).fetchall()
    # Of a number beyond numeric jsonb says 22003, the text entry 22P02.
    wrong = [(document, verdict) for document, verdict in zip(documents, verdicts, strict=True)
             if len({*verdict}) > 1 and verdict != ("22003", "22P02")]
    assert min(wrong, key=lambda case: len(case[0]), default=None) is None, f"{len(wrong)} of {len(documents)}"
    refused = sum(len(by_text) == 5 for _, by_text in verdicts)
    say(f"{len(documents):,} damaged documents, {refused:,} refused")
    assert 1_000 < refused < 4_500


def names_twice(text):
    found = []

    def look(members):
        found.append(len(members) > len({name for name, _ in members}))
    try:
        json.loads(text, object_pairs_hook=look)
    except ValueError:
        return False
    return any(found)


def by_code_points(documents):
    """A likely mistake: member names in the order of code points."""
    return [json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
            for text in documents]


def other_exponents(documents):
    """Another: numbers as the language prints them, here with the exponent in two digits."""
    return [text.replace(b"e-7", b"e-07") for text in jury.pypi(documents)]


@pytest.mark.parametrize("wrong, document, smallest", [
    (by_code_points, '[1,{"x":{"😂 a":true,"pq":[],"ﬀ":{"y":"z"}}}, "end"]', '{"😂":null,"ﬀ":{}}'),
    (other_exponents, '{"a":[{"b":[1, 2,  0.10e-6]}]}', "0.10e-6")], ids=["order", "exponent"])
def test_a_planted_fault_is_found_and_shrunk(shared_cluster, dbname, wrong, document, smallest):
    """The comparison itself: a library with a known fault makes it fail, and show the fault in a few characters."""
    with Judges(shared_cluster, dbname, {"npm": jury.npm, "wrong": wrong}) as judges:
        with pytest.raises(pytest.fail.Exception, match="1 of 3 documents disagree") as failure:
            judges.check(['{"a":1}', document, "[]"])
    assert f"document        {smallest}\n" in str(failure.value)

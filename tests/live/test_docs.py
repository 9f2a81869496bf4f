"""The documentation tells the truth: its examples are run and compared, its tables with the catalog and the code."""

import ast
import json
import re
import socket
import subprocess
import sys
import urllib.request
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from sessions import rows, value

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/docs"))

import answering  # noqa: E402  (found through the line above)
import examples  # noqa: E402

README, DESIGN = ROOT / "README.md", ROOT / "DESIGN.md"
PAGES = sorted(ROOT.glob("*.md"))
# Functions and views of the extension that nobody asks for; they serve its views and functions. So do all trigger functions.
INTERNAL = {"idem_live_counts", "idem_recent_conflicts", "idem_add_up_counts",
            "idem_capability", "idem_check_capabilities", "idem_check_library", "idem_has_capability", "idem_once_call",
            "idem_library_version", "idem_microseconds", "idem_sweep_lapses", "idem_when_unknown",
            "idem_make_outbox", "idem_preloaded", "idem_register_outbox", "idem_sees_tenant", "idem_state_word",
            "idem_unwritten_counts", "idem_visit"}


@pytest.fixture
def page_env(shared_cluster, tmp_path):
    """An empty database of a page's own and a provider; roles that the page makes are taken away again."""
    name = f"docs_{uuid.uuid4().hex[:8]}"
    shared_cluster.createdb(name)
    with shared_cluster.connect() as conn:
        before = {row.rolname for row in rows(conn, "SELECT rolname FROM pg_roles")}
        databases = {row.datname for row in rows(conn, "SELECT datname FROM pg_database")}
        with demo_provider(tmp_path) as address:
            env = shared_cluster.env(name)
            yield {**env, "PROVIDER": address, "PATH": f"{shared_cluster.bindir}:{env['PATH']}"}
        for row in rows(conn, "SELECT datname FROM pg_database"):
            if row.datname not in databases | {name} and row.datname.startswith("shop"):
                conn.execute(f'DROP DATABASE "{row.datname}" WITH (FORCE)')
        conn.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        for row in rows(conn, "SELECT rolname FROM pg_roles"):
            if row.rolname not in before and row.rolname.startswith("shop"):
                conn.execute(f'DROP ROLE "{row.rolname}"')


@contextmanager
def demo_provider(directory):
    command = [sys.executable, ROOT / "demo/provider.py", "--journal", directory / "refunds.jsonl", "--honour-keys"]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as process:
        try:
            yield process.stdout.readline().strip().removeprefix("http://")
        finally:
            process.kill()


# Examples


@pytest.mark.parametrize("page, least", [(README, 15), (DESIGN, 2)], ids=lambda it: getattr(it, "name", ""))
def test_examples_print_what_the_page_shows(page, least, page_env, tmp_path):
    count, wrong = examples.run_page(page, page_env, tmp_path)
    assert not wrong, "\n\n".join(wrong)
    assert count >= least, "examples were lost"


def test_differences_are_noticed():
    names = {}
    same = examples.same
    one, two = "072f94de-cf2c-4dbb-9bd3-622c0edd2538", "11128cc9-7ead-4c29-a040-38cec18db429"
    computed = "99741b82-1306-89a8-9983-df362a134cad"
    assert same(f"a | {one}", f"a  |  {two}", names) and names == {one: two}
    assert not same(one, one, names), "what stands for one uuid cannot stand for another"
    assert not same(computed, computed.replace("9", "7"), {})
    assert same("2026-01-01 10:00:00.5+00", "2027-02-03 11:12:13+00", {})
    assert same("59.999", "59.98765", {}) and not same("59.999", "19.98765", {})
    assert same(" a\n-----\n f\n(1 row)", "  a  \n-------\n f\n(1 row)", {})
    assert not same("(1 row)", "(2 rows)", {}) and not same("f", "t", {}) and not same("a b", "a", {})


OUTCOMES = [  # the table "From an answer or an exception to a call": what came back, the state, the decision next
    (200, "committed", "replay"), (201, "committed", "replay"),
    (204, "committed", "replay"),
    (202, "unknown", "unknown"),
    (400, "failed", "failed"), (401, "failed", "failed"), (403, "failed", "failed"), (404, "failed", "failed"),
    (422, "failed", "failed"),
    (409, "unknown", "unknown"),
    (429, "retryable", "pending"),
    (408, "unknown", "unknown"), (500, "unknown", "unknown"), (502, "unknown", "unknown"), (503, "unknown", "unknown"),
    (504, "unknown", "unknown"),
    ("drop", "unknown", "unknown"), ("cut", "unknown", "unknown"),
    ("refused connection", "retryable", None), ("no such host", "retryable", None),
]


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_the_examples_end_every_attempt_as_the_table_says(language, shared_cluster, dbname, conn, tmp_path):
    example, = [found for found in examples.examples_with(README, "PROVIDER") if found.language == language]
    conn.execute("SELECT idem_register_action_type('refund', 'deduplicated_creation')")
    with socket.socket() as closed, answering.provider() as answers:
        closed.bind(("127.0.0.1", 0))  # bound, but nobody listens: connections are refused
        addresses = {"refused connection": f"127.0.0.1:{closed.getsockname()[1]}",
                     "no such host": "no-such-host.invalid:80"}
        for asked, state, decision in OUTCOMES:
            key = f"{language} {asked}"
            source = re.sub(r"refund-482\d", key, example.source)
            request = f"{{answer: {asked!r}}}" if language == "javascript" else f"{{'answer': {asked!r}}}"
            source, made = re.subn(r"\{[^{}]*amount[^{}]*\}", lambda _: request, source)
            assert made == 2
            env = {**shared_cluster.env(dbname), "PROVIDER": addresses.get(asked, answers)}
            printed = examples.run(language, source, None, env, tmp_path).splitlines()
            first, second = printed
            assert first.split()[0] == state, (asked, printed)
            if decision:
                assert second.split()[0] == decision, (asked, printed)
            assert value(conn, "SELECT state FROM idem_status(%s)", (key,)) == state


def test_the_examples_hold_one_effect_when_the_answer_is_lost(shared_cluster, dbname, conn, tmp_path):
    """The README's programs against the demo's provider, which drops the answer: one refund, and nobody sends twice."""
    conn.execute("SELECT idem_register_action_type('refund', 'deduplicated_creation')")
    with demo_provider(tmp_path) as address:
        for example in examples.examples_with(README, "PROVIDER"):
            body = json.dumps({"next": "drop"}).encode()
            urllib.request.urlopen(f"http://{address}/behaviour", data=body, timeout=10).close()
            env = {**shared_cluster.env(dbname), "PROVIDER": address}
            printed = examples.run(example.language, example.source, None, env, tmp_path)
            assert [line.split()[0] for line in printed.splitlines()] == ["unknown", "unknown"], printed
            order = re.search(r"refund-(482\d)", example.source)[1]
            with urllib.request.urlopen(f"http://{address}/count?order={order}", timeout=10) as answer:
                assert json.load(answer) == {"count": 1}


# What there is, and what the README says there is


def sections(page):
    """The page's parts by their headings."""
    parts = re.split(r"^##+ (.+)$", page.read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def first_column(text):
    return [re.split(r"(?<!\\)\|", line)[1].strip() for line in text.splitlines() if line.startswith("| ")]


def columns(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]


def names_in(text):
    return re.findall(r"`(?:CALL )?(\w[\w.]*)", text)


@pytest.fixture
def catalog(conn):
    """The extension's objects: functions with their parameters, views, tables, settings."""
    conn.execute("SELECT idem_key('loads the library')")
    members = """SELECT {} FROM pg_depend AS d JOIN {} AS o ON o.oid = d.objid AND d.classid = {}::regclass
        WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
        AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_idem')"""
    functions = rows(conn, members.format(
        "o.proname AS name, coalesce(o.proargnames, '{}') AS parameters, o.pronargs AS count,"
        " o.prorettype IN ('trigger'::regtype, 'event_trigger'::regtype) AS trigger, obj_description(o.oid, 'pg_proc') AS comment, o.oid",
        "pg_proc", "'pg_proc'"))
    relations = rows(conn, members.format("o.relname AS name, o.relkind AS kind", "pg_class", "'pg_class'"))
    settings = rows(conn, "SELECT name, context, boot_val, setting FROM pg_settings WHERE name LIKE 'pg_idem.%'")
    return {
        "functions": {row.name: row for row in functions},
        "views": {row.name for row in relations if row.kind in ("v", b"v")},
        "tables": {row.name for row in relations if row.kind in ("r", b"r")},
        "settings": {row.name: row for row in settings},
    }


def test_functions_are_those_of_the_extension(catalog, conn):
    listed = {}
    for signature, _, errors in columns(sections(README)["Functions"])[1:]:
        if found := re.match(r"`(?:CALL )?(idem_\w+)\((.*)\)`$", signature):
            listed[found[1]] = found[2], set(re.findall(r"\b[0-9A-Z]{5}\b", errors))
    triggers = {name for name, function in catalog["functions"].items() if function.trigger}
    assert set(listed) == set(catalog["functions"]) - triggers - INTERNAL
    for name, (arguments, errors) in listed.items():
        function = catalog["functions"][name]
        types = {"text", "jsonb", "uuid", "bytea", "boolean", "int", "float8", "interval", "regrole", "regprocedure", "text[]", "uuid[]",
                 "jsonb[]", "timestamptz"}
        words = [word for part in arguments.split(",") for word in part.split() if word not in types | {"VARIADIC"}]
        assert words == function.parameters[:function.count], name
        if "Errors:" in function.comment:
            assert errors >= set(re.findall(r"\b[0-9A-Z]{5}\b", function.comment.partition("Errors:")[2])), name


def test_parameters_of_action_types_and_their_defaults(catalog, conn):
    function = catalog["functions"]["idem_register_action_type"]
    table = columns(sections(README)["Action types"].partition("| parameter |")[2])
    names, defaults = [], []
    for parameter, default, _ in table:
        if found := re.findall(r"`(\w+)`", parameter):
            names += found
            defaults += re.findall(r"`([^`]*)`", default) or [None] * len(found)
    assert names == function.parameters
    for name, default in zip(names, defaults):
        if default is None:
            continue
        shown = value(conn, """SELECT pg_get_function_arg_default(%s, array_position(p.proargnames, %s))
            FROM pg_proc AS p WHERE p.oid = %s""", (function.oid, name, function.oid))
        cast = shown.rpartition("::")[2] if "::" in shown else "integer"
        assert value(conn, f"SELECT {default}::{cast} = {shown}"), (name, shown)


def test_settings_are_those_of_the_extension(catalog):
    listed = {name.strip("`"): (default, who) for name, default, _, who in columns(sections(README)["Settings"])[1:]
              if name.startswith("`")}
    assert set(listed) == set(catalog["settings"])
    with_units = {"pg_idem.twin_wait": "2s", "pg_idem.max_wait": "1min", "pg_idem.max_response_size": "1MB",
                  "pg_idem.naptime": "10s", "pg_idem.inbox_retention": "30d"}
    for name, (default, who) in listed.items():
        setting = catalog["settings"][name]
        assert who == {"superuser": "superuser", "user": "anybody", "sighup": "the server"}[setting.context]
        assert default == with_units.get(name, setting.boot_val), name


def test_default_settings_as_show_prints_them(conn):
    conn.execute("SELECT idem_key('loads the library')")
    for name, default, *_ in columns(sections(README)["Settings"])[1:]:
        if name.startswith("`"):
            assert value(conn, f"SHOW {name.strip('`')}") == default


def test_views_are_those_of_the_extension(catalog):
    listed = {name.strip("`") for name in first_column(sections(README)["Views"])} - {"view"}
    assert listed == catalog["views"] - INTERNAL


def test_capabilities_are_those_of_the_extension(conn):
    listed = {cells[0].strip("`"): re.findall(r"`(\w+)`", cells[1]) for cells in columns(sections(README)["Roles"])[1:]
              if cells[0].startswith("`")}
    assert set(listed) == {"execute", "relay", "reconcile", "approve", "operate", "read"}
    for capability, objects in listed.items():
        held = value(conn, "SELECT idem_capability(%s)", (capability,))
        held = [name for _, name in (object.split() for object in held)]
        assert sorted(objects) == sorted(name for name in held if name not in INTERNAL), capability


def test_error_codes_are_those_of_the_code():
    listed = {code for code in first_column(sections(README)["Errors"]) if re.fullmatch(r"[0-9A-Z]{5}", code)}
    raised = set(re.findall(r'=> "(\w{5})"', (ROOT / "crates/idem_rules/src/error.rs").read_text()))
    # Not errors; raised in SQL only; reserved for libraries; the server's own.
    raised -= {"00000", "01000"}
    assert listed == raised | {"ID001", "25006", "2D000"}
    documented = set()
    for path in (ROOT / "sql/install").glob("*.sql"):
        for errors in re.findall(r"Errors: ([^']*)'", path.read_text()):
            documented |= set(re.findall(r"\b[0-9A-Z]{5}\b", errors))
    assert documented <= listed


def test_decisions_findings_and_classes_are_those_of_the_code():
    rules = "".join(path.read_text() for path in sorted((ROOT / "crates/idem_rules/src").glob("*.rs")))
    listed = sections(README)
    words = dict(re.findall(r'(\w+::\w+) => "(\w+)"', rules))
    decisions = {word for name, word in words.items() if name.startswith("Decision::")}
    findings = {word for name, word in words.items() if name.startswith("Finding::")}
    assert {cell.strip("`") for cell in first_column(listed["Decisions"])} - {"decision"} == decisions
    assert {cell.strip("`") for cell in first_column(listed["Reconciling"])} - {"finding"} == findings
    classes = set(re.findall(r'Class::\w+ => "(\w+)"', (ROOT / "crates/idem_rules/src/policy.rs").read_text()))
    table = listed["Action types"].partition("| parameter |")[0]
    assert {cell.strip("`") for cell in first_column(table)} - {"class"} == classes


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_exist(page, catalog):
    """Whatever looks like a name of the extension's is one."""
    text = page.read_text()
    known = set(catalog["functions"]) | catalog["views"] | catalog["tables"] | {"idem_rules", "idem_model", "idem_side_by_side"}
    types = {"idem_reservation", "idem_action_status", "idem_resolution", "idem_restored", "idem_swept", "idem_outbox_message"}
    for name in sorted(set(re.findall(r"\bidem_[a-z_]+\b", text))):
        assert name in known | types, f"{page.name} names {name}"
    for name in sorted(set(re.findall(r"\bpg_idem\.([a-z_]+)\b", text))):
        assert f"pg_idem.{name}" in catalog["settings"] or name in ("control", "so", "git"), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:|mailto:", target):
            continue
        file, _, anchor = target.partition("#")
        aim = (page.parent / file) if file else page
        assert aim.exists(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", aim.read_text(), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_and_make_targets_exist(page):
    text = page.read_text()
    targets = set(re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.M)[1].split())
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.M)) <= targets
    for path in re.findall(r"`((?:src|sql|crates|tests|demo|bench|scripts|\.ci)/[\w./*-]*)`", text):
        assert list(ROOT.glob(path.rstrip("/"))), f"{page.name}: {path}"


def test_the_version_stands_in_one_place():
    """Cargo.toml; the Makefile holds the control file against it. The change log has a heading for each."""
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    for page in PAGES:
        if page.name != "CHANGELOG.md":
            assert version not in page.read_text(), page.name
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_what_the_tables_cost(conn, connect_fresh):
    """Figures of README and DESIGN that the catalog or a measurement can confirm."""
    options = value(conn, "SELECT reloptions FROM pg_class WHERE oid = 'idem_action'::regclass")
    said = re.search(r"ledger's fillfactor is (\d+)", README.read_text())[1]
    assert options == [f"fillfactor={said}"]
    assert value(conn, "SELECT count(*) FROM pg_index WHERE indrelid = 'idem_action'::regclass") == 2

    # A tombstone with the README's "short key", and one with forty characters more.
    fresh = connect_fresh()
    fresh.execute("SELECT idem_register_action_type('t', 'read_only', effect => 'local', ttl => '0')")
    sizes = []
    for key in ("order-1234", "order-1234" + 40 * "x"):
        fresh.execute("""SELECT idem_commit(a.action_id, a.attempt_id, '{"a": 1}', 're_1')
            FROM idem_reserve(%s, '{"a": 1}', action_type => 't', lease_seconds => 0.000001) AS a""", (key,))
        fresh.execute("SELECT pg_sleep(0.01)")
        fresh.execute("CALL idem_sweep_all()")
        state = value(fresh, "SELECT state FROM idem_action WHERE key = %s", (key,))
        assert state in ("x", b"x")
        # The row with its header, aligned, and its line pointer.
        sizes.append(value(fresh, "SELECT (pg_column_size(a.*) + 7) / 8 * 8 + 4 FROM idem_action AS a WHERE key = %s",
                           (key,)))
    said = int(re.search(r"about (\d+) bytes of table with a short key", README.read_text())[1])
    assert abs(sizes[0] - said) <= 15, sizes
    assert 36 <= sizes[1] - sizes[0] <= 44


def test_python_examples_are_python():
    for page in PAGES:
        for example in examples.read(page):
            if example.language == "python":
                ast.parse(example.source)



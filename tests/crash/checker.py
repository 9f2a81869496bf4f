"""The witnesses must agree: what the clients were told, what the provider did, the business rows, and the ledger.

Each promise is one method; a violation is a line of text. The ledger is looked at while no client is at work.
"""

from collections import Counter, defaultdict

from psycopg.rows import namedtuple_row

from crash.clients import type_of
from crash.journal import Journals
from crash.provider import Provider

GRANTS = ("execute", "resume", "reconcile")
# An attempt that lost, and a token that was used already by its first, unanswered call.
HARMLESS = ("ID002", "22023")


class Checker:
    def __init__(self, directory):
        self.journals, self.provider = Journals(directory / "journals"), Provider(directory / "provider")
        self.violations = []
        self.granted = {}  # token -> the first answer that granted it
        self.attempts = defaultdict(set)  # (key, attempt) -> tokens that were told to execute it
        self.fences = defaultdict(set)  # key -> (fence, token)
        self.promised = {}  # key -> response: acknowledged with synchronous_commit, or replayed when everybody had it
        self.unflushed = {}  # key -> response: acknowledged without
        self.committed = {}  # key -> the committed row as first seen
        self.forgotten = set()  # keys whose unflushed commit a crash took back
        self.calls = Counter()

    def check(self, conn, ended=False):
        """Compares everything. With `ended`, nothing may be open any more. Returns the keys that are."""
        for entry in self.journals.news():
            self.hear(entry)
        cursor = conn.cursor(row_factory=namedtuple_row)
        ledger = {row.key: row for row in cursor.execute("SELECT * FROM idem_action")}
        history = {str(row.attempt_id) for row in cursor.execute("SELECT attempt_id FROM idem_attempt")}
        business = Counter(row.key for row in cursor.execute("SELECT key FROM business"))
        self.no_grant_is_lost(ledger, history)
        self.no_committed_row_changes(ledger)
        self.no_acknowledged_commit_is_lost(ledger)
        self.effects_are_what_the_ledger_says(ledger, business)
        still = sorted(key for key, row in ledger.items() if row.state not in "cfj")
        if ended and still:
            self.say(f"still open at the end: {still[:5]}")
        return still

    def say(self, line):
        if line not in self.violations:
            self.violations.append(line)

    def hear(self, entry):
        call, key, token = entry["call"], entry["key"], entry["token"]
        if "lost" in entry:
            return
        self.calls[entry.get("decision") or entry.get("answer") or entry["sqlstate"]] += 1
        if "sqlstate" in entry:
            if entry["sqlstate"] not in HARMLESS or (entry["sqlstate"] == "22023" and not entry.get("again")):
                self.say(f"{key}: {call} raised {entry['sqlstate']}: {entry['message']}")
            return
        if entry.get("decision") in GRANTS:
            if call == "reserve":
                self.hear_grant(entry)
            else:
                (self.promised if entry["sync"] else self.unflushed).setdefault(key, {"by": token})
        elif entry.get("decision") == "replay" and entry["all_sync"]:
            self.promised.setdefault(key, entry["response"])
        elif call == "idem_commit" and entry["answer"] in ("committed", "already_committed"):
            (self.promised if entry["sync"] else self.unflushed).setdefault(key, entry["response"])

    def hear_grant(self, entry):
        key, token = entry["key"], entry["token"]
        first = self.granted.setdefault(token, entry)
        if (first["client"], first["key"], first["fence"]) != (entry["client"], key, entry["fence"]):
            self.say(f"{key}: token {token} was handed out twice")
        self.fences[key].add((entry["fence"], token))
        if len(self.fences[key]) != len({fence for fence, _ in self.fences[key]}):
            self.say(f"{key}: one fence was given to two attempts")
        if entry["decision"] != "reconcile":
            tokens = self.attempts[key, entry["attempt"]]
            tokens.add(token)
            if len(tokens) > 1:
                self.say(f"{key}: attempt {entry['attempt']} was granted twice")

    def no_grant_is_lost(self, ledger, history):
        for token, entry in self.granted.items():
            row = ledger.get(entry["key"])
            known = row and (token in (str(row.attempt_id), str(row.reconcile_id)) or token in history)
            if not known:
                self.say(f"{entry['key']}: an acknowledged grant of attempt {entry['attempt']} is lost")
            elif row.fence < entry["fence"]:
                self.say(f"{entry['key']}: the fence fell")

    def no_committed_row_changes(self, ledger):
        for key, row in ledger.items():
            if row.state != "c":
                continue
            first = self.committed.setdefault(key, row)
            # The owner of an attempt that was repeated may tell of his effect when the other's is on record: a discrepancy,
            # and marked as one.
            may = {"flags"} if type_of(key) == "status" else set()
            changed = {name for name in row._fields if getattr(row, name) != getattr(first, name)} - may
            if changed:
                self.say(f"{key}: a committed row has changed: {', '.join(sorted(changed))}")
        for key in self.committed:
            if key not in ledger or ledger[key].state != "c":
                self.say(f"{key}: a committed row is gone")

    def no_acknowledged_commit_is_lost(self, ledger):
        for key, response in self.promised.items():
            row = ledger.get(key)
            if row is None or row.state != "c":
                self.say(f"{key}: an acknowledged commit is lost")
            elif row.response != response:
                self.say(f"{key}: the response is not the one that was acknowledged")
        self.forgotten |= {key for key in self.unflushed if key not in ledger or ledger[key].state != "c"}

    def effects_are_what_the_ledger_says(self, ledger, business):
        effects = {key: self.provider.effects(key) for key in self.provider.keys()}
        counts = {**{key: len(done) for key, done in effects.items()}, **business}
        for key, count in counts.items():
            if key not in ledger:
                self.say(f"{key}: {count} effects that the ledger knows nothing of")
            if count > 1 and type_of(key) != "status":
                self.say(f"{key}: {count} effects")
        for key, row in ledger.items():
            if row.state == "c" and counts.get(key, 0) < 1:
                self.say(f"{key}: committed without an effect")
            if row.state in "fj" and counts.get(key, 0):
                self.say(f"{key}: ended as {row.state} with an effect")

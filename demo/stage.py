"""What the chapters of the demo are played on: a cluster, a provider, processes, and the terminal that shows it all."""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from itertools import groupby
from pathlib import Path

import psycopg
from psycopg.rows import dict_row

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from cluster import Cluster  # noqa: E402  (found through the line above)

# Seconds until something that does not come is given up; nothing waits this long when all is well.
PATIENCE = 60
# Of the columns of a call, the ones the story is about.
COLUMNS = {
    "idem_reserve": ("granted", "decision", "state", "attempt", "retry_after_seconds", "response"),
    "idem_compensate": ("granted", "decision", "state", "attempt", "retry_after_seconds", "response"),
    "idem_reconcile_next": ("key", "attempt", "probes", "reason", "lookup_hint"),
    "idem_outbox_claim": ("type", "aggregatetype", "aggregateid", "payload", "attempt"),
}


class Actor:
    """A process that plays a part; a thread prints what it does as it does it."""

    def __init__(self, terminal, name, script, options):
        self.terminal, self.name = terminal, name
        self.events = []
        self.news = threading.Condition()
        self.process = subprocess.Popen([sys.executable, HERE / script, *options], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            if "do" in event:
                self.terminal.act(self.name, event["do"])
            elif "say" in event:
                self.terminal.result(self.name, event["say"])
            elif "got" in event:
                self.terminal.rows(self.name, [shown(event["function"], event["got"])])
            with self.news:
                self.events.append(event)
                self.news.notify_all()

    def answers(self, column):
        """What the calls said in this column, in order; asking again while nothing has changed counts once."""
        answers = [event["got"][column] for event in self.events if column in event.get("got", ())]
        return [answer for answer, _ in groupby(answers)]

    def wait_for(self, condition):
        with self.news:
            if not self.news.wait_for(condition, PATIENCE):
                raise TimeoutError(f"{self.name} did not get there")

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self):
        """Waits for the end of the work and returns what was decided."""
        if self.process.wait(PATIENCE) != 0:
            raise RuntimeError(f"{self.name} failed")
        self.reader.join(PATIENCE)
        return self.answers("decision")

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)


def shown(function, row):
    return {name: row[name] for name in COLUMNS.get(function, row)}


class Stage:
    def __init__(self, stack, terminal):
        self.stack, self.terminal = stack, terminal
        self.sessions = {}
        self.chapter = None
        self.table = []
        self.sound = True

    def set_up(self):
        self.cluster = self.stack.enter_context(Cluster())
        provider = subprocess.Popen([sys.executable, HERE / "provider.py", "--journal",
                                     self.cluster.dir / "effects.jsonl"], text=True, stdout=subprocess.PIPE)
        self.stack.callback(provider.wait)
        self.stack.callback(provider.kill)
        self.provider = provider.stdout.readline().strip()

    # Who acts

    def begin(self, chapter, title, *comment):
        self.chapter = chapter
        self.terminal.chapter(f"Chapter {chapter}: {title}", *comment)

    def scene(self, title, *comment):
        self.terminal.scene(title, *comment)

    def actor(self, name, script, *options):
        actor = Actor(self.terminal, name, script, ["--provider", self.provider, *options])
        self.stack.callback(actor.kill)
        return actor

    def worker(self, name, key, request, *options, user=None):
        return self.actor(name, "worker.py", "--dsn", self.dsn(user), "--key", key, "--request", request, *options)

    def dsn(self, user=None):
        return self.cluster.dsn() + (f" user={user}" if user else "")

    def kill(self, actor):
        self.terminal.act("demo", f"kill -9 {actor.process.pid}")
        actor.kill()

    def session(self, user=None):
        if user not in self.sessions:
            self.sessions[user] = self.stack.enter_context(
                psycopg.connect(self.dsn(user), autocommit=True, row_factory=dict_row))
        return self.sessions[user]

    def sql(self, statement, actor="demo", user=None):
        """Runs a statement in a session of the user's, and shows it and what came of it. Returns the rows, or the
        SQLSTATE of a refusal."""
        self.terminal.act(actor, statement)
        try:
            cursor = self.session(user).execute(statement)
        except psycopg.Error as error:
            said = error.diag
            hint = f"\nHINT:  {said.message_hint}" if said.message_hint else ""
            self.terminal.result(actor, f"ERROR:  {said.message_primary}{hint}")
            return said.sqlstate
        rows = cursor.fetchall() if cursor.description else []
        if rows:
            self.terminal.rows(actor, rows)
        return rows

    # The provider

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(self.provider + path, data=data, timeout=PATIENCE) as answer:
            return json.load(answer)

    def behave(self, behaviour):
        self.ask("/behaviour", {"next": behaviour})

    def count(self, kind, of):
        (name, value), = of.items()
        return self.ask(f"/count?kind={kind}&{name}={value}")["count"]

    def eventually(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("what the demo waited for did not come")
            time.sleep(0.01)

    # What is claimed

    def expect(self, what, actual, claimed):
        """Remembers, and says, where the truth is not what the demo claims."""
        if actual != claimed:
            self.sound = False
            self.terminal.verdict("demo", f"NOT AS CLAIMED: {what}: {actual}, not {claimed}", good=False)
        return actual == claimed

    def end(self, scene, of, claimed, key=None, state="committed", attempt=1):
        """Ends a scene with the provider's counts and the ledger's row, and holds both against the claim.

        of       what the effects were made for: {"order": "4821"}
        claimed  how many of each kind there are: {"refunds": 1}
        key      of the action; None where there is none
        """
        (name, value), = of.items()
        counts = []
        for kind, number in claimed.items():
            made = self.count(kind, of)
            good = self.expect(kind, made, number)
            counts.append(f"{made} {kind[:-1] if made == 1 else kind}")
            self.terminal.verdict("provider", f"{counts[-1]} for {name.replace('_', ' ')} {value}", good)
        row = {"state": ""}
        if key:
            row, = self.sql("SELECT key, state, attempt, resource_id\n"
                            f"FROM idem_actions WHERE key = '{key}';", actor="ledger")
            self.expect("state and attempts", (row["state"], row["attempt"]), (state, attempt))
        self.table.append({"chapter": self.chapter, "scene": scene, "provider": ", ".join(counts),
                           "ledger": row["state"]})


def request(amount, **of):
    return json.dumps({"amount": amount, **of})

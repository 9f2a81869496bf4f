"""The demonstration: what goes wrong when a refund is retried, and what pg_idem makes of it.

Starts a throw-away cluster with the extension and a payment provider, each in a place of its own, then plays one
accident after the other with real worker processes, printing every statement as it was sent. The exit status is 0
only if each count and each ledger row is what the text claims.
"""

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

from psycopg.rows import dict_row

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from cluster import Cluster  # noqa: E402  (found through the line above)
from terminal import Terminal  # noqa: E402

# Seconds until something that does not come is given up; nothing waits this long when all is well.
PATIENCE = 60
# Of the columns of idem_reserve, the ones the story is about.
RESERVE_COLUMNS = ("granted", "decision", "state", "attempt", "retry_after_seconds", "response")


class Worker:
    """A worker process; a thread prints what it does as it does it."""

    def __init__(self, terminal, name, options):
        self.terminal, self.name = terminal, name
        self.events = []
        self.news = threading.Condition()
        self.process = subprocess.Popen([sys.executable, HERE / "worker.py", *options], text=True,
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

    def decisions(self):
        """What idem_reserve decided, in order; asking again while nothing has changed counts once."""
        decisions = [event["got"]["decision"] for event in self.events if event.get("function") == "idem_reserve"]
        return [decision for decision, _ in groupby(decisions)]

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
        return self.decisions()

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)


def shown(function, row):
    return {name: row[name] for name in RESERVE_COLUMNS} if function == "idem_reserve" else row


class Demo:
    def __init__(self, stack, terminal):
        self.stack, self.terminal = stack, terminal
        self.table = []
        self.sound = True

    def set_up(self):
        self.terminal.heading(
            "Setting up",
            "A throw-away PostgreSQL cluster with shared_preload_libraries = 'pg_idem', and a payment provider that",
            "stores a refund before it answers. It ignores idempotency keys; it can only be asked what it did.")
        cluster = self.stack.enter_context(Cluster())
        self.dsn = cluster.dsn()
        self.connection = self.stack.enter_context(cluster.connect(row_factory=dict_row))
        provider = subprocess.Popen([sys.executable, HERE / "provider.py", "--journal", cluster.dir / "refunds.jsonl"],
                                    text=True, stdout=subprocess.PIPE)
        self.stack.callback(provider.wait)
        self.stack.callback(provider.kill)
        self.provider = provider.stdout.readline().strip()
        self.sql("CREATE EXTENSION pg_idem;")
        self.sql("SELECT name, class, policy_version\n"
                 "FROM idem_register_action_type(name => 'refund', class => 'deduplicated_creation');")

    # The accidents

    def naive(self):
        self.terminal.heading(
            "A naive retry",
            "The provider makes the refund, then the connection closes before the answer. The client tries again.")
        self.behave("drop")
        self.worker("client", order="4820", naive=True).finish()
        self.end("naive retry", order="4820", refunds=2)

    def dropped_answer(self):
        self.terminal.heading(
            "(a) The provider commits, the connection closes before the answer",
            "The same accident. No answer is not a failure: the action is unknown, and whoever tries next is told to",
            "find out what happened instead of sending again.")
        self.behave("drop")
        first = self.worker("worker 1", order="4821").finish()
        second = self.worker("worker 2", order="4821").finish()
        self.expect("decisions", [first, second], [["execute"], ["reconcile"]])
        self.end("(a) answer lost", order="4821")

    def two_at_once(self):
        self.terminal.heading(
            "(b) Two workers get the same key at once",
            "Both start on the same signal. One is granted the action; the other waits for its outcome.")
        self.behave("block")
        workers = [self.worker(name, order="4822", on_your_marks=True) for name in ("worker 1", "worker 2")]
        for worker in workers:
            worker.wait_for(lambda: worker.events)
        for worker in workers:
            worker.go()
        # The provider holds its answer until both workers know where they stand, so that they really overlap.
        for worker in workers:
            worker.wait_for(worker.decisions)
        self.eventually(lambda: self.count("4822") == 1)
        self.ask("/release", {})
        decisions = sorted(worker.finish() for worker in workers)
        self.expect("decisions", decisions, [["execute"], ["pending", "replay"]])
        self.end("(b) two at once", order="4822")

    def killed_worker(self):
        self.terminal.heading(
            "(c) The worker is killed after the provider committed",
            "Its lease of two seconds runs out. That is no permission to send again, only to find out what happened.")
        self.behave("block")
        first = self.worker("worker 1", order="4823", lease=2)
        self.eventually(lambda: self.count("4823") == 1)
        self.terminal.act("demo", f"kill -9 {first.process.pid}")
        first.kill()
        second = self.worker("worker 2", order="4823", lease=2).finish()
        # On a busy machine the lease may be over before the second worker asks; it is not told to wait then.
        self.expect("decisions", [first.decisions(), second[-1]], [["execute"], "reconcile"])
        self.end("(c) worker killed", order="4823")

    def double_click(self):
        self.terminal.heading(
            "(d) The user clicks twice",
            "The second click gets the stored answer of the first. Nothing is sent.")
        first = self.worker("click 1", order="4824").finish()
        second = self.worker("click 2", order="4824").finish()
        self.expect("decisions", [first, second], [["execute"], ["replay"]])
        self.end("(d) two clicks", order="4824")

    def reordered_fields(self):
        self.terminal.heading(
            "(e) The model sends the fields in another order",
            "The same refund again, other spelling: order of members, white space, 50.00 for 50. It is the same request.")
        decisions = self.worker("worker", order="4824", request='{ "order":"4824",  "amount":50.00 }').finish()
        self.expect("decisions", decisions, ["replay"])
        self.end("(e) fields reordered", order="4824")

    def changed_amount(self):
        self.terminal.heading(
            "(f) The amount is changed under the same key",
            "Not the same request, so not an answer to it either: a conflict, and nothing is sent.")
        decisions = self.worker("worker", order="4824", request=request("4824", 500)).finish()
        self.expect("decisions", decisions, ["conflict"])
        self.end("(f) amount changed", order="4824")

    # What they are made of

    def worker(self, name, order, lease=None, naive=False, on_your_marks=False, **options):
        arguments = ["--provider", self.provider, "--request", options.get("request", request(order))]
        if naive:
            arguments += ["--naive"]
        else:
            arguments += ["--dsn", self.dsn, "--key", f"refund:{order}"]
        if lease:
            arguments += ["--lease", str(lease)]
        if on_your_marks:
            arguments += ["--on-your-marks"]
        worker = Worker(self.terminal, name, arguments)
        self.stack.callback(worker.kill)
        return worker

    def sql(self, statement, actor="demo"):
        self.terminal.act(actor, statement)
        cursor = self.connection.execute(statement)
        rows = cursor.fetchall() if cursor.description else []
        if rows:
            self.terminal.rows(actor, rows)
        return rows

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(self.provider + path, data=data, timeout=PATIENCE) as answer:
            return json.load(answer)

    def behave(self, behaviour):
        self.ask("/behaviour", {"next": behaviour})

    def count(self, order):
        return self.ask(f"/count?order={order}")["count"]

    def eventually(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("the provider did not get there")
            time.sleep(0.01)

    def expect(self, what, actual, claimed):
        """Remembers, and says, where the truth is not what the demo claims."""
        if actual != claimed:
            self.sound = False
            self.terminal.verdict("demo", f"NOT AS CLAIMED: {what}: {actual}, not {claimed}", good=False)
        return actual == claimed

    def end(self, title, order, refunds=1):
        """Ends an accident with the provider's count and the ledger's row, and holds both against the claim."""
        made = self.count(order)
        good = self.expect("refunds", made, refunds)
        self.terminal.verdict("provider", f"{made} {'refund' if made == 1 else 'refunds'} for order {order}", good)
        state = ""
        if refunds == 1:
            row, = self.sql("SELECT key, state, attempt, resource_id\n"
                            f"FROM idem_actions WHERE key = 'refund:{order}';", actor="ledger")
            state = row["state"]
            self.expect("state and attempts", (state, row["attempt"]), ("committed", 1))
        self.table.append({"accident": title, "refunds": made, "ledger": state})


def request(order, amount=50):
    return json.dumps({"amount": amount, "order": order})


def main():
    began = time.monotonic()
    # Lets the clean-up run where the demo is ended by a signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    terminal = Terminal()
    with ExitStack() as stack:
        demo = Demo(stack, terminal)
        demo.set_up()
        demo.naive()
        demo.dropped_answer()
        demo.two_at_once()
        demo.killed_worker()
        demo.double_click()
        demo.reordered_fields()
        demo.changed_amount()
    terminal.heading("What the provider counted")
    verdict = "Every count and decision is as claimed." if demo.sound else "NOT AS CLAIMED, see above."
    terminal.summary(demo.table, f"{verdict} The demo took {time.monotonic() - began:.1f} s.", demo.sound)
    return 0 if demo.sound else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

"""Rounds of work and SIGKILL: the postmaster, a primary that has a synchronous standby, single backends or the clients.

    python tests/crash/run.py --rounds 500 [--kill postmaster|primary|backend|client] [--seed 7]

A round works until at least 100 calls are acknowledged, kills at a random moment with at least 5 calls in flight, has
the server recover, and checks; both counts are printed. A round that was too quiet in the end is not counted.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cluster import Cluster  # noqa: E402  (found through the line above)
from crash.checker import Checker  # noqa: E402
from crash.clients import KINDS, SETUP  # noqa: E402
from crash.shared import DRAIN, END, PAUSE, RUN, Shared  # noqa: E402
import standby  # noqa: E402

CLIENTS = 8
ACKNOWLEDGED, IN_FLIGHT = 100, 5  # what a round needs at least
# synchronous_commit of a round's clients: on for all, off for all, off for every other.
LAZY = {0: "on", 1: "off", 2: "mixed"}
SETTINGS = {
    "pg_idem.databases": "*", "pg_idem.naptime": "50ms", "log_error_verbosity": "verbose",
    # Nothing is flushed that nobody asked to have flushed, so that a crash takes as much as it can.
    "wal_writer_delay": "10s", "wal_writer_flush_after": 0, "max_connections": 40, **standby.SETTINGS,
}


class Result(NamedTuple):
    rounds: int
    short: int  # rounds that had too few calls in flight to count
    in_flight: int  # at least, in a round that counts
    acknowledged: int  # at least, in a round that counts
    committed: int
    forgotten: int  # unflushed commits that a crash took back
    violations: list


class Crash:
    def __init__(self, kill="postmaster", kind="Client", seed=None, setup="", sabotage=None):
        self.kill, self.kind, self.setup, self.sabotage = kill, KINDS[kind], SETUP + setup, sabotage
        self.random = random.Random(seed)
        self.directory = Path(tempfile.mkdtemp(prefix="pg_idem-crash-", dir="/tmp"))
        for name in ("journals", "provider"):
            (self.directory / name).mkdir()
        self.shared = Shared(CLIENTS)
        self.checker = Checker(self.directory)
        self.pids, self.born = {}, 0
        self.cluster, self.standby = Cluster(settings=SETTINGS), None

    def run(self, rounds):
        counted, short, seen = 0, 0, []
        try:
            self.cluster.start()
            self.cluster.psql(self.setup)
            for n in range(CLIENTS):
                self.bear(n)
            while counted < rounds and not self.checker.violations:
                acknowledged, in_flight = self.round(counted + short)
                if in_flight < IN_FLIGHT or acknowledged < ACKNOWLEDGED:
                    short += 1
                    if short > 2 * rounds + 5:
                        self.checker.say("too few calls are in flight when something is killed")
                    continue
                counted += 1
                seen.append((acknowledged, in_flight))
            self.drain()
        finally:
            self.bury()
            for cluster in filter(None, (self.standby, self.cluster)):
                cluster.close()
            shutil.rmtree(self.directory, ignore_errors=True)
        return Result(counted, short, min((f for _, f in seen), default=0), min((a for a, _ in seen), default=0),
                      len(self.checker.committed), len(self.checker.forgotten), self.checker.violations)

    # A round

    def round(self, number):
        # What is not flushed is not sent to a standby either.
        lazy = 0 if self.kill == "primary" else number % len(LAZY)
        if self.kill == "primary":
            self.standby = standby.standby_of(self.cluster)
            standby.synchronise(self.cluster)
        before = self.counts()
        self.shared.command(RUN, self.cluster.port, lazy)
        self.wait(lambda: self.counts()[0] - before[0] >= ACKNOWLEDGED, "the clients do not get on")
        time.sleep(self.random.random() * 0.2)
        self.wait(lambda: sum(slot.read()[0] for slot in self.shared.slots()) > IN_FLIGHT, "nobody calls", 60)
        killed = getattr(self, f"kill_{self.kill}")()
        self.rest()
        after = self.counts()
        acknowledged, lost = after[0] - before[0], after[1] - before[1] + killed
        began = time.monotonic()
        if self.kill == "postmaster":
            self.cluster.start()
        elif self.kill == "primary":
            self.fail_over()
        took = time.monotonic() - began
        self.tamper()
        open_now = self.look()
        print(f"round {number + 1}: {self.kill} killed, synchronous_commit {LAZY[lazy]}: {lost} calls in flight, "
              f"{acknowledged} acknowledged, back after {took:.2f} s; {len(self.checker.committed)} committed, "
              f"{len(open_now)} open, {len(self.checker.violations)} violations", flush=True)
        return acknowledged, lost

    def kill_postmaster(self):
        self.cluster.kill9()
        self.shared.command(PAUSE)
        return 0

    kill_primary = kill_postmaster

    def fail_over(self):
        self.cluster.close()
        self.cluster, self.standby = self.standby, None
        standby.promote(self.cluster)

    def kill_backend(self):
        """One backend dies, so the postmaster ends all the others and recovers."""
        with self.cluster.connect() as conn:
            found = conn.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' "
                                 "AND pid <> pg_backend_pid()").fetchall()
        before = self.cluster.log().count("ready to accept connections")
        os.kill(self.random.choice(found)[0], signal.SIGKILL)
        self.wait(lambda: self.cluster.log().count("ready to accept connections") > before, "the server stays away", 60)
        self.shared.command(PAUSE)
        return 0

    def kill_client(self):
        """Up to all of them at once; each is replaced. Whoever was in a call never hears the answer."""
        dead = self.random.sample(range(CLIENTS), self.random.randint(IN_FLIGHT + 1, CLIENTS))
        for n in dead:
            os.kill(self.pids[n], signal.SIGKILL)
        for n in dead:
            os.waitpid(self.pids.pop(n), 0)
        killed = sum(self.shared.slot(n).read()[0] for n in dead)
        self.shared.command(PAUSE)
        for n in dead:
            self.bear(n)
        return killed

    def rest(self):
        """Returns when no client is at work any more, and no backend of a dead one either."""
        self.wait(lambda: all(slot.read()[1] for slot in self.shared.slots()), "a client does not come to rest", 60)
        if self.cluster.pid:
            with self.cluster.connect() as conn:
                busy = ("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                        "AND pid <> pg_backend_pid() AND state <> 'idle'")
                self.wait(lambda: conn.execute(busy).fetchone()[0] == 0, "a backend does not come to rest", 60)

    def tamper(self):
        """What a broken server might have done; nothing, unless a test wants to see the checker find it."""
        if self.sabotage:
            with self.cluster.connect() as conn:
                conn.execute(self.sabotage)

    def look(self, ended=False):
        with self.cluster.connect() as conn:
            return self.checker.check(conn, ended)

    def drain(self):
        """Lets the clients finish what is open, as long as it gets less, then looks for the last time."""
        open_now = self.look()
        least, deadline = len(open_now), time.monotonic() + 60
        while open_now and not self.checker.violations and time.monotonic() < deadline:
            (self.directory / "open").write_text(json.dumps(open_now))
            self.shared.command(DRAIN, self.cluster.port, 0)
            time.sleep(1)
            self.shared.command(PAUSE)
            self.rest()
            open_now = self.look()
            if len(open_now) < least:
                least, deadline = len(open_now), time.monotonic() + 60
        if not self.checker.violations:
            self.look(ended=True)

    # Clients

    def bear(self, n):
        self.born += 1
        name = f"client {n} ({self.born})"
        self.shared.slot(n).write(calling=0, idle=0)
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                self.kind(n, name, self.shared, self.directory, "host=127.0.0.1 user=postgres dbname=postgres").run()
                status = 0
            finally:
                # Not sys.exit: what the parent would do at its end is not for this copy of it.
                os._exit(status)
        self.pids[n] = pid

    def bury(self):
        self.shared.command(END)
        for pid in self.pids.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def counts(self):
        slots = [slot.read() for slot in self.shared.slots()]
        return sum(slot[2] for slot in slots), sum(slot[3] for slot in slots)

    def wait(self, happened, otherwise, seconds=60):
        deadline = time.monotonic() + seconds
        while not happened():
            for n, pid in self.pids.items():
                if os.waitpid(pid, os.WNOHANG)[0]:
                    self.pids.pop(n)
                    raise RuntimeError(f"client {n} ended by itself")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{otherwise}\n{self.cluster.log()[-2000:]}")
            time.sleep(0.0005)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kill", choices=("postmaster", "primary", "backend", "client"), default="postmaster")
    parser.add_argument("--clients", choices=KINDS, default="Client", help="how well they are written")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--setup", default="", help="SQL to run before the first round")
    parser.add_argument("--sabotage", help="SQL to run after each recovery, before the check")
    arguments = parser.parse_args()
    crash = Crash(arguments.kill, arguments.clients, arguments.seed, arguments.setup, arguments.sabotage)
    result = crash.run(arguments.rounds)
    print(f"{arguments.kill}: {result.rounds} rounds with at least {result.in_flight} calls in flight and {result.acknowledged} "
          f"acknowledged, {result.short} too quiet to count; {result.committed} actions committed, "
          f"{result.forgotten} unflushed commits forgotten; {len(result.violations)} violations")
    for line in result.violations[:20]:
        print(line)
    return 1 if result.violations or result.rounds < arguments.rounds else 0


if __name__ == "__main__":
    sys.exit(main())

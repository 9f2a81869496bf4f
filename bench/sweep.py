"""The sweep of a million expired rows: how long a batch takes, and what callers notice of the worker that does it."""

import itertools
import threading
import time
from pathlib import Path

from fill import fill
from harness import CLIENTS, Variant, check, cluster, head, pgbench, quartiles, ratios, say
from scripts import KEY, variables

ROWS = 1_000_000
BATCH = 1000
# Long enough that the sweep has no business with the reservations made meanwhile.
LEASE = "10 h"
RESERVE = KEY + "SELECT * FROM idem_reserve(:key, :request, 'acme', 'slow');\n"


def run(options):
    with cluster(fsync=True, **{"pg_idem.naptime": "1s"}) as server:
        with server.connect() as conn:
            conn.execute(f"""SELECT idem_register_action_type('slow', 'deduplicated_creation', lease => '{LEASE}',
                max_lease => '{LEASE}')""")
        variant = Variant("reserve", RESERVE, {"request": variables(300)["request"]})
        tps = pgbench(server, variant, 1, min(3, options.seconds)).tps
        worker = Worker(server)
        for rate, load in ((None, "full"),):
            age(server)
            head(f"the worker sweeps {ROWS:,} expired rows, reserve by {CLIENTS} clients "
                 f"{f'at {rate}/s' if rate else 'as fast as they can'}, fsync on")
            ratio = meet(server, options, variant, rate, worker)
            check(options, f"p95 of reserve at {load} load, swept / not, <= 1.2", ratio, ratio <= 1.2)
        worker.report()
        check(options, "longest batch of the worker, ms, <= 200", worker.longest, worker.longest <= 200, "{:.0f}")
        age(server)
        head(f"{ROWS:,} expired rows by idem_sweep({BATCH}) without a rest, nobody else there")
        longest = by_hand(server)
        check(options, "longest statement of a sweep by hand, ms, <= 200", longest, longest <= 200, "{:.0f}")


def age(server):
    """Fresh rows past retention and past the tombstone's time: each is scrubbed, and later removed."""
    fill(server, ROWS, ("idem_action",), days_old=160)
    with server.connect() as conn:
        conn.execute("TRUNCATE idem_open")
        # The cursors that look for dead attempts passed these rows when they were young.
        conn.execute("""UPDATE idem_cursor SET visited_to =
            CASE WHEN purpose IN ('lease', 'settled') THEN now() ELSE '-infinity' END""")
        # Loading rows makes the worker wait; here it need not.
        conn.execute("UPDATE idem_worker_visit SET paused_until = NULL")


def meet(server, options, variant, rate, worker):
    """The median ratio of reserve's p95 with the worker to without, in turns."""
    extra = ["--rate", str(rate)] if rate else []
    figures = {False: [], True: []}
    seeds = itertools.count(2)  # the same keys again would only be told to wait
    for turn in range(options.rounds):
        for swept in (False, True) if turn % 2 else (True, False):
            if swept:
                worker.start()
            figures[swept].append(p95(server, variant, next(seeds), options.seconds, extra))
            if swept:
                worker.stop()
    for swept, what in ((False, "without"), (True, "with")):
        low, middle, high = quartiles(figures[swept])
        say(f"   p95 of reserve {what} the sweep: median {middle:.2f} ms   quartiles {low:.2f} - {high:.2f}   "
            f"raw {' '.join(f'{figure:.2f}' for figure in figures[swept])}")
    low, middle, high = ratios(figures[True], figures[False])
    say(f"   ratio: median {middle:.3f}   quartiles {low:.3f} - {high:.3f}")
    return middle


def p95(server, variant, seed, seconds, extra):
    """In ms, from pgbench's log of every transaction."""
    pgbench(server, variant, seed, seconds, extra=[*extra, "--log", "--log-prefix=reserve"])
    waits = []
    for log in Path(server.dir).glob("reserve.*"):
        waits += [int(line.split()[2]) for line in log.read_text().splitlines()]
        log.unlink()
    waits.sort()
    return waits[int(len(waits) * 0.95)] / 1000


class Worker:
    """The background worker, let into the database and kept out again, and what it did there."""

    def __init__(self, server):
        self.conn = server.connect()
        self.longest, self.rows, self.seconds = 0.0, 0, 0.0
        self.began = self.before = 0

    def count(self):
        return self.conn.execute("SELECT scrubbed + removed FROM idem_worker_status").fetchone()[0]

    def databases(self, names):
        self.conn.execute(f"ALTER SYSTEM SET pg_idem.databases = '{names}'")
        self.conn.execute("SELECT pg_reload_conf()")

    def start(self):
        self.began, self.before = time.monotonic(), self.count()
        self.over = threading.Event()
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()
        self.databases("postgres")

    def stop(self):
        self.databases("")
        while self.conn.execute("SELECT FROM pg_stat_activity WHERE backend_type = 'pg_idem worker'").rowcount:
            time.sleep(0.05)
        self.over.set()
        self.watcher.join()
        swept = self.count() - self.before
        assert swept, "the worker found nothing to do: the rounds say nothing"
        self.rows += swept
        self.seconds += time.monotonic() - self.began

    def watch(self):
        """The age of the worker's transaction, twenty times a second; a batch that is longer is seen growing."""
        with self.conn.__class__.connect(self.conn.info.dsn, autocommit=True) as conn:
            while not self.over.wait(0.05):
                age = conn.execute("""SELECT 1000 * extract(epoch FROM clock_timestamp() - xact_start)
                    FROM pg_stat_activity WHERE backend_type = 'pg_idem worker' AND xact_start IS NOT NULL""").fetchone()
                self.longest = max(self.longest, float(age[0]) if age else 0.0)

    def report(self):
        say(f"   the worker scrubbed or removed {self.rows:,} rows, {self.rows / self.seconds:,.0f} a second")


def by_hand(server):
    """Sweeps everything in batches of an autocommitting session; the longest statement in ms."""
    times, swept, nothing = [], 0, 0
    with server.connect() as conn:
        # As idem_sweep_all and the worker have it: nothing is lost that the next sweep does not do again.
        conn.execute("SET synchronous_commit = off")
        while nothing < 100:
            began = time.perf_counter()
            visited, _, scrubbed, removed = conn.execute(f"SELECT * FROM idem_sweep({BATCH})", prepare=True).fetchone()
            if visited == 0:
                # A cursor waits for the transactions that were running when it last looked; not for ever.
                nothing += 1
                time.sleep(0.01)
                continue
            nothing = 0
            swept += scrubbed + removed
            times.append((time.perf_counter() - began) * 1000)
    _, middle, high = quartiles(times)
    worst = ", ".join(f"{one:.0f}" for one in sorted(times)[-3:])
    say(f"   {swept:,} rows scrubbed or removed, {swept / sum(times) * 1000:,.0f} a second; {len(times)} statements, "
        f"median {middle:.1f} ms, upper quartile {high:.1f}, the three longest {worst} ms")
    return max(times)

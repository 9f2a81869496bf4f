"""The sweep of a million expired rows: its statements, and what callers notice of it."""

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
    longest, waits = [], []
    with cluster(fsync=True) as server:
        with server.connect() as conn:
            conn.execute(f"""SELECT idem_register_action_type('slow', 'deduplicated_creation', lease => '{LEASE}',
                max_lease => '{LEASE}')""")
        variant = Variant("reserve", RESERVE, {"request": variables(300)["request"]})
        tps = pgbench(server, variant, 1, min(3, options.seconds)).tps
        for rate in (round(tps / 2), None):
            age(server)
            head(f"sweep of {ROWS:,} expired rows by idem_sweep({BATCH}), reserve by {CLIENTS} clients "
                 f"{f'at {rate}/s' if rate else 'as fast as they can'}, fsync on")
            sweeper = Sweeper(server)
            waits.append(meet(server, options, variant, rate, sweeper))
            sweeper.report("with that going on")
            longest.append(max(sweeper.times))
        age(server)
        sweeper = Sweeper(server)
        sweeper.sweep(lambda: False)
        sweeper.report("alone")
        longest.append(max(sweeper.times))
    check(options, "longest statement of the sweep, ms, <= 200", max(longest), max(longest) <= 200, "{:.0f}")
    check(options, "p95 of reserve at half load, swept / not, <= 1.2", waits[0], waits[0] <= 1.2)
    check(options, "p95 of reserve at full load, swept / not, <= 1.2", waits[1], waits[1] <= 1.2)


def age(server):
    """Fresh rows past retention and past the tombstone's time: each is scrubbed, and later removed."""
    fill(server, ROWS, ("idem_action",), days_old=160)
    with server.connect() as conn:
        conn.execute("TRUNCATE idem_open")
        # The cursors that look for dead attempts passed these rows when they were young.
        conn.execute("""UPDATE idem_cursor SET visited_to =
            CASE WHEN purpose IN ('lease', 'settled') THEN now() ELSE '-infinity' END""")


def meet(server, options, variant, rate, sweeper):
    """The median ratio of reserve's p95 with the sweep to without, in turns."""
    extra = ["--rate", str(rate)] if rate else []
    figures = {False: [], True: []}
    tries = 0
    while len(figures[True]) < options.rounds:
        turns = (False, True) if len(figures[True]) % 2 else (True, False)
        for swept in turns:
            over = threading.Event()
            thread = threading.Thread(target=sweeper.sweep, args=(over.is_set,))
            if swept:
                thread.start()
            figures[swept].append(p95(server, variant, tries + 2, options.seconds, extra))
            over.set()
            if swept:
                thread.join()
        tries += 1
        if sweeper.done:
            # Where the rows ran out before the round did, it says nothing.
            del figures[False][-1], figures[True][-1]
            sweeper.done = False
            age(server)
            if tries > 3 * options.rounds:
                raise RuntimeError("all rows are swept within a round: make the rounds shorter")
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


class Sweeper:
    """Calls idem_sweep again and again, and counts."""

    def __init__(self, server):
        self.server = server
        self.done = False
        self.times, self.scrubbed, self.removed = [], [0, 0.0], [0, 0.0]

    def sweep(self, over):
        nothing = 0
        with self.server.connect() as conn:
            while not over() and not self.done:
                began = time.perf_counter()
                visited, _, scrubbed, removed = conn.execute(f"SELECT * FROM idem_sweep({BATCH})", prepare=True).fetchone()
                took = time.perf_counter() - began
                if visited == 0:
                    # A cursor waits for the transactions that were running when it last looked; not for ever.
                    nothing += 1
                    self.done = nothing == 100
                    time.sleep(0.01)
                    continue
                nothing = 0
                self.times.append(took * 1000)
                for count, total in ((scrubbed, self.scrubbed), (removed, self.removed)):
                    if count:
                        total[0] += count
                        total[1] += took

    def report(self, when):
        _, middle, high = quartiles(self.times)
        worst = ", ".join(f"{one:.0f}" for one in sorted(self.times)[-3:])
        speed = [f"{count:,} rows {what}, {count / seconds:,.0f} rows/s" for what, (count, seconds) in
                 (("scrubbed", self.scrubbed), ("removed", self.removed)) if count]
        say(f"   sweep {when}: {'; '.join(speed)}; {len(self.times)} statements, median {middle:.1f} ms, "
            f"upper quartile {high:.1f}, the three longest {worst} ms")

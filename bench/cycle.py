"""Reserve and commit, against the same work by hand."""

from fill import fill
from harness import cluster, compare, head, rounds, show
from scripts import apart, cycles, together

# Pages of a new table are full of luck: the first rows go to one page after the other, and the index is one level.
WARM_ROWS = 200_000


def run(options):
    for fsync, two, targets in ((True, "fsync on", 0.95), (False, "fsync off", 0.80)):
        with cluster(fsync=fsync) as server:
            fill(server, WARM_ROWS)
            for size in (300, 1000):
                head(f"cycle, two transactions, {two}, response {size} bytes")
                variants = cycles(apart, "refund", size)[:3 if size == 300 else 2]
                figures = rounds(server, variants, options, seed=size)
                report(options, figures, f"two transactions, {two}, {size} B", targets if size == 300 else None)
            head(f"cycle, one transaction, {two}, response 300 bytes")
            figures = rounds(server, cycles(together, "entry"), options, seed=2)
            report(options, figures, f"one transaction, {two}", 0.90)


def report(options, figures, what, target):
    show(figures, "cycles/s")
    compare(options, figures, "pg_idem", "hand-written SQL", f"{what}, pg_idem / hand-written SQL", target)
    if "PL/pgSQL functions" in figures:
        compare(options, figures, "pg_idem", "PL/pgSQL functions", f"{what}, pg_idem / PL/pgSQL functions", 1.1)


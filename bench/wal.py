"""WAL of one action, page images counted apart, by pg_waldump."""

import re
import subprocess

from cycle import WARM_ROWS
from fill import HAND, fill
from harness import CLIENTS, check, cluster, head, pgbench, say
from scripts import apart, cycles, together

ACTIONS = 20_000


def run(options):
    with cluster(fsync=False, wal_level="replica") as server:
        fill(server, WARM_ROWS, ("idem_action", HAND))
        for join, type, what in ((apart, "refund", "two transactions"), (together, "entry", "one transaction")):
            for size in (300, 1000):
                head(f"WAL an action, {what}, response {size} bytes")
                found = {}
                for variant in cycles(join, type, size)[:2]:
                    # Twice: the first run after a checkpoint logs whole pages, the second hardly any.
                    with server.connect() as conn:
                        conn.execute("CHECKPOINT")
                    for when in ("after a checkpoint", "later"):
                        records, images = measured(server, variant, seed=size + len(when) + len(what))
                        found[variant.name, when] = records
                        say(f"   {variant.name:<18} {when:<20} records {records:6.0f} B, page images {images:6.0f} B")
                for when in ("after a checkpoint", "later"):
                    ratio = found["pg_idem", when] / found["hand-written SQL", when]
                    if size == 300 and when == "later":
                        check(options, f"WAL an action, {what}, pg_idem / hand-written SQL <= 1.15", ratio, ratio <= 1.15)
                    else:
                        say(f"   ratio {when}: {ratio:.3f}")


def measured(server, variant, seed):
    """Bytes of records without images, and of images, for one action."""
    with server.connect() as conn:
        start = conn.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0]
        pgbench(server, variant, seed, transactions=ACTIONS // CLIENTS)
        # A switch would pad the segment; flushing what is there is enough for pg_waldump.
        end = conn.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0]
        conn.execute("SELECT pg_logical_emit_message(true, 'bench', '')")
        conn.execute("SELECT pg_sleep(0.5)")
    done = subprocess.run([server.bindir / "pg_waldump", "--stats", "-p", server.data / "pg_wal", "-s", start, "-e", end],
                          text=True, capture_output=True, check=True)
    # Total  count  size [pct]  fpi [pct]  combined
    total = re.search(r"^Total\s+\d+\s+(\d+) \[[\d.]+%\]\s+(\d+) \[[\d.]+%\]", done.stdout, re.M)
    return int(total[1]) / ACTIONS, int(total[2]) / ACTIONS

"""The reconcilers' queue in a large ledger: how long idem_reconcile_next(10) takes."""

import time

from fill import fill
from harness import check, cluster, head, say

ROWS = 1_000_000
UNKNOWN = 1000
CALLS = 1000


def run(options):
    head(f"idem_reconcile_next(10) over {ROWS:,} rows of which {UNKNOWN:,} are unknown, {CALLS:,} calls, fsync on")
    with cluster(fsync=True) as server:
        fill(server, ROWS, ("idem_action",), days_old=1)
        with server.connect() as conn:
            conn.execute("""SELECT FROM generate_series(1, %s) AS n, LATERAL idem_reserve('unknown ' || n) AS r,
                LATERAL idem_mark_unknown(r.action_id, r.attempt_id)""", (UNKNOWN,))
            conn.execute("VACUUM ANALYZE")
            times = []
            while len(times) < CALLS:
                # Each round empties the queue; its leases are over before the next one.
                for _ in range(UNKNOWN // 10):
                    began = time.perf_counter()
                    rows = conn.execute("SELECT * FROM idem_reconcile_next(10, 5)", prepare=True).fetchall()
                    times.append((time.perf_counter() - began) * 1000)
                    last = rows[-1][3] if rows else last
                while conn.execute("SELECT clock_timestamp() <= %s", (last,)).fetchone()[0]:
                    time.sleep(0.1)
            times.sort()
            p95 = times[int(CALLS * 0.95)]
            say(f"   median {times[CALLS // 2]:.2f} ms   p95 {p95:.2f} ms   longest {times[-1]:.2f} ms")
            check(options, "p95 of idem_reconcile_next(10), ms, < 5", p95, p95 < 5)

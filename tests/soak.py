"""The background worker over a long time: its memory stays flat, and a long backlog is worked off in bounded batches.

    python tests/soak.py --cycles 100000 --backlog 1000000
"""

import argparse
import sys
import time
from pathlib import Path

from cluster import Cluster
from sessions import reserve, rows, value

SETTINGS = {"fsync": False, "autovacuum": True, "pg_idem.databases": "postgres", "pg_idem.naptime": "1ms",
            "max_wal_size": "4GB"}
# What a process may take more at the end than after its first cycles: measured, it is nothing at all. A leak of a byte
# a cycle would be 100 kB.
MOST = 8  # kB


def report(line):
    print(line, flush=True)


def memory(pid):
    """What the process has for itself, in kB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise ProcessLookupError(pid)


def cycles(conn):
    """Visits so far: each updates one row of idem_worker_visit once."""
    return value(conn, "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'idem_worker_visit'")


def soak(cluster, count, say=report):
    """Runs that many cycles, some with dead attempts to find. Returns the growth of launcher and postmaster in kB."""
    with cluster.connect() as conn:
        launcher = value(conn, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_idem launcher'")
        processes = {"launcher": launcher, "postmaster": cluster.pid}
        # What is allocated once is there after the first cycles.
        warm = cycles(conn) + max(count // 20, 100)
        first, said, number = None, 0, 0
        while (done := cycles(conn)) < warm + count:
            if first is None and done >= warm:
                first = {name: memory(pid) for name, pid in processes.items()}
            if first and (done - warm) // (count // 10) > said:
                said = (done - warm) // (count // 10)
                now = {name: memory(pid) for name, pid in processes.items()}
                say(f"{done - warm} cycles: " + ", ".join(f"{name} {kb} kB" for name, kb in now.items()))
            number += 1
            reserve(conn, f"soak {number}", lease_seconds=0.001)
            time.sleep(0.05)
        assert value(conn, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_idem launcher'") == launcher, \
            "the launcher was started again meanwhile"
        assert value(conn, "SELECT last_error FROM idem_worker_status") is None
        return {name: memory(pid) - first[name] for name, pid in processes.items()}


def backlog(cluster, count, say=report):
    """Leaves that many dead attempts behind while the worker is away, then lets it come. Returns in how many steps
    its progress was seen to go on, and the seconds it took."""
    with cluster.connect() as conn:
        def databases(names):
            conn.execute(f"ALTER SYSTEM SET pg_idem.databases = '{names}'")
            conn.execute("SELECT pg_reload_conf()")
            time.sleep(3)  # for the worker that is there to leave

        databases("none")
        before = value(conn, "SELECT unknown FROM idem_worker_status")
        for start in range(0, count, 50000):
            conn.execute("SELECT count(*) FROM generate_series(%s::int, %s::int) AS n, LATERAL "
                         "idem_reserve('backlog' || n, '{}', lease_seconds => 0.001)", (start + 1, min(start + 50000, count)))
        began, longest = time.monotonic(), 0.0
        databases("postgres")
        done, said, steps = 0, 0, []
        while done < count:
            looked = time.monotonic()
            reserve(conn, f"meanwhile {time.monotonic()}")
            longest = max(longest, time.monotonic() - looked)
            now = value(conn, "SELECT unknown FROM idem_worker_status") - before
            if now != done:
                steps.append(now - done)
            done = now
            if done * 10 // count > said:
                said = done * 10 // count
                say(f"{done} of {count} dead attempts found after {time.monotonic() - began:.0f} s")
            assert time.monotonic() - began < 600 + count / 100, f"stuck at {done}"
        took = time.monotonic() - began
        assert not rows(conn, "SELECT FROM idem_action WHERE state = 's' AND key LIKE 'backlog%' LIMIT 1")
        say(f"{count} dead attempts in {took:.0f} s, seen in {len(steps)} steps of at most {max(steps)}; the slowest reserve "
            f"meanwhile took {longest * 1000:.0f} ms")
        return len(steps), took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=100000)
    parser.add_argument("--backlog", type=int, default=1000000)
    arguments = parser.parse_args()
    with Cluster(settings=SETTINGS) as cluster:
        cluster.psql("CREATE EXTENSION pg_idem")
        backlog(cluster, arguments.backlog)
        grown = soak(cluster, arguments.cycles)
    print(f"{arguments.cycles} cycles: " + ", ".join(f"{name} grew by {kb} kB" for name, kb in grown.items()))
    return 0 if max(grown.values()) <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())

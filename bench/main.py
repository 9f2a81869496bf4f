"""The benchmark, one section after the other: what the extension costs beside the same work by hand.

A missed target does not make it fail, because what else the machine does may be the reason: read the summary.
"""

import argparse
import importlib
import signal
import sys
import time

from harness import Options, say

SECTIONS = ["cycle", "replay", "wal", "hot", "fingerprint", "memory", "sweep", "reconcile", "outbox", "big"]


def main():
    # So that the clusters are stopped and removed whatever ends the benchmark.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"of {', '.join(SECTIONS)}; default all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=5, help="length of one variant's run in a round")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the section big")
    given = parser.parse_args()
    if unknown := set(given.sections) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    options = Options(given.rounds, given.seconds, given.rows)
    for name in given.sections or SECTIONS:
        began = time.monotonic()
        importlib.import_module(name).run(options)
        say(f"   section {name} took {time.monotonic() - began:.0f} s")
    missed = sum(line.startswith("MISS") for line in options.checks)
    say(f"\n== Targets: {len(options.checks) - missed} met, {missed} missed")
    for line in options.checks:
        say(line)


if __name__ == "__main__":
    main()

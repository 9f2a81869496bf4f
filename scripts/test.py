"""Runs suites and adds up what they counted: the rules crate, its model, the SQL files, the live tests.

`make test` calls this after it has installed the extension. Arguments name some of the suites: `test.py sql races`
is what other majors get. A suite that fails does not keep the next one from
running; the last line has the sum, and the exit status says whether anything failed.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from cluster import Cluster  # noqa: E402  (found through the line above)


class Counts(NamedTuple):
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def run(command, **kw):
    """Runs a command, shows its output as it comes, returns its exit status and the output."""
    lines = []
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **kw) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def checked(status, counts):
    """A suite that ended badly without a failed test (it did not compile, it crashed) counts as one."""
    return counts._replace(failed=1) if status != 0 and counts.failed == 0 else counts


def cargo_test(*words, **kw):
    status, output = run(["cargo", "test", "--quiet", "--locked", *words], **kw)
    found = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", output, re.M)
    return checked(status, Counts(*(sum(map(int, column)) for column in zip(*found))))


def rules():
    """The pure crate, without a server."""
    return cargo_test("--package", "idem_rules")


def model():
    """The rules, model-checked: every order of events in small worlds, and faults that must be found."""
    return cargo_test("--profile", "model", "--package", "idem_model", "--", "--nocapture")


def beside():
    """Random calls and kills on a server and on the rules side by side."""
    settings = {"fsync": False, "autovacuum": False, "statement_timeout": "30s"}
    with Cluster(settings=settings, preload=False) as cluster:
        cluster.psql("CREATE EXTENSION pg_idem")
        return cargo_test("--profile", "model", "--package", "idem_side_by_side", "--", "--nocapture",
                          env=cluster.env())


def sql():
    """The SQL files through pg_regress, as `make installcheck` does on anybody's server."""
    with Cluster(settings={"fsync": False}) as cluster:
        status, output = run(["make", "--no-print-directory", "installcheck"], env=cluster.env())
    # "test reserve ... ok" up to PostgreSQL 15, "ok 1 - reserve" from 16 on.
    passed = re.findall(r"^(?:test .* \.\.\. ok|ok \d+) ", output, re.M)
    failed = re.findall(r"^(?:test .* \.\.\. FAILED|not ok \d+) ", output, re.M)
    counts = checked(status, Counts(len(passed), len(failed)))
    diffs = ROOT / "target/pg_regress/regression.diffs"
    if counts.failed and diffs.exists():
        print(diffs.read_text(errors="replace"))
    return counts


def live(*files):
    """Real clients, real servers, real processes; two files at a time, each with a cluster of its own."""
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        status, _ = run([sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile",
                         f"--junitxml={report.name}", *files],
                        env={**os.environ, "PYTHONUNBUFFERED": "1"})
        if os.path.getsize(report.name) == 0:
            return Counts(failed=1)
        suite = ElementTree.parse(report.name).getroot().find("testsuite").attrib
    tests, skipped = int(suite["tests"]), int(suite["skipped"])
    failed = int(suite["failures"]) + int(suite["errors"])
    return checked(status, Counts(tests - failed - skipped, failed, skipped))


def races():
    """The live tests in which sessions meet."""
    return live(*map(str, sorted(ROOT.glob("tests/live/test_race_*.py"))), "tests/live/test_isolation.py")


def upgrade():
    """pg_upgrade between the servers of scripts/servers.txt."""
    return live("tests/versions")


def main():
    results = {}
    chosen = [globals()[name] for name in sys.argv[1:]] or [rules, model, sql, beside, live]
    for suite in chosen:
        print(f"\n=== {suite.__name__}: {suite.__doc__.splitlines()[0]}", flush=True)
        began = time.monotonic()
        results[suite.__name__] = suite(), time.monotonic() - began

    print()
    for name, (counts, seconds) in results.items():
        print(f"{name:6} {counts} in {seconds:.0f} s")
    total = Counts(*map(sum, zip(*(counts for counts, _ in results.values()))))
    print(total)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())

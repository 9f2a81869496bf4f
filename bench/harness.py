"""What every section needs: a cluster to measure on, pgbench, interleaved rounds, and how figures are printed."""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from cluster import Cluster  # noqa: E402

CLIENTS = 8
THREADS = 2

# Big enough that the tables stay in memory, and no checkpoint in the middle of a round: it would put full-page
# images and writes into whichever variant happens to run. Autovacuum, for the same reason, waits.
SETTINGS = {
    "shared_buffers": "1GB", "max_wal_size": "64GB", "min_wal_size": "4GB", "checkpoint_timeout": "1d",
    "autovacuum": False, "max_connections": 50, "track_wal_io_timing": False, "log_min_messages": "error",
}


@dataclass
class Options:
    """What the command line says."""

    rounds: int = 9
    seconds: float = 5
    rows: int = 10_000_000
    checks: list = field(default_factory=list)


def say(text=""):
    print(text, flush=True)


def head(title):
    load = os.getloadavg()[0]
    say(f"\n== {title}   (load {load:.1f} on {os.cpu_count()} CPUs)")


def check(options, what, value, met, form="{:.3f}"):
    """One target: printed where it is measured, and once more at the end."""
    line = f"{'PASS' if met else 'MISS'}  {what}: {form.format(value)}"
    options.checks.append(line)
    say(f"   {line}")


@contextmanager
def cluster(**settings):
    """A cluster with the extension and the hand-written table, nothing in either."""
    with Cluster(settings={**SETTINGS, **settings}) as server:
        with server.connect() as conn:
            install(conn)
        yield server


def install(conn):
    conn.execute("CREATE EXTENSION pg_idem")
    conn.execute(Path(__file__).with_name("handwritten.sql").read_text())
    conn.execute("SELECT idem_register_action_type('refund', 'deduplicated_creation')")
    conn.execute("SELECT idem_register_action_type('entry', 'idempotent_mutation', effect => 'local')")


def document(size, **members):
    """A JSON object whose text has `size` bytes, with the kinds of members a payment has."""
    pairs = {"order": '"ord_58213"', "amount": "4200", "currency": '"eur"', "reason": '"damaged"',
             "items": '[{"sku": "A-1", "qty": 2}, {"sku": "B-7", "qty": 1}]', **members}
    text = "{" + ", ".join(f'"{name}": {value}' for name, value in pairs.items())
    padding = size - len(text) - len(', "note": ""}')
    assert padding >= 0
    return text + f', "note": "{("lorem ipsum dolor " * 100)[:padding]}"}}'


REQUEST = document(200)
# The digest a client of the hand-written table passes; its making is the client's business there.
FINGERPRINT = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


@dataclass
class Variant:
    """One way to do the work: a pgbench script and the variables it gets."""

    name: str
    script: str
    variables: dict = field(default_factory=dict)
    dbname: str = "postgres"
    settings: dict = field(default_factory=dict)  # of its sessions


@dataclass
class Run:
    """What one run of pgbench came to."""

    tps: float
    cpu: float  # microseconds of the sessions' CPU time for each transaction


def pgbench(server, variant, seed, seconds=None, transactions=None, clients=CLIENTS, extra=()):
    """Runs one variant."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql", dir=server.dir) as script:
        script.write(variant.script)
        script.flush()
        length = ["-T", str(max(1, round(seconds)))] if seconds else ["-t", str(transactions)]
        command = [str(server.bindir / "pgbench"), "-n", "-M", "prepared", "-c", str(clients),
                   "-j", str(min(THREADS, clients)), *length, f"--random-seed={seed}", "-f", script.name, *extra]
        for name, value in variant.variables.items():
            command += ["-D", f"{name}={value}"]
        before = server_cpu(server)
        # In a directory of its own, for the files of --log.
        settings = " ".join(f"-c {name}={value}" for name, value in variant.settings.items())
        env = {**server.env(variant.dbname), "PGOPTIONS": settings}
        done = subprocess.run(command, env=env, text=True, capture_output=True, cwd=server.dir)
    if done.returncode != 0:
        raise RuntimeError(f"pgbench, {variant.name}: {done.stderr}")
    failed = re.search(r"number of failed transactions: (\d+)", done.stdout)
    if failed and int(failed[1]):
        raise RuntimeError(f"pgbench, {variant.name}: {failed[0]}\n{done.stderr}")
    # The postmaster counts a session's time once it has ended, a moment after the client has gone.
    time.sleep(0.1)
    done_by = int(re.search(r"actually processed: (\d+)", done.stdout)[1])
    cpu = (server_cpu(server) - before) / max(1, done_by) * 1e6
    return Run(float(re.search(r"tps = ([\d.]+)", done.stdout)[1]), cpu)


def rounds(server, variants, options, seed=1, **given):
    """Runs all variants in every round, in an order that changes, and returns the runs by name.

    The first, shorter round warms up and is dropped.
    """
    figures = {variant.name: [] for variant in variants}
    for number in range(options.rounds + 1):
        # One to the left each round: every variant comes first, last, and after every other, equally often.
        turn = number % len(variants)
        for variant in variants[turn:] + variants[:turn]:
            seconds = options.seconds if number else min(2, options.seconds)
            run = pgbench(server, variant, seed * 1000 + number, seconds, **given)
            if number:
                figures[variant.name].append(run)
    return figures


def quartiles(values):
    if len(values) < 2:
        return (values[0],) * 3
    return tuple(statistics.quantiles(values, n=4, method="inclusive"))


def ratios(ours, other):
    """The quartiles of ours / other, round by round: what disturbed a round disturbed both."""
    return quartiles([a / b for a, b in zip(ours, other)])


def show(figures, unit="tps"):
    for name, runs in figures.items():
        low, middle, high = quartiles([run.tps for run in runs])
        say(f"   {name:<28} {middle:>9.0f} {unit}   quartiles {low:.0f} - {high:.0f}   "
            f"raw {' '.join(f'{run.tps:.0f}' for run in runs)}   "
            f"server CPU {statistics.median(run.cpu for run in runs):.1f} us each")
    say(f"   load at the end {os.getloadavg()[0]:.1f}")


def compare(options, figures, ours, other, what, target=None):
    """The ratio of two variants' tps, and of the CPU time, which hardly moves with what else the machine does."""
    low, middle, high = ratios([run.tps for run in figures[ours]], [run.tps for run in figures[other]])
    _, cpu, _ = ratios([run.cpu for run in figures[other]], [run.cpu for run in figures[ours]])
    say(f"   {what}: median {middle:.3f}   quartiles {low:.3f} - {high:.3f}   by server CPU {cpu:.3f}")
    if target is not None:
        check(options, f"{what} >= {target}", middle, middle >= target)
    return middle


def server_cpu(server):
    """CPU seconds of all sessions of the server that have ended, from the postmaster's account of its children."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def on_cpu(conn):
    """CPU seconds of the session so far, to the nanosecond."""
    return int(Path(f"/proc/{conn.info.backend_pid}/schedstat").read_text().split()[0]) / 1e9

"""What every section needs: a cluster to measure on, pgbench, interleaved rounds, and how figures are printed."""

import os
import re
import statistics
import subprocess
import sys
import tempfile
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
    line = f"{'ok  ' if met else 'MISS'}  {what}: {form.format(value)}"
    options.checks.append(line)
    say(f"   {line}")


@contextmanager
def cluster(**settings):
    """A cluster with the extension and the hand-written table, nothing in either."""
    with Cluster(settings={**SETTINGS, **settings}) as server:
        with server.connect() as conn:
            conn.execute("CREATE EXTENSION pg_idem")
            # Planned once and kept, as by any client that prepares: the benchmark is not about the planner.
            conn.execute(Path(__file__).with_name("handwritten.sql").read_text())
            conn.execute("SELECT idem_register_action_type('refund', 'deduplicated_creation')")
            conn.execute("SELECT idem_register_action_type('entry', 'idempotent_mutation', effect => 'local')")
        yield server


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


def pgbench(server, variant, seed, seconds=None, transactions=None, clients=CLIENTS, extra=()):
    """Runs one variant and returns its transactions per second."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql", dir=server.dir) as script:
        script.write(variant.script)
        script.flush()
        length = ["-T", str(max(1, round(seconds)))] if seconds else ["-t", str(transactions)]
        command = [str(server.bindir / "pgbench"), "-n", "-M", "prepared", "-c", str(clients),
                   "-j", str(min(THREADS, clients)), *length, f"--random-seed={seed}", "-f", script.name, *extra]
        for name, value in variant.variables.items():
            command += ["-D", f"{name}={value}"]
        done = subprocess.run(command, env=server.env(), text=True, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"pgbench, {variant.name}: {done.stderr}")
    failed = re.search(r"number of failed transactions: (\d+)", done.stdout)
    if failed and int(failed[1]):
        raise RuntimeError(f"pgbench, {variant.name}: {failed[0]}\n{done.stderr}")
    return float(re.search(r"tps = ([\d.]+)", done.stdout)[1])


def rounds(server, variants, options, seed=1, before=None):
    """Runs all variants in every round, in an order that changes, and returns the figures by name.

    The first, shorter round warms up and is dropped.
    """
    figures = {variant.name: [] for variant in variants}
    for number in range(options.rounds + 1):
        # One to the left each round: every variant comes first, last, and after every other, equally often.
        turn = number % len(variants)
        for variant in variants[turn:] + variants[:turn]:
            if before:
                before(variant)
            seconds = options.seconds if number else min(2, options.seconds)
            tps = pgbench(server, variant, seed * 1000 + number, seconds)
            if number:
                figures[variant.name].append(tps)
    return figures


def quartiles(values):
    if len(values) < 2:
        return (values[0],) * 3
    return tuple(statistics.quantiles(values, n=4, method="inclusive"))


def ratios(figures, ours, other):
    """The quartiles of ours / other, round by round: what disturbed a round disturbed both."""
    return quartiles([a / b for a, b in zip(figures[ours], figures[other])])


def show(figures, unit="tps"):
    for name, values in figures.items():
        low, middle, high = quartiles(values)
        say(f"   {name:<28} {middle:>9.0f} {unit}   quartiles {low:.0f} - {high:.0f}   "
            f"raw {' '.join(f'{value:.0f}' for value in values)}")


def compare(options, figures, ours, other, what, target=None):
    low, middle, high = ratios(figures, ours, other)
    say(f"   {what}: median {middle:.3f}   quartiles {low:.3f} - {high:.3f}")
    if target is not None:
        check(options, f"{what} >= {target}", middle, middle >= target)
    return middle


def server_cpu(server):
    """CPU seconds of all sessions of the server that have ended, from the postmaster's account of its children."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def cpu_per_transaction(server, variant, seed, transactions):
    """Microseconds of the sessions' CPU time: hardly moved by what else runs on the machine, unlike tps."""
    before = server_cpu(server)
    pgbench(server, variant, seed, transactions=transactions // CLIENTS)
    return (server_cpu(server) - before) / transactions * 1e6

"""Cycle and replay in tables of ten million rows against the same in small ones, in the same rounds."""

from dataclasses import replace
from time import monotonic

from cycle import WARM_ROWS
from fill import HAND, fill, picked
from harness import Variant, check, cluster, compare, head, install, rounds, say, show
from replay import LEDGER, REPLAY, SEEDS, copy_ledger
from scripts import apart, cycles, variables

# Replays of these newest actions stay in memory; of all ten million they wait for the disk, whoever asks.
RECENT = 20_000


def run(options):
    # Filling logs nothing at this level.
    with cluster(fsync=False, wal_level="minimal", max_wal_senders=0) as server:
        server.createdb("small")
        with server.connect("small") as conn:
            install(conn)
        head(f"big: filling {options.rows:,} rows")
        began = monotonic()
        fill(server, options.rows, ("idem_action", HAND), rebuild=True)
        fill(server, WARM_ROWS, ("idem_action", HAND), dbname="small")
        for dbname, rows in (("postgres", options.rows), ("small", WARM_ROWS)):
            with server.connect(dbname) as conn:
                copy_ledger(conn, rows, RECENT)
                warm(conn)
        say(f"   filled in {monotonic() - began:.0f} s")

        head(f"cycle, two transactions, fsync off, response 300 bytes, {options.rows:,} rows and {WARM_ROWS:,}")
        compared(server, options, "cycle", cycles(apart, "refund")[:2],
                 cycles(apart, "refund")[:2], [("hand-written SQL", "hand-written SQL")])

        def replays(rows, first):
            pick, given = picked(rows, first), variables(300)
            return [Variant("pg_idem", pick + REPLAY, given), Variant("SELECT", pick + LEDGER, given),
                    Variant("SELECT, seeds", pick + SEEDS, given)]

        head(f"replay of the newest {RECENT:,} of {options.rows:,} rows and of {WARM_ROWS:,}")
        compared(server, options, "replay", replays(options.rows, options.rows - RECENT + 1),
                 replays(WARM_ROWS, WARM_ROWS - RECENT + 1),
                 [("SELECT", "SELECT of the same row"), ("SELECT, seeds", "SELECT from the seeds' table")])

        head(f"replay of any of {options.rows:,} rows: mostly waiting for pages")
        either = [variant for variant in replays(options.rows, 1) if variant.name != "SELECT"]
        figures = rounds(server, either, options, seed=5)
        show(figures)
        compare(options, figures, "pg_idem", "SELECT, seeds", "replay of any row / SELECT from the seeds' table")


def compared(server, options, what, big, small, others):
    """The ratio in big tables less that in small ones."""
    figures = rounds(server, [replace(variant, name=f"{variant.name}, big") for variant in big]
                     + [replace(variant, name=f"{variant.name}, small", dbname="small") for variant in small], options)
    show(figures)
    for other, name in others:
        large, little = (compare(options, figures, f"pg_idem, {size}", f"{other}, {size}",
                                 f"{what}, {size}, pg_idem / {name}") for size in ("big", "small"))
        check(options, f"{what} / {name}: ratio in big tables less ratio in small, >= -0.1", large - little,
              large - little >= -0.1, "{:+.3f}")


def warm(conn):
    """Reads all indexes, so that no round has to."""
    conn.execute("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
    conn.execute("""SELECT pg_prewarm(indexrelid, 'read') FROM pg_index
        WHERE indrelid IN ('idem_action'::regclass, 'ai_action_idempotency'::regclass)""")

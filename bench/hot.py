"""Share of heap-only updates, and what fillfactor does for it."""

import random

from harness import CLIENTS, check, cluster, head, pgbench, say
from scripts import apart, cycles, variables

FILLFACTORS = (25, 30, 35, 40, 50)
OUTSTANDING = 500
ACTIONS = 30_000


def run(options):
    with cluster(fsync=False) as server:
        with server.connect() as conn:
            shipped = conn.execute("""SELECT option_value::int FROM pg_class, pg_options_to_table(reloptions)
                WHERE oid = 'idem_action'::regclass AND option_name = 'fillfactor'""").fetchone()[0]
        head("HOT updates by fillfactor, response 300 bytes; * is what ships")
        for fillfactor in FILLFACTORS:
            busy, _ = measure(server, fillfactor, eight_clients)
            random_share, size = measure(server, fillfactor, outstanding)
            fifo_share, _ = measure(server, fillfactor, lambda server: outstanding(server, fifo=True))
            mark = "*" if fillfactor == shipped else " "
            say(f"   fillfactor {fillfactor}{mark}: 8 clients {busy:7.2%}, {OUTSTANDING} outstanding ended in random "
                f"order {random_share:7.2%}, oldest first {fifo_share:7.2%}, heap {size:.0f} B an action")
            if fillfactor == shipped:
                check(options, "HOT at 8 clients >= 99 %", busy, busy >= 0.99, "{:.2%}")
                check(options, f"HOT with {OUTSTANDING} outstanding >= 95 %", min(random_share, fifo_share),
                      min(random_share, fifo_share) >= 0.95, "{:.2%}")


def measure(server, fillfactor, work):
    with server.connect() as conn:
        conn.execute("TRUNCATE idem_action, idem_open")
        conn.execute(f"ALTER TABLE idem_action SET (fillfactor = {fillfactor})")
        conn.execute("SELECT pg_stat_reset()")
        work(server)
        # Sessions report their counters when they end, at the latest.
        conn.execute("SELECT pg_stat_force_next_flush()")
        updates, hot = conn.execute("""SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
            WHERE relname = 'idem_action'""").fetchone()
        size, rows = conn.execute("SELECT pg_table_size('idem_action'), count(*) FROM idem_action").fetchone()
    assert updates >= ACTIONS * 0.9, updates
    return hot / updates, size / rows


def eight_clients(server):
    pgbench(server, cycles(apart, "refund")[0], seed=5, transactions=ACTIONS // CLIENTS)


def outstanding(server, fifo=False):
    """Eight sessions that keep OUTSTANDING reservations open between them and end the oldest, or any."""
    given = variables(300)
    chance = random.Random(7)
    sessions = [server.connect() for _ in range(8)]
    open_actions = []
    for n in range(ACTIONS + OUTSTANDING):
        conn = sessions[n % 8]
        open_actions.append(conn.execute("SELECT action_id, attempt_id FROM idem_reserve(%s, %s, 'acme', 'refund')",
                                         (str(chance.getrandbits(60)), given["request"]), prepare=True).fetchone())
        if len(open_actions) > OUTSTANDING:
            ended = open_actions.pop(0 if fifo else chance.randrange(len(open_actions)))
            conn.execute("SELECT idem_commit(%s, %s, %s, %s)", (*ended, given["response"], given["resource"]),
                         prepare=True)
    for conn in sessions:
        conn.close()

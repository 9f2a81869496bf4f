"""Debezium's outbox event router on an outbox as it is, with the settings that the README gives."""

import json
import re
import subprocess
import sys
from pathlib import Path

from cluster import Cluster
from sessions import in_background, row, value, wait_until

ROOT = Path(__file__).resolve().parents[2]


def documented():
    """The README's connector settings, and its CREATE PUBLICATION."""
    section = (ROOT / "README.md").read_text().partition("### Change data capture\n")[2].partition("\n### ")[0]
    [settings] = re.findall(r"```ini\n(.*?)```", section, re.S)
    [publication] = re.findall(r"```txt\n(.*?)```", section, re.S)
    return dict(line.split(" = ") for line in settings.splitlines()), publication


def test_the_outbox_event_router_routes_an_outbox_as_it_is():
    """Whatever relays do with the rows, each message comes out once, with its id, under its aggregate, unchanged."""
    settings, publication = documented()
    with Cluster(settings={"fsync": False, "wal_level": "logical"}, preload=False) as cluster, cluster.connect() as conn:
        conn.execute("CREATE EXTENSION pg_idem")
        conn.execute("SELECT idem_create_outbox('orders')")
        conn.execute(publication)
        settings |= {"database.hostname": "127.0.0.1", "database.port": str(cluster.port), "database.user": "postgres",
                     "database.password": "none", "database.dbname": "postgres"}
        with subprocess.Popen([sys.executable, ROOT / "tests/debezium.py", json.dumps(settings)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as engine:
            try:
                capture(conn, engine)
            finally:
                engine.kill()


def capture(conn, engine):
    complaints = in_background(engine.stderr.read)

    def is_reading():
        assert engine.poll() is None, complaints.result(10)[-4000:]
        return value(conn, "SELECT count(*) = 1 FROM pg_replication_slots WHERE active")

    def put(n):
        return str(value(conn, "SELECT idem_outbox_put('orders', 'made', 'purchase', %s, '{\"total\": 99.90}')", (n,)))

    def routed():
        """The next change."""
        # Between them may stand what the engine has to say.
        return json.loads(in_background(lambda: next(line for line in engine.stdout if line.startswith("{"))).result(30))

    def expect(id, n):
        got = routed()
        assert got["headers"]["id"] == id
        assert (got["destination"], got["key"], got["value"]) == ("outbox.event.purchase", n, '{"total": 99.90}')

    wait_until(is_reading, 120)
    # Acknowledged, so updated and deleted, before the next one is put.
    first = put("1")
    claimed = row(conn, "SELECT * FROM idem_outbox_claim('orders')")
    assert value(conn, "SELECT idem_outbox_ack('orders', %s, %s)", (claimed.id, claimed.claim_id)) == "acked"
    second = put("2")
    expect(first, "1")
    expect(second, "2")
    # Where updates and deletes are published, too, the router passes by them.
    conn.execute("ALTER PUBLICATION orders_messages SET (publish = 'insert, update, delete')")
    claimed = row(conn, "SELECT * FROM idem_outbox_claim('orders')")
    assert value(conn, "SELECT idem_outbox_ack('orders', %s, %s)", (claimed.id, claimed.claim_id)) == "acked"
    # Put and removed in one transaction: the table stays empty, and the message comes out.
    with conn.transaction():
        third = put("3")
        conn.execute("DELETE FROM orders")
    expect(third, "3")

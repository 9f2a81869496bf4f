"""An outbox as a source of change data capture: what pgoutput sends of it is what Debezium's outbox event router reads."""

import json
import struct

import pytest
from psycopg.types.json import Jsonb

from cluster import Cluster
from sessions import commit, end, reserve, rows, value

ROUTED = ["id", "aggregatetype", "aggregateid", "type", "payload"]


@pytest.fixture(scope="module")
def cdc():
    """A session in a database whose outbox is published."""
    with Cluster(settings={"fsync": False, "wal_level": "logical"}, preload=False) as cluster:
        cluster.createdb("cdc")
        with cluster.connect("cdc") as conn:
            conn.execute("CREATE EXTENSION pg_idem; CREATE SCHEMA app")
            conn.execute("SELECT idem_create_outbox('app.outbox')")
            conn.execute("CREATE PUBLICATION outbox FOR TABLE app.outbox WITH (publish = 'insert')")
            conn.execute("SELECT pg_create_logical_replication_slot('outbox', 'pgoutput')")
            yield conn


def changes(conn):
    """The inserts since the last call, as dicts (protocol: "Logical Replication Message Formats")."""
    columns, found = {}, []
    for [data] in rows(conn, """SELECT data FROM pg_logical_slot_get_binary_changes('outbox', NULL, NULL,
            'proto_version', '1', 'publication_names', 'outbox')"""):
        data = bytes(data)
        kind, body = data[:1], data[1:]
        if kind == b"R":
            relation, body = body[:4], body[4:]
            for _ in "ns":  # schema and table
                _, _, body = body.partition(b"\0")
            (count,), body, names = struct.unpack("!h", body[1:3]), body[3:], []
            for _ in range(count):
                name, _, body = body[1:].partition(b"\0")
                names.append(name.decode())
                body = body[8:]
            columns[relation] = names
        elif kind == b"I":
            names, body, values = columns[body[:4]], body[7:], []
            for _ in names:
                if body[:1] == b"t":
                    (length,) = struct.unpack("!i", body[1:5])
                    values.append(body[5:5 + length].decode())
                    body = body[5 + length:]
                else:
                    values.append(None)
                    body = body[1:]
            found.append(dict(zip(names, values)))
        else:
            assert kind in (b"B", b"C"), kind
    return found


def put(conn, n):
    return str(value(conn, "SELECT idem_outbox_put('app.outbox', 'created', 'order', %s, %s)", (str(n), Jsonb({"n": n}))))


def test_each_message_arrives_once_in_commit_order(cdc):
    ids = [put(cdc, n) for n in range(3)]
    with cdc.transaction(force_rollback=True):
        put(cdc, 99)
    found = changes(cdc)
    assert [{**{name: change[name] for name in ROUTED}, "payload": json.loads(change["payload"])} for change in found] == [
        {"id": id, "aggregatetype": "order", "aggregateid": str(n), "type": "created", "payload": {"n": n}}
        for n, id in enumerate(ids)]


def test_what_a_relay_does_is_not_published(cdc):
    put(cdc, 4)
    assert len(changes(cdc)) == 1
    cdc.execute("""SELECT idem_outbox_ack_many('app.outbox', claim_id, array_agg(id)) FROM idem_outbox_claim('app.outbox')
        GROUP BY claim_id""")
    assert changes(cdc) == [] and value(cdc, "SELECT count(*) FROM app.outbox") == 0


def test_a_message_removed_in_its_own_transaction_arrives(cdc):
    """Where nobody but the capture reads the outbox, this keeps it empty."""
    with cdc.transaction():
        id = put(cdc, 5)
        cdc.execute("DELETE FROM app.outbox WHERE id = %s", (id,))
    assert [change["id"] for change in changes(cdc)] == [id]


def test_all_goes_on_where_all_tables_are_published(cdc):
    """As Debezium does unless it is told otherwise. A row without an identity could not be changed any more."""
    cdc.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    cdc.execute("SELECT idem_register_action_type('safe', 'reversible')")
    commit(cdc, reserve(cdc, "committed", action_type="safe"))
    for n in range(120):
        end(cdc, "idem_mark_unknown", reserve(cdc, f"unknown {n}", action_type="safe"))
    assert value(cdc, "SELECT idem_add_up_counts()") >= 120
    cdc.execute("SELECT idem_inbox_accept('c', 'm')")
    cdc.execute("UPDATE idem_inbox SET first_seen_at = now() - interval '31 days'")
    assert value(cdc, "SELECT removed FROM idem_visit(100, 1)") == 1
    assert value(cdc, "SELECT last_error FROM idem_worker_status") is None
    assert not rows(cdc, """SELECT c.relname FROM pg_class AS c WHERE c.relkind = 'r' AND c.relname ^@ 'idem_'
        AND c.relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary)""")
    cdc.execute("DROP PUBLICATION everything")

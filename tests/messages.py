"""What writers and relays do with an outbox, for the live tests."""

from psycopg.types.json import Jsonb

from sessions import row, rows, value


def put(conn, outbox, aggregateid="1", payload=None, **named):
    named = {"outbox": outbox, "type": "t", "aggregatetype": "a", "aggregateid": str(aggregateid),
             "payload": Jsonb({} if payload is None else payload), **named}
    arguments = ", ".join(f"{name} => %({name})s" for name in named)
    return value(conn, f"SELECT idem_outbox_put({arguments})", named)


def put_many(conn, outbox, *messages):
    messages = [{"type": "t", "aggregatetype": "a", "aggregateid": str(aggregate), "payload": payload}
                for aggregate, payload in messages]
    return [found.id for found in rows(conn, "SELECT id FROM idem_outbox_put_many(%s, %s)", (outbox, Jsonb(messages)))]


def claim(conn, outbox, max=10, lease=30.0):
    return rows(conn, "SELECT * FROM idem_outbox_claim(%s, %s, %s)", (outbox, max, lease))


def ack(conn, outbox, claimed):
    ids = [message.id for message in claimed]
    if not ids:
        return []
    return [found.outcome for found in rows(conn, "SELECT outcome FROM idem_outbox_ack_many(%s, %s, %s)",
                                            (outbox, claimed[0].claim_id, ids))]


def nack(conn, outbox, message, delay=0.0, **named):
    return value(conn, "SELECT idem_outbox_nack(%s, %s, %s, %s, %s, %s)",
                 (outbox, message.id, message.claim_id, named.get("error", "no"), named.get("proof"), delay))


def request(conn, name, key, action_type="refund"):
    """A business transaction that asks for an action and leaves it to the relay."""
    with conn.transaction():
        got = row(conn, "SELECT * FROM idem_reserve(%s, '{}', action_type => %s)", (key, action_type))
        put(conn, name, action_id=got.action_id)
    return got.action_id


def state(conn, action_id):
    return value(conn, "SELECT state FROM idem_status_by_id(%s)", (action_id,))

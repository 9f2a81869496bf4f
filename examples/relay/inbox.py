"""What the consumers here have in common: a message is handled once, however often it is delivered.

`handle` accepts it and does the work in one transaction: when that is rolled back, the message is new at the next
delivery. The tables `delivery` and `effect` are those of our tests; put your own work in their place.
"""

import os

import psycopg


ACCEPT = """SELECT decision, (%(message)s::jsonb ->> 'timestamp')::timestamptz
        < clock_timestamp() - current_setting('pg_idem.inbox_retention')::interval AS is_old
    FROM idem_inbox_accept('consumer', %(id)s, %(message)s)"""


def handle(message_id, message):
    """Handles a message, given as JSON text, unless it was handled before.

    Says `new`, `duplicate`, `conflict`, or `too_old`: it is older than what the inbox remembers, so that nobody knows.
    """
    with psycopg.connect(os.environ["DATABASE_URL"]) as conn:
        decision, is_old = conn.execute(ACCEPT, {"id": message_id, "message": message}).fetchone()
        if decision == "new" and is_old:
            conn.rollback()
            decision = "too_old"
        conn.execute("INSERT INTO delivery (message_id, decision) VALUES (%s, %s)", (message_id, decision))
        if decision == "new":
            conn.execute("INSERT INTO effect (message_id, data) VALUES (%s, %s::jsonb -> 'data')", (message_id, message))
    return decision

"""What the consumers here have in common: a message is handled once, however often it is delivered.

`handle` accepts it and does the work in one transaction: when that is rolled back, the message is new at the next
delivery. The tables `delivery` and `effect` are those of our tests; put your own work in their place.
"""

import os

import psycopg


def handle(message_id, message):
    """Handles a message, given as JSON text, unless it was handled before. Says `new`, `duplicate` or `conflict`."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as conn:
        decision, _ = conn.execute("SELECT * FROM idem_inbox_accept('consumer', %s, %s)", (message_id, message)).fetchone()
        conn.execute("INSERT INTO delivery (message_id, decision) VALUES (%s, %s)", (message_id, decision))
        if decision == "new":
            conn.execute("INSERT INTO effect (message_id, data) VALUES (%s, %s::jsonb -> 'data')", (message_id, message))
    return decision

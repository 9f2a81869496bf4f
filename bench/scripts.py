"""The pgbench scripts. Both sides of a comparison make the same number of round trips with the same key.

pgbench takes :word for a variable inside a string too, so documents are passed with -D. A key is a number drawn from
so wide a range that two are never the same, sent as text like everything a prepared statement gets.
"""

from harness import FINGERPRINT, REQUEST, Variant, document

KEY = "\\set key random(1, 4000000000000000000)\n"

RESERVE = "SELECT * FROM idem_reserve(:key, :request, 'acme', '{type}') \\gset r_\n"
COMMIT = "SELECT idem_commit(:r_action_id, :r_attempt_id, :response, :resource);\n"

INSERT = """INSERT INTO ai_action_idempotency
 (tenant_id, idempotency_key, action_type, request_fingerprint, status, created_at, expires_at)
 VALUES ('acme', :key, '{type}', :fingerprint, 'started', now(), now() + interval '30 days') ON CONFLICT DO NOTHING;
"""
UPDATE = """UPDATE ai_action_idempotency SET status = 'committed', response_json = :response, resource_id = :resource
 WHERE tenant_id = 'acme' AND idempotency_key = :key AND status = 'started';
"""
HAND_RESERVE = "SELECT * FROM hand_reserve(:key, :request, 'acme', '{type}') \\gset r_\n"
HAND_COMMIT = "SELECT hand_commit(:key, 'acme', :response, :resource);\n"


def together(*statements):
    return KEY + "BEGIN;\n" + "".join(statements) + "COMMIT;\n"


def apart(*statements):
    return KEY + "".join(statements)


def variables(response_size):
    return {"request": REQUEST, "response": document(response_size, status='"succeeded"'),
            "resource": "re_1PqXyz", "fingerprint": FINGERPRINT}


def cycles(join, type, response_size=300):
    """The three ways to reserve and commit: pg_idem, by hand, by hand in functions."""
    given = variables(response_size)
    return [
        Variant("pg_idem", join(RESERVE.format(type=type), COMMIT), given),
        Variant("hand-written SQL", join(INSERT.format(type=type), UPDATE), given),
        Variant("PL/pgSQL functions", join(HAND_RESERVE.format(type=type), HAND_COMMIT), given),
    ]

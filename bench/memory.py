"""What a session's memory grows by in one long transaction.

PostgreSQL itself keeps a combo command id, some tens of bytes, for every row that one transaction inserts and then
updates, by whatever SQL: the same work by hand is measured beside each figure.
"""

from harness import check, cluster, head, say
from scripts import variables

FEW, MANY = 10_000, 1_000_000
TARGET = 8  # MB

# In one statement, so that nothing is given back in between; the function reads the process's own account.
PROGRAM = """
CREATE FUNCTION anonymous_kb() RETURNS int LANGUAGE sql AS $$
  SELECT substring(pg_read_file('/proc/self/status') FROM 'RssAnon:\\s+(\\d+)')::int $$;
CREATE TABLE grown (kb int);
"""
LOOP = """
DO $$ DECLARE r record; few int; BEGIN
  FOR n IN 1..{many} LOOP
    {work}
    IF n = {few} THEN few := anonymous_kb(); END IF;
  END LOOP;
  INSERT INTO grown SELECT anonymous_kb() - few;
END $$
"""
INSERT = """INSERT INTO ai_action_idempotency
  (tenant_id, idempotency_key, action_type, request_fingerprint, status, created_at, expires_at)
  VALUES ('acme', {key}, 'entry', '{fingerprint}', 'started', now(), now() + interval '30 days') ON CONFLICT DO NOTHING;
"""
UPDATE = """UPDATE ai_action_idempotency SET status = 'committed', response_json = '{response}', resource_id = '{resource}'
  WHERE tenant_id = 'acme' AND idempotency_key = {key} AND status = 'started';
"""
RESERVE = "SELECT * INTO r FROM idem_reserve({key}, '{request}', 'acme', 'entry');\n"
COMMIT = "PERFORM idem_commit(r.action_id, r.attempt_id, '{response}', '{resource}');\n"
WORK = {
    "replays": (RESERVE.replace("{key}", "'done'"),
                "SELECT * INTO r FROM ai_action_idempotency WHERE tenant_id = 'acme' AND idempotency_key = 'done';\n"),
    "reserves alone": (RESERVE, INSERT),
    "reserves and commits": (RESERVE + COMMIT, INSERT + UPDATE),
}


def run(options):
    given = {**variables(300), "key": "(n::bigint * 6180347)::text"}
    done = {**given, "key": "'done'"}
    with cluster(fsync=False) as server:
        with server.connect() as conn:
            conn.execute(PROGRAM)
            for cycle in (RESERVE + COMMIT, INSERT + UPDATE):
                conn.execute(f"DO $$ DECLARE r record; BEGIN {cycle.format(**done)} END $$")
        for what, (ours, by_hand) in WORK.items():
            head(f"memory, {MANY:,} {what} in one transaction")
            hand = grown(server, by_hand.format(**given))
            mine = grown(server, ours.format(**given))
            say(f"   anonymous memory between {FEW:,} calls and {MANY:,}: pg_idem {mine:+.1f} MB, by hand {hand:+.1f} MB")
            check(options, f"growth over {what}, MB, <= {TARGET}", mine, mine <= TARGET, "{:.1f}")
            if hand > 1:
                check(options, f"the same beyond what it costs by hand, MB, <= {TARGET}", mine - hand,
                      mine - hand <= TARGET, "{:.1f}")


def grown(server, work):
    """MB that a session of its own grew by."""
    with server.connect() as conn:
        conn.execute("SET pg_idem.same_transaction = allow")
        # The plan is made while the table is next to empty, and kept.
        conn.execute("SET enable_seqscan = off")
        conn.execute(LOOP.format(many=MANY, few=FEW, work=work))
        kb = conn.execute("DELETE FROM grown RETURNING kb").fetchone()[0]
        conn.execute("DELETE FROM ai_action_idempotency WHERE idempotency_key <> 'done'")
        conn.execute("DELETE FROM idem_action WHERE key <> 'done'")
        conn.execute("VACUUM idem_action, ai_action_idempotency")
    return kb / 1024

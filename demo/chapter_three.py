"""Chapter three: an approved vendor request becomes a purchasing task, once, although its relay is killed."""

from stage import request

KEY = "vendor_request:77:task"
OUTBOX = "public.purchasing"
OF = {"vendor_request": "77"}
# Seconds that a relay has for one message.
LEASE = "3"


def play(stage):
    stage.begin(
        "three", "A task for another department",
        "A vendor request is approved here, and the purchasing system makes a task of it. If one of the two is lost,",
        "or the task is made twice, somebody pays for it. The message leaves by an outbox; a relay carries it out.")
    stage.sql("CREATE TABLE vendor_request (id int PRIMARY KEY, vendor text, amount numeric, status text);\n"
              "INSERT INTO vendor_request VALUES (77, 'Acme', 1200, 'open');")
    stage.sql(f"SELECT idem_create_outbox('{OUTBOX}', keep_delivered => '1 day');")
    stage.sql("SELECT name, class FROM idem_register_action_type(name => 'purchasing_task',\n"
              "    class => 'deduplicated_creation', settle_delay => '1 s', probe_interval => '1 s',\n"
              "    lookup_hint => 'GET /tasks?client_reference={action_id}');")
    approved(stage)
    first = killed_relay(stage)
    second = another_relay(stage)
    resolved(stage, second)
    stage.expect("tasks asked for", [posts(relay) for relay in (first, second)], [1, 0])


def approved(stage):
    stage.scene(
        "(a) Approved, and handed over, in one transaction",
        "The request, the action and the message are committed together or not at all. The message carries the",
        "action: the transaction gives up the attempt that it reserved, and a relay is granted the next one.")
    task = request(1200, vendor_request="77")
    stage.sql("BEGIN;")
    stage.sql("UPDATE vendor_request SET status = 'approved' WHERE id = 77;")
    action, = stage.sql(f"SELECT action_id FROM idem_reserve(key => '{KEY}',\n"
                        f"    request => '{task}', action_type => 'purchasing_task');")
    stage.sql(f"SELECT idem_outbox_put('{OUTBOX}', type => 'create_task',\n"
              f"    aggregatetype => 'vendor_request', aggregateid => '77',\n"
              f"    payload => '{task}',\n"
              f"    action_id => '{action['action_id']}');")
    stage.sql("COMMIT;")
    end(stage, "(a) handed over", tasks=0, state="retryable", attempt=1)


def killed_relay(stage):
    stage.scene(
        "(b) The relay is killed after the purchasing system committed",
        "It has claimed the message, and the task is made. The relay dies before it can say so.")
    stage.behave("block")
    relay = start_relay(stage, "relay 1")
    stage.eventually(lambda: stage.count("tasks", OF) >= 1)
    stage.kill(relay)
    stage.expect("claims", relay.answers("attempt"), [1])
    end(stage, "(b) relay killed", tasks=1, state="started")
    return relay


def another_relay(stage):
    stage.scene(
        "(c) Another relay takes over",
        "The claim of the first runs out. But the task may have been made, so the second gets nothing to send: the",
        "action is unknown, and the message waits.")
    relay = start_relay(stage, "relay 2")
    stage.eventually(lambda: state(stage) == "unknown")
    end(stage, "(c) taken over", tasks=1, state="unknown")
    return relay


def resolved(stage, relay):
    stage.scene(
        "(d) The action is resolved, and the message with it",
        "A reconciler finds the task. The relay, which has kept asking, takes the message as delivered.")
    reconciler = stage.actor("reconciler", "reconciler.py", "--dsn", stage.dsn(), "--type", "purchasing_task")
    reconciler.finish()
    stage.expect("states", reconciler.answers("state"), ["committed"])
    stage.eventually(lambda: quietly(stage, f"SELECT delivered_at IS NOT NULL AS is_so FROM {OUTBOX}")["is_so"])
    relay.kill()
    stage.sql(f"SELECT type, aggregateid, attempts, delivered_at IS NOT NULL AS delivered\nFROM {OUTBOX};")
    stage.sql("SELECT id, vendor, status FROM vendor_request;")
    stage.sql(f"SELECT attempt, event, detail FROM idem_trace('{KEY}');")
    end(stage, "(d) resolved", tasks=1)


def start_relay(stage, name):
    return stage.actor(name, "relay.py", "--path", "/tasks", "--dsn", stage.dsn(), "--outbox", OUTBOX,
                       "--lease", LEASE, "--name", name)


def posts(relay):
    return sum(event.get("do", "").startswith("POST") for event in relay.events)


def state(stage):
    return quietly(stage, f"SELECT state FROM idem_status('{KEY}')")["state"]


def quietly(stage, query):
    """The row of a query that belongs to the play's machinery, not to the play."""
    return stage.session().execute(query).fetchone()


def end(stage, scene, tasks, state="committed", attempt=2):
    stage.end(scene, OF, {"tasks": tasks}, key=KEY, state=state, attempt=attempt)

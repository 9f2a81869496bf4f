"""Chapter two: a large refund. Approved, changed, refused, timed out, reconciled, compensated; and its whole story."""

from stage import request

LARGE = "refund.large"


def play(stage):
    stage.begin(
        "two", "A refund that a person has to approve",
        "An agent asks for refunds, finance approves them, a reconciler finds out what became of them, an operator",
        "puts right what was wrong. Each logs in with a role of its own, which may do just that.")
    stage.sql("CREATE ROLE agent LOGIN; CREATE ROLE finance LOGIN;\n"
              "CREATE ROLE reconciler LOGIN; CREATE ROLE operator LOGIN;")
    stage.sql("SELECT idem_grant('agent', 'execute') AS agent, idem_grant('finance', 'approve') AS finance,\n"
              "    idem_grant('reconciler', 'reconcile') AS reconciler,\n"
              "    idem_grant('operator', 'operate', 'execute') AS operator;")
    # A second each, for the sake of the play.
    stage.sql("SELECT name, class, requires_approval, marks_dispatch, probes_required\n"
              f"FROM idem_register_action_type(name => '{LARGE}', class => 'reversible',\n"
              "    requires_approval => true, settle_delay => '1 s', probe_interval => '1 s',\n"
              "    compensation_type => 'charge',\n"
              "    lookup_hint => 'GET /refunds?client_reference={action_id}');")
    stage.sql("SELECT name, class\nFROM idem_register_action_type(name => 'charge', class => 'deduplicated_creation');")
    approved(stage)
    changed(stage)
    refused(stage)
    timed_out(stage)
    reconciled(stage)
    never_arrived(stage)
    compensated(stage)
    story(stage)


def approved(stage):
    stage.scene(
        "(a) Proposed and approved",
        "Asking for it only records it. Finance sees the request, and approves this fingerprint and no other.")
    decisions = agent(stage, "4830").finish()
    stage.expect("decisions", decisions, ["awaiting_approval"])
    approve(stage, "4830")
    end(stage, "(a) approved", "4830", refunds=0, state="approved", attempt=0)


def changed(stage):
    stage.scene(
        "(b) The amount is changed after the approval",
        "The approval is for 900. Asking for 9000 under the same key is a conflict; the approval stays as it was.")
    decisions = agent(stage, "4830", amount=9000).finish()
    stage.expect("decisions", decisions, ["conflict"])
    end(stage, "(b) changed", "4830", refunds=0, state="approved", attempt=0)


def refused(stage):
    stage.scene(
        "(c) The changed refund comes with a key of its own, and is refused",
        "Another key is another action: it needs an approval of its own, and does not get it.")
    key = "refund:4830:again"
    first = agent(stage, "4830", amount=9000, key=key).finish()
    answer, = stage.sql("SELECT idem_reject(action_id, note => 'ten times too much') FROM idem_proposals\n"
                        f"WHERE key = '{key}';", actor="finance", user="finance")
    second = agent(stage, "4830", amount=9000, key=key).finish()
    stage.expect("decisions", [first, answer["idem_reject"], second], [["awaiting_approval"], "rejected", ["rejected"]])
    end(stage, "(c) refused", "4830", refunds=0, key=key, state="rejected", attempt=0)


def timed_out(stage):
    stage.scene(
        "(d) The approved refund times out",
        "The approval is asked for twice, at the grant and at the gate, idem_dispatch. Then the provider makes the",
        "refund, and the answer is lost. Whoever asks now is told that nobody knows.")
    stage.behave("drop")
    decisions = agent(stage, "4830").finish()
    answer, = stage.sql(f"SELECT granted, decision, state FROM idem_reserve(key => 'refund:4830',\n"
                        f"    request => '{request(900, order='4830')}', action_type => '{LARGE}');",
                        actor="agent", user="agent")
    stage.expect("decisions", [decisions, answer["decision"]], [["execute"], "unknown"])
    end(stage, "(d) timed out", "4830", refunds=1, state="unknown")


def reconciled(stage):
    stage.scene(
        "(e) It is reconciled",
        "A reconciler takes what is unknown, asks the provider, and reports. One look at the refund is proof enough.")
    stage.expect("states", reconcile(stage).answers("state"), ["committed"])
    end(stage, "(e) reconciled", "4830", refunds=1)


def never_arrived(stage):
    stage.scene(
        "(f) The same silence, but the request never arrived",
        "The client sees what it saw before. Not to find a refund proves little, it may still come: a look before",
        "the lease and the settle_delay are over does not count, and of later ones two have to agree. Then it is",
        "certain, and the approved refund is sent again, with the provider_key of before.")
    first = agent(stage, "4831").finish()
    approve(stage, "4831")
    stage.behave("lose")
    second = agent(stage, "4831", "--lease", "4").finish()
    reconciler = reconcile(stage)
    third = agent(stage, "4831").finish()
    stage.expect("decisions", [first, second, third[-1]], [["awaiting_approval"], ["execute"], "execute"])
    stage.expect("states", reconciler.answers("state"), ["unknown", "retryable"])
    stage.expect("looks that counted before the last", reconciler.answers("probes")[-1], 1)
    end(stage, "(f) never arrived", "4831", refunds=1, attempt=2)


def compensated(stage):
    stage.scene(
        "(g) The first refund was a mistake, and is compensated",
        "What was done is not undone. A new action offsets it, once; the original stays as it was.")
    parent, = stage.sql("SELECT action_id FROM idem_status('refund:4830');", actor="operator", user="operator")
    charged = request(900, order="4830")
    decisions = stage.worker("operator", "charge:4830", charged, "--path", "/charges", "--cannot-reconcile",
                             "--compensates", str(parent["action_id"]), user="operator").finish()
    refusal = stage.sql(f"SELECT * FROM idem_compensate('{parent['action_id']}',\n"
                        f"    'charge:4830:again', '{charged}');", actor="operator", user="operator")
    stage.expect("decisions", [decisions, refusal], [["execute"], "ID003"])
    both, = stage.sql("SELECT key, state, resource_id, compensation_key, compensation_state\n"
                      "FROM idem_compensations WHERE key = 'refund:4830';")
    stage.expect("states", (both["state"], both["compensation_state"]), ("committed", "committed"))
    stage.end("(g) compensated", {"order": "4830"}, {"refunds": 1, "charges": 1}, key="charge:4830")


def story(stage):
    stage.scene(
        "The story of the first refund, as the ledger tells it",
        "Fit for a report: no request, no response, no token.")
    told = stage.sql("SELECT attempt, event, detail FROM idem_trace('refund:4830');")
    events = [line["event"] for line in told]
    stage.expect("events", [event for event in events if event in ("approved", "unknown", "applied", "compensation")],
                 ["approved", "unknown", "applied", "compensation"])


def agent(stage, order, *options, amount=900, key=None):
    return stage.worker("agent", key or f"refund:{order}", request(amount, order=order), "--type", LARGE,
                        "--cannot-reconcile", *options, user="agent")


def approve(stage, order):
    proposal, = stage.sql("SELECT action_id, key, request, proposer_role, fingerprint::text FROM idem_proposals\n"
                          f"WHERE key = 'refund:{order}';", actor="finance", user="finance")
    answer, = stage.sql(f"SELECT idem_approve('{proposal['action_id']}',\n    '{proposal['fingerprint']}',\n"
                        "    note => 'the parcel came back');", actor="finance", user="finance")
    stage.expect("answer", answer["idem_approve"], "approved")


def reconcile(stage):
    """Has a reconciler find out about the one unknown refund."""
    reconciler = stage.actor("reconciler", "reconciler.py", "--dsn", stage.dsn("reconciler"), "--type", LARGE)
    reconciler.finish()
    return reconciler


def end(stage, scene, order, refunds, key=None, state="committed", attempt=1):
    stage.end(scene, {"order": order}, {"refunds": refunds}, key=key or f"refund:{order}", state=state, attempt=attempt)

"""Chapter one: what goes wrong when a refund is retried, and what becomes of it with a ledger."""

from stage import request


def play(stage):
    stage.begin(
        "one", "What can go wrong with one refund",
        "The provider stores a refund before it answers. It ignores idempotency keys; it can only be asked what it",
        "did.")
    stage.sql("SELECT name, class, policy_version\n"
              "FROM idem_register_action_type(name => 'refund', class => 'deduplicated_creation');")
    naive(stage)
    dropped_answer(stage)
    two_at_once(stage)
    killed_worker(stage)
    double_click(stage)
    reordered_fields(stage)
    changed_amount(stage)


def naive(stage):
    stage.scene(
        "A naive retry",
        "The provider makes the refund, then the connection closes before the answer. The client tries again.")
    stage.behave("drop")
    stage.actor("client", "worker.py", "--naive", "--request", request(50, order="4820")).finish()
    stage.end("naive retry", {"order": "4820"}, {"refunds": 2})


def dropped_answer(stage):
    stage.scene(
        "(a) The provider commits, the connection closes before the answer",
        "The same accident. No answer is not a failure: the action is unknown, and whoever tries next is told to",
        "find out what happened instead of sending again.")
    stage.behave("drop")
    first = worker(stage, "worker 1", "4821").finish()
    second = worker(stage, "worker 2", "4821").finish()
    stage.expect("decisions", [first, second], [["execute"], ["reconcile"]])
    end(stage, "(a) answer lost", "4821")


def two_at_once(stage):
    stage.scene(
        "(b) Two workers get the same key at once",
        "Both start on the same signal. One is granted the action; the other waits for its outcome.")
    stage.behave("block")
    workers = [worker(stage, name, "4822", "--on-your-marks") for name in ("worker 1", "worker 2")]
    for one in workers:
        one.wait_for(lambda: one.events)
    for one in workers:
        one.go()
    # The provider holds its answer until both workers know where they stand, so that they really overlap.
    for one in workers:
        one.wait_for(lambda: one.answers("decision"))
    stage.eventually(lambda: stage.count("refunds", {"order": "4822"}) >= 1)
    stage.ask("/release", {})
    decisions = sorted(one.finish() for one in workers)
    stage.expect("decisions", decisions, [["execute"], ["pending", "replay"]])
    end(stage, "(b) two at once", "4822")


def killed_worker(stage):
    stage.scene(
        "(c) The worker is killed after the provider committed",
        "Its lease of two seconds runs out. That is no permission to send again, only to find out what happened.")
    stage.behave("block")
    first = worker(stage, "worker 1", "4823", "--lease", "2")
    stage.eventually(lambda: stage.count("refunds", {"order": "4823"}) >= 1)
    stage.kill(first)
    second = worker(stage, "worker 2", "4823", "--lease", "2").finish()
    # On a busy machine the lease may be over before the second worker asks; it is not told to wait then.
    stage.expect("decisions", [first.answers("decision"), second[-1]], [["execute"], "reconcile"])
    end(stage, "(c) worker killed", "4823")


def double_click(stage):
    stage.scene(
        "(d) The user clicks twice",
        "The second click gets the stored answer of the first. Nothing is sent.")
    first = worker(stage, "click 1", "4824").finish()
    second = worker(stage, "click 2", "4824").finish()
    stage.expect("decisions", [first, second], [["execute"], ["replay"]])
    end(stage, "(d) two clicks", "4824")


def reordered_fields(stage):
    stage.scene(
        "(e) The model sends the fields in another order",
        "The same refund again, other spelling: order of members, white space, 50.00 for 50. It is the same request.")
    decisions = stage.worker("worker", "refund:4824", '{ "order":"4824",  "amount":50.00 }').finish()
    stage.expect("decisions", decisions, ["replay"])
    end(stage, "(e) fields reordered", "4824")


def changed_amount(stage):
    stage.scene(
        "(f) The amount is changed under the same key",
        "Not the same request, so not an answer to it either: a conflict, and nothing is sent.")
    decisions = stage.worker("worker", "refund:4824", request(500, order="4824")).finish()
    stage.expect("decisions", decisions, ["conflict"])
    end(stage, "(f) amount changed", "4824")


def worker(stage, name, order, *options):
    return stage.worker(name, f"refund:{order}", request(50, order=order), *options)


def end(stage, scene, order):
    stage.end(scene, {"order": order}, {"refunds": 1}, key=f"refund:{order}")

"""Nothing is lost when the postmaster, a backend or the clients are killed under load, or a primary whose synchronous
standby takes over; and the checker can tell.

The machinery is tests/crash; `make crash` runs 500 rounds of each.
"""

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parent.parent / "crash/run.py"


def crash(*arguments):
    """The run's exit status and what it printed."""
    done = subprocess.run([sys.executable, RUN, *arguments], capture_output=True, text=True, timeout=900)
    assert done.returncode in (0, 1) and not done.stderr, done.stdout[-2000:] + done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("kill, rounds", [("postmaster", 20), ("primary", 3), ("backend", 20), ("client", 20)])
def test_no_promise_is_broken(capsys, kill, rounds):
    """Journals, provider, business rows and ledger agree after each round; in the end nothing is open."""
    status, said = crash("--kill", kill, "--rounds", str(rounds))
    with capsys.disabled():
        print("\n" + said.splitlines()[-1])
    assert status == 0, said


@pytest.mark.parametrize("clients, found", [("Naive", "2 effects"), ("Deaf", "effects"), ("Hasty", "2 effects"),
                                            ("OneTransaction", "effects")])
def test_clients_that_get_it_wrong_are_found_out(clients, found):
    """Each makes a mistake that is made out there; see its docstring."""
    status, said = crash("--clients", clients, "--rounds", "20")
    assert status == 1 and found in said.splitlines()[-1], said


@pytest.mark.parametrize("setup, sabotage, found", [
    ("ALTER TABLE business SET UNLOGGED", "", "committed without an effect"),
    ("", "DELETE FROM idem_action WHERE key = (SELECT min(key) FROM idem_action WHERE state = 'c')", "is lost"),
    ("", "UPDATE idem_action SET response = '{}' WHERE key = (SELECT min(key) FROM idem_action WHERE state = 'c')",
     "response is not the one|committed row has changed"),
    ("", "UPDATE idem_action SET state = 'u' WHERE key = (SELECT min(key) FROM idem_action WHERE state = 'c')",
     "acknowledged commit is lost|committed row is gone"),
    ("", "UPDATE idem_action SET attempt_id = gen_random_uuid()", "acknowledged grant"),
    ("", "UPDATE idem_action SET fence = fence - 1000000000", "fence fell"),
    ("", "DELETE FROM business WHERE key = (SELECT min(key) FROM business)", "committed without an effect"),
    ("", "INSERT INTO business SELECT min(key), gen_random_uuid() FROM business", "2 effects"),
], ids=["unlogged", "row", "response", "state", "owner", "fence", "missing effect", "second effect"])
def test_a_server_that_forgets_is_found_out(setup, sabotage, found):
    """One thing at a time is taken away or changed behind the extension's back."""
    status, said = crash("--rounds", "20", "--kill", "postmaster" if setup else "client", "--setup", setup, "--sabotage", sabotage)
    assert status == 1 and any(words in said for words in found.split("|")), said

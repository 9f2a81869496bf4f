"""The demo shows what it says it shows, and would say so if it did not."""

import io
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import demo
from stage import Stage
from terminal import WIDTH, Terminal

CHAPTERS = {
    "Setting up": [],
    "Chapter one: ": ["A naive retry", "(a) ", "(b) ", "(c) ", "(d) ", "(e) ", "(f) "],
    "Chapter two: ": ["(a) ", "(b) ", "(c) ", "(d) ", "(e) ", "(f) ", "(g) ", "The story "],
    "Chapter three: ": ["(a) ", "(b) ", "(c) ", "(d) "],
    "What the provider counted": [],
}
# What the provider counted at the end of each scene.
COUNTS = {
    "Chapter one: ": ["2 refunds for order 4820", "1 refund for order 4821", "1 refund for order 4822",
                      "1 refund for order 4823"] + 3 * ["1 refund for order 4824"],
    "Chapter two: ": 3 * ["0 refunds for order 4830"] + 2 * ["1 refund for order 4830"] +
                     ["1 refund for order 4831", "1 refund for order 4830", "1 charge for order 4830"],
    "Chapter three: ": ["0 tasks for vendor request 77"] + 3 * ["1 task for vendor request 77"],
}
# What stood in the ledger then: key, state, attempt.
ROWS = {
    "Chapter one: ": ["refund:4821 committed 1", "refund:4822 committed 1", "refund:4823 committed 1"] +
                     3 * ["refund:4824 committed 1"],
    "Chapter two: ": 2 * ["refund:4830 approved 0"] + ["refund:4830:again rejected 0", "refund:4830 unknown 1",
                      "refund:4830 committed 1", "refund:4831 committed 2", "charge:4830 committed 1"],
    "Chapter three: ": [f"vendor_request:77:task {row}" for row in
                        ("retryable 1", "started 2", "unknown 2", "committed 2")],
}


@pytest.fixture(scope="module")
def played():
    """The demo's lines, by chapter, after it has been played once, and how long that took."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, Path(demo.__file__)], text=True, capture_output=True, timeout=240)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    chapters = {}
    for line in done.stdout.splitlines():
        if line.startswith("=== "):
            lines = chapters[next(start for start in CHAPTERS if line.startswith(f"=== {start}"))] = []
        elif chapters:
            lines.append(line)
    return chapters, seconds


def said(lines):
    return [line.partition("| ")[2] for line in lines]


def test_the_demo_has_its_chapters_and_takes_less_than_a_minute(played):
    chapters, seconds = played
    assert list(chapters) == list(CHAPTERS)
    for chapter, scenes in CHAPTERS.items():
        shown = [line for line in chapters[chapter] if line.startswith("--- ")]
        assert len(shown) == len(scenes)
        assert all(line.startswith(f"--- {start}") for line, start in zip(shown, scenes))
    *_, last = chapters["What the provider counted"]
    told = re.fullmatch(r"Every count and decision is as claimed\. The demo took ([\d.]+) s\.", last)
    assert float(told[1]) <= seconds < 60


@pytest.mark.parametrize("chapter", COUNTS)
def test_each_scene_ends_with_the_providers_count_and_the_ledgers_row(played, chapter):
    lines = said(played[0][chapter])
    assert [line for line in lines if " for order " in line or " for vendor request " in line] == COUNTS[chapter]
    rows = [lines[n + 3] for n, line in enumerate(lines) if line == "SELECT key, state, attempt, resource_id"]
    assert [" ".join(row.split()[:3]) for row in rows] == ROWS[chapter]


def test_a_refund_that_nobody_answered_is_sent_once_or_found_not_to_have_arrived(played):
    """Each POST of chapter two: the refund that was made, the one that never arrived and its second try, the charge."""
    posts = [line.split(" {")[0] for line in said(played[0]["Chapter two: "]) if line.startswith("POST ")]
    assert posts == 3 * ["POST /refunds"] + ["POST /charges"]


def test_the_task_is_asked_for_once_whoever_dies(played):
    lines = said(played[0]["Chapter three: "])
    assert sum(line.startswith("POST /tasks ") for line in lines) == 1
    assert sum(line.startswith("kill -9 ") for line in lines) == 1
    asked, = [n for n, line in enumerate(lines) if line.startswith("SELECT type, aggregateid, attempts,")]
    assert lines[asked + 3].split() == ["create_task", "77", "1", "t"]


def test_the_demo_can_be_read(played):
    text = [line for lines in played[0].values() for line in lines]
    assert not any("\033" in line for line in text), "colours are for terminals"
    assert max(map(len, text)) <= 120


def test_a_claim_that_does_not_hold_is_told():
    out = io.StringIO()
    stage = Stage(stack=None, terminal=Terminal(out))
    assert stage.expect("refunds", 1, 1) and stage.sound
    assert not stage.expect("refunds", 2, 1) and not stage.sound
    assert "NOT AS CLAIMED: refunds: 2, not 1" in out.getvalue()


def test_wide_tables_stay_readable():
    out = io.StringIO()
    terminal = Terminal(out)
    words = " ".join(["word"] * 40)
    terminal.rows("a", [{"n": 1, "text": "short"}, {"n": 2, "text": words}])
    terminal.rows("a", [{"one": "x" * 90, "other": "y" * 90}])
    lines = said(out.getvalue().splitlines())
    assert [line.split()[:2] for line in lines[:3]] == [["n", "text"], ["1", "short"], ["2", "word"]]
    assert " ".join(lines[2:-2]).split() == ["2"] + words.split()
    assert max(map(len, lines[:-2])) <= WIDTH + 2
    assert lines[-2:] == ["  one    " + "x" * 90, "  other  " + "y" * 90]

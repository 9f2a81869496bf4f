"""The demo shows what it says it shows, and would say so if it did not."""

import io
import subprocess
import sys
import time
from pathlib import Path

import demo
from terminal import Terminal

HEADINGS = ["Setting up", "A naive retry", "(a) ", "(b) ", "(c) ", "(d) ", "(e) ", "(f) ", "What the provider counted"]


def test_the_demo_holds_its_claims():
    began = time.monotonic()
    done = subprocess.run([sys.executable, Path(demo.__file__)], text=True, capture_output=True, timeout=120)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    headings = [line for line in lines if line.startswith("=== ")]
    assert len(headings) == len(HEADINGS)
    for heading, start in zip(headings, HEADINGS):
        assert heading.startswith(f"=== {start}")

    counts = [line.partition("| ")[2] for line in lines if "for order" in line]
    assert counts == ["2 refunds for order 4820", "1 refund for order 4821", "1 refund for order 4822",
                      "1 refund for order 4823"] + 3 * ["1 refund for order 4824"]
    assert sum(line.split("|")[-1].strip().startswith("refund:48") and " committed " in line for line in lines) == 6
    assert lines[-1].startswith("Every count and decision is as claimed. The demo took ")
    assert "\033" not in done.stdout, "colours are for terminals"
    assert seconds < 60


def test_a_claim_that_does_not_hold_is_told():
    out = io.StringIO()
    playing = demo.Demo(stack=None, terminal=Terminal(out))
    assert playing.expect("refunds", 1, 1) and playing.sound
    assert not playing.expect("refunds", 2, 1) and not playing.sound
    assert "NOT AS CLAIMED: refunds: 2, not 1" in out.getvalue()

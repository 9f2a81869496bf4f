"""The demonstration: what goes wrong with effects in the world, and what pg_idem makes of it, in three chapters.

Starts a throw-away cluster with the extension and a provider, each in a place of its own, then plays one accident after
the other with real processes, printing every statement as it was sent. The exit status is 0 only if each count, each
decision and each ledger row is what the text claims.
"""

import signal
import sys
import time
from contextlib import ExitStack

import chapter_one
import chapter_three
import chapter_two
from stage import Stage
from terminal import Terminal


def main():
    began = time.monotonic()
    # Lets the clean-up run where the demo is ended by a signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    terminal = Terminal()
    with ExitStack() as stack:
        stage = Stage(stack, terminal)
        terminal.chapter(
            "Setting up",
            "A throw-away PostgreSQL cluster with shared_preload_libraries = 'pg_idem', and a provider of effects.")
        stage.set_up()
        stage.sql("CREATE EXTENSION pg_idem;")
        chapter_one.play(stage)
        chapter_two.play(stage)
        chapter_three.play(stage)
    terminal.chapter("What the provider counted")
    verdict = "Every count and decision is as claimed." if stage.sound else "NOT AS CLAIMED, see above."
    terminal.summary(stage.table, f"{verdict} The demo took {time.monotonic() - began:.1f} s.", stage.sound)
    return 0 if stage.sound else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

"""Examples in Markdown: finds them, runs them, compares what they print with what the page shows.

A fenced block in one of the languages of LANGUAGES is an example and is run; a ```text block right below it is its
output. All blocks of a page run in order against one database, the SQL ones in one psql session, so a page can use
what it made further up. Fences in other languages fail, except `console` and `ini` (read, not run) and `txt`.

What differs from run to run is compared by shape: see `same`. A random uuid that the page shows stands for the one
that was printed in its place, also in the SQL below it.
"""

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import node

LANGUAGES = ("sql", "python", "javascript", "sh")
NOT_RUN = ("console", "ini", "txt")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TOKEN = re.compile(
    rf"(?P<uuid>{_UUID})"
    r"|(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[+-]\d\d)"
    r"|(?P<number>\b\d+\.\d{3,}\b)"
    r"|(?P<fence>\b\d{16}\b)"
    r"|(?P<rule>[-+]{4,})"
    r"|(?P<word>\S+?(?=[-+]{4,}|\s|$|" + _UUID + r"))")


class Example(NamedTuple):
    line: int
    language: str
    source: str
    output: str | None

    def __str__(self):
        return f"line {self.line} ({self.language})"


def read(page):
    """The examples of a page, in order."""
    text = page.read_text()
    fences = [(match.start(), match.end(), match[1], match[2]) for match in _FENCE.finditer(text)]
    found = []
    for n, (start, end, language, source) in enumerate(fences):
        line = text.count("\n", 0, start) + 1
        if language in LANGUAGES:
            below = fences[n + 1] if n + 1 < len(fences) else None
            output = below[3] if below and below[2] == "text" and not text[end:below[0]].strip() else None
            found.append(Example(line, language, source, output))
        elif language == "text":
            above = fences[n - 1] if n else None
            assert above and above[2] in LANGUAGES and not text[above[1]:start].strip(), f"line {line}: output of what?"
        else:
            assert language in NOT_RUN, f"line {line}: a fence in the language {language!r} is not run"
    return found


def tokens(text):
    """What a text consists of when the width of columns does not matter."""
    return [(match.lastgroup, match[0]) for match in _TOKEN.finditer(text)]


def same(shown, printed, names):
    """Whether an output is the one shown. `names` maps each random uuid shown to the one it stands for.

    Equal are: random uuids, as long as each stands for one and the same other (one that is computed, of version 8, is
    compared as it is); any two timestamps; any two fences; numbers of seconds with a fraction that are less than 2
    apart; lines under headings, of any length.
    """
    shown, printed = tokens(shown), tokens(printed)
    if len(shown) != len(printed):
        return False
    for (kind, left), (other, right) in zip(shown, printed):
        if kind != other:
            return False
        if kind == "uuid":
            random = left[14] == right[14] == "4"
            if not random and left != right or random and names.setdefault(left, right) != right:
                return False
        elif kind == "number" and abs(float(left) - float(right)) >= 2:
            return False
        elif kind == "word" and left != right:
            return False
    return True


class Psql:
    """One psql session that is fed block by block. Errors stand among the results, where they happened."""

    def __init__(self, env):
        self.process = subprocess.Popen(["psql", "-X", "-q"], env=env, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.blocks = 0

    def run(self, source):
        self.blocks += 1
        end = f"end of block {self.blocks}"
        self.process.stdin.write(f"{source}\n\\echo {end}\n")
        self.process.stdin.flush()
        lines = []
        guard = threading.Timer(60, self.process.kill)
        guard.start()
        try:
            for line in self.process.stdout:
                if line.rstrip() == end:
                    return "".join(lines)
                lines.append(line)
        finally:
            guard.cancel()
        raise RuntimeError(f"psql ended:\n{''.join(lines)}")

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


def run_page(page, env, scratch):
    """Runs every example of a page; returns how many, and what went wrong, one text for each."""
    names, wrong = {}, []
    session = Psql(env)
    examples = read(page)
    try:
        for example in examples:
            source = re.sub(_UUID, lambda match: names.get(match[0], match[0]), example.source)
            printed = run(example.language, source, session, env, scratch)
            if example.output is not None and not same(example.output, printed, names):
                wrong.append(f"{page.name}, {example} printed:\n{printed}")
            elif example.output is None and re.search(r"^(ERROR|FATAL|WARNING):", printed, re.M):
                wrong.append(f"{page.name}, {example} failed:\n{printed}")
    finally:
        session.close()
    return len(examples), wrong


def run(language, source, session, env, scratch):
    if language == "sql":
        return session.run(source)
    script = Path(scratch) / {"python": "example.py", "javascript": "example.cjs", "sh": "example.sh"}[language]
    script.write_text(source)
    if language == "javascript":
        return node.run(script, env=env).decode()
    command = [sys.executable, script] if language == "python" else ["bash", "-eu", script]
    done = subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"the {language} example ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def examples_with(page, *words):
    """The examples of a page whose source has all the words."""
    return [example for example in read(page) if all(word in example.source for word in words)]

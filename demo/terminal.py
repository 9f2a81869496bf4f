"""How the demo looks: headings, a margin that says who acts, aligned tables, colours where a terminal is there."""

import json
import os
import sys
import textwrap
import threading

MARGIN = 11
# Tables that would be wider are laid out in another way.
WIDTH = 100
GOOD, BAD = "32", "1;31"


class Terminal:
    def __init__(self, out=sys.stdout):
        self.out = out
        self.colours = out.isatty() and "NO_COLOR" not in os.environ
        self.actor = None
        # Two workers can act at once; their lines must not mix.
        self.lock = threading.Lock()

    def chapter(self, text, *comment):
        self._heading(f"=== {text}", comment)

    def scene(self, text, *comment):
        self._heading(f"--- {text}", comment)

    def _heading(self, text, comment):
        with self.lock:
            self._line()
            self._line(self._paint("1", text))
            for line in comment:
                self._line(self._paint("2", line))
            self._line()
            self.actor = None

    def act(self, actor, text):
        """What somebody does: a statement, a request, a kill."""
        self._block(actor, text.splitlines(), "36")

    def result(self, actor, text):
        self._block(actor, ["  " + line for line in text.splitlines()])

    def rows(self, actor, rows):
        """The rows somebody got."""
        self._block(actor, ["  " + line for line in self._table(rows)])

    def summary(self, rows, text, good):
        with self.lock:
            for line in self._table(rows):
                self._line("  " + line)
            self._line()
            self._line(self._paint(GOOD if good else BAD, text))

    def verdict(self, actor, text, good):
        self._block(actor, [text], GOOD if good else BAD)

    def _table(self, rows):
        """Names above, values below, without the columns that are NULL throughout; one wide row stands upright."""
        names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
        table = [names, *([_cell(row[name]) for name in names] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*table)]
        if sum(widths) + 2 * len(widths) > WIDTH:
            if len(rows) == 1:
                widest = max(map(len, names))
                return [f"{self._paint('2', name.ljust(widest))}  {value}" for name, value in zip(*table)]
            table = list(_fold(table, WIDTH - sum(widths[:-1]) - 2 * len(widths)))
        head, *body = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in table)
        return [self._paint("2", head), *body]

    def _block(self, actor, lines, colour=None):
        with self.lock:
            for line in lines:
                label = actor if actor != self.actor else ""
                self.actor = actor
                self._line(f"  {label:{MARGIN}}| " + (self._paint(colour, line) if colour else line))

    def _paint(self, colour, text):
        return f"\033[{colour}m{text}\033[0m" if self.colours else text

    def _line(self, text=""):
        print(text.rstrip(), file=self.out, flush=True)


def _fold(table, width):
    """The table's lines, where the last column is too wide continued on lines of its own."""
    for *line, last in table:
        for part in textwrap.wrap(last, width, subsequent_indent="  ", break_long_words=False) or [""]:
            yield [*line, part]
            line = [""] * len(line)


def _cell(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return "t" if value else "f"
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)

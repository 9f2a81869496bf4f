"""Generated JSON documents, and a count of what is in them."""

import json
from collections import Counter

from . import numbers

# Names whose order differs between UTF-16, code points, UTF-8 bytes, jsonb and JavaScript's own, and what they are
# joined from. Two ways to write é, because nothing may be normalised.
ATOMS = ["", "a", "b", "B", "aa", "z", "0", "1", "2", "10", "-1", " ", "é", "e\u0301", "\u00ff", "\u0100", "\u07ff",
         "\u0800", "\ud7ff", "\ue000", "\ufb33", "\ufffd", "\uffff", "\U00010000", "\U0001f602", "\U0001f600",
         "\U0010ffff", "\u0001", "\u001f", "\b", "\f", "\n", "\r", "\t", '"', "\\", "/", "\u007f", "\u0080", "\u2028",
         "\u2029", "\u20ac", "\u202e", "\ufeff", "\u05d3", "עברית", "東京", "amount", "currency", "order_id",
         "__proto__", "constructor", "toString", "length", "null", "</script>", "\\u0061", "%s", "{", "]", ","]
SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
SPACE = ["", "", "", "", " ", "\n", "\t ", "\r\n  "]
# How deep a document is, and how many in a thousand are.
DEPTHS = {0: 30, 1: 170, 2: 230, 3: 190, 4: 120, 5: 90, 6: 60, 7: 40, 8: 30, 12: 20, 20: 15, 60: 4, 200: 1}
POOL = 2000


class Generator:
    """Documents from a random.Random: every member name, string and number spelled in one of many ways.

    Only numbers that are the shortest form of a double, so that a library that reads doubles loses nothing.
    """

    def __init__(self, random):
        self.random = random
        hard = [double for group in numbers.hard_doubles(random).values() for double in group]
        self.hard = set(hard)
        easy = [float(n) for n in range(1, 200)] + [random.randint(1, 10 ** 7) / 100 for _ in range(POOL)]
        self.numbers = ["0", "-0", "0.00", "-0e7", "0E-9"]
        for double in [*random.sample(hard, 2 * POOL), *random.sample(easy, POOL)]:
            value = numbers.shortest(double) * random.choice((1, 1, -1))
            self.numbers.append(random.choice(numbers.spellings(random, value)))
        # A name is kept with its value, so that no object gets one twice.
        names = {self._text(3) for _ in range(POOL)}
        self.names = [(name, self._spell(name)) for name in sorted(names) for _ in range(3)]
        self.strings = [self._spell(self._text(random.choice((1, 3, 8)))) for _ in range(2 * POOL)]

    def document(self):
        [depth] = self.random.choices([*DEPTHS], DEPTHS.values())
        return self._space() + self._value(depth) + self._space()

    def _value(self, depth):
        """A value with containers nested exactly so deep."""
        if depth == 0:
            return self._scalar()
        # The deepest documents are narrow, the others bushy near their leaves only.
        size = self._below(2 if depth > 2 else 4) + 1
        if depth == 1 and self.random.random() < 0.1:
            size = 0
        deep = self._below(size) if size else None
        values = [self._value(depth - 1 if at == deep else self._side(depth)) for at in range(size)]
        if self.random.random() < 0.35:
            return "[" + self._space() + self._join(values) + self._space() + "]"
        names = {}
        while len(names) < size:
            name, spelled = self._pick(self.names)
            names[name] = spelled
        members = [f"{name}{self._space()}:{self._space()}{value}" for name, value in zip(names.values(), values)]
        return "{" + self._space() + self._join(members) + self._space() + "}"

    def _side(self, depth):
        return self._below(min(depth, 3)) if self.random.random() < 0.3 else 0

    def _join(self, parts):
        return ",".join(parts) if self.random.random() < 0.7 else f"{self._space()},{self._space()}".join(parts)

    def _scalar(self):
        draw = self.random.random()
        if draw < 0.5:
            return self._pick(self.numbers)
        if draw < 0.85:
            return self._pick(self.strings)
        return self._pick(("true", "false", "null"))

    def _space(self):
        return self._pick(SPACE)

    def _below(self, bound):
        """As randrange, in a third of the time."""
        return int(self.random.random() * bound)

    def _pick(self, choices):
        return choices[self._below(len(choices))]

    def _text(self, most):
        return "".join(self.random.choices(ATOMS, k=self.random.randint(0, most)))

    def _spell(self, text):
        """A JSON string: as bare as JSON allows, all escaped, or mixed."""
        escaping = self.random.choice((0, 0, 0.5, 1))
        return '"' + "".join(self._letter(letter, self.random.random() < escaping) for letter in text) + '"'

    def _letter(self, letter, escape):
        needed = letter in '"\\' or letter < " "
        if not (escape or needed):
            return letter
        if letter in SHORT_ESCAPES and self.random.random() < 0.5:
            return SHORT_ESCAPES[letter]
        units = letter.encode("utf-16-be").hex()
        units = units.upper() if self.random.random() < 0.5 else units
        return "".join(f"\\u{units[at:at + 4]}" for at in range(0, len(units), 4))


class Census:
    """What a set of documents holds, for print().

    hard   the doubles that count as hard numbers
    """

    def __init__(self, hard):
        self.hard = hard
        self.depths = Counter()
        self.counts = Counter()

    def add(self, text):
        counts = self.counts
        counts["documents"] += 1
        counts["bytes"] += len(text.encode())
        counts["escapes"] += text.count("\\")
        deepest = 0
        waiting = [(json.loads(text, parse_int=float), 0)]
        while waiting:
            value, depth = waiting.pop()
            if isinstance(value, (dict, list)):
                deepest = max(deepest, depth + 1)
            if isinstance(value, dict):
                counts["members"] += len(value)
                counts["non-BMP names"] += sum(max(name, default="") > "\uffff" for name in value)
                waiting += [(member, depth + 1) for member in value.values()]
            elif isinstance(value, list):
                waiting += [(item, depth + 1) for item in value]
            elif isinstance(value, str):
                counts["strings"] += 1
            elif isinstance(value, float):
                counts["numbers"] += 1
                counts["hard numbers"] += abs(value) in self.hard
        self.depths[deepest] += 1

    def share_at_least(self, depth):
        return sum(count for at, count in self.depths.items() if at >= depth) / self.counts["documents"]

    def __str__(self):
        total = self.counts["documents"]
        depths = ", ".join(f"{depth}: {count} ({count / total:.1%})" for depth, count in sorted(self.depths.items()))
        counts = ", ".join(f"{count:,} {what}" for what, count in self.counts.items())
        return f"{counts}\ndepth {depths}\n{self.share_at_least(5):.1%} at depth 5 or more"

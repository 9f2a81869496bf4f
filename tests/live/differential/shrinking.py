"""Making a document that shows a fault as small as it can be, without losing the fault."""

import json


class Number(str):
    """A number as it was spelled."""


class Members(list):
    """An object's members in their order; a plain list is an array."""


def read(text):
    return json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=Members)


def write(value):
    match value:
        case Number():
            return str(value)
        case Members():
            return "{" + ",".join(f"{write(name)}:{write(member)}" for name, member in value) + "}"
        case list():
            return "[" + ",".join(map(write, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def smaller(value, letters):
    """Every value that is one step smaller: a part alone, a part less, or one part a step smaller.

    letters   whether strings lose letters, too
    """
    match value:
        case Members():
            yield from (member for _, member in value)
            taken = {name for name, _ in value}
            for at, (name, member) in enumerate(value):
                yield Members(value[:at] + value[at + 1:])
                for part in smaller(member, letters):
                    yield Members([*value[:at], (name, part), *value[at + 1:]])
                # A name that is there already would make it another document.
                for part in filter(lambda part: part not in taken, smaller(name, letters)):
                    yield Members([*value[:at], (part, member), *value[at + 1:]])
        case list():
            yield from value
            for at, item in enumerate(value):
                yield value[:at] + value[at + 1:]
                for part in smaller(item, letters):
                    yield [*value[:at], part, *value[at + 1:]]
        case Number():
            if value != "0":
                yield Number("0")
        case str():
            if letters:
                yield from (value[:at] + value[at + 1:] for at in range(len(value)))
        case True | False:
            yield None


def shrink(text, wrong):
    """The smallest document to be reached from `text` by such steps; `wrong` gives the places of the faulty in a list.

    White space and the spelling of strings go first; where the fault lies in them, the text stays as it is.
    """
    plain = write(read(text))
    if not wrong([plain]):
        return text
    for letters in (False, True):
        while steps := sorted({write(value) for value in smaller(read(plain), letters)}, key=len):
            faulty = wrong(steps)
            if not faulty:
                break
            plain = steps[faulty[0]]
    return plain

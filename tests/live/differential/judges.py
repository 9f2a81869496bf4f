"""Who says what the canonical text of a document is: two JCS libraries and the extension.

    with Judges(cluster, dbname) as judges:
        judges.check(documents)

The libraries read the same JSON text as the server does, each with the JSON reader of its own language, so spelling,
white space and member order are part of what is compared.
"""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import node
import pytest
import rfc8785

from . import shrinking

SEPARATOR = "\x1e"
JCS = Path(__file__).with_name("jcs.cjs")


def npm(documents):
    """Canonical texts by npm's `canonicalize`."""
    documents = list(documents)
    output = node.run(JCS, stdin="".join(SEPARATOR + text for text in documents).encode())
    _, *canonical = output.split(SEPARATOR.encode())
    assert len(canonical) == len(documents)
    return canonical


def pypi(documents):
    """Canonical texts by PyPI's `rfc8785`. All numbers become floats, as in JavaScript."""
    return [rfc8785.dumps(json.loads(text, parse_int=float)) for text in documents]


def sha256(text):
    return hashlib.sha256(text).digest()


class Judges:
    """The libraries, and a connection to a database that has the extension.

    reference   the libraries to agree with, by name
    """

    def __init__(self, cluster, dbname, reference=None):
        self.reference = reference or {"npm": npm, "pypi": pypi}
        self.connection = cluster.connect(dbname)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def server(self, documents):
        """For each document: the digests by the jsonb entry, by the text entry, and of the canonical text shown."""
        return self.connection.execute("""
            SELECT idem_fingerprint(document::jsonb), idem_fingerprint_text(document),
                   sha256(convert_to(idem_canonical(document::jsonb), 'UTF8'))
            FROM unnest(%s::text[]) WITH ORDINALITY AS given(document, n) ORDER BY n""",
            [documents], binary=True).fetchall()

    def canonical(self, document):
        return self.connection.execute("SELECT idem_canonical(%s::jsonb)", [document]).fetchone()[0]

    def disagreements(self, documents):
        """The documents, by place, that get more than one digest from the libraries and the three entries."""
        with ThreadPoolExecutor() as pool:
            # Three processes do most of the work: the server, Node and this one.
            ours = pool.submit(self.server, documents)
            opinions = list(pool.map(lambda library: [*map(sha256, library(documents))], self.reference.values()))
        everyone = zip(ours.result(), *opinions, strict=True)
        return [place for place, (ours, *theirs) in enumerate(everyone) if len({*ours, *theirs}) > 1]

    def check(self, documents):
        """Fails with the smallest document there is disagreement about."""
        wrong = self.disagreements(documents)
        if wrong:
            smallest = min((documents[place] for place in wrong), key=len)
            pytest.fail(f"{len(wrong)} of {len(documents)} documents disagree.\n" + self.explain(smallest))

    def explain(self, document):
        """A disagreement in as few words as will do, with what each one says."""
        if not self.disagreements([document]):
            # Somebody's answer depends on what came before: Node 24 was caught at that.
            return f"Among the others only, not alone: {document!r}"
        document = shrinking.shrink(document, self.disagreements)
        fingerprint, by_text, of_canonical = self.server([document])[0]
        lines = [f"document        {document}", f"idem_canonical  {self.canonical(document)!r}"]
        for name, library in self.reference.items():
            [canonical] = library([document])
            lines.append(f"{name:14}  {canonical.decode()!r}")
            lines.append(f"{'':14}  {sha256(canonical).hex()}")
        return "\n".join([*lines, f"fingerprint     {fingerprint.hex()}", f"…_text          {by_text.hex()}",
                          f"of canonical    {of_canonical.hex()}"])

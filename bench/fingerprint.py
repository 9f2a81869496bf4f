"""idem_fingerprint against the hash a team would take without it, on real webhook payloads."""

import json

from harness import check, cluster, head, on_cpu, quartiles, ratios, say
from node import MODULES

# $1 is a jsonb in memory, as a statement's parameter is: read from a table, both would pay for decompressing it.
LOOP = """
CREATE FUNCTION {name}(docs jsonb[], times int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE doc jsonb; digest bytea;
BEGIN
  FOR n IN 1..times LOOP
    FOREACH doc IN ARRAY docs LOOP
      {work}
    END LOOP;
  END LOOP;
END $$
"""
WORK = {"idem_fingerprint": "digest := idem_fingerprint(doc);",
        "sha256": "digest := sha256(convert_to(doc::text, 'UTF8'));",
        # What the loop itself costs is taken off both.
        "nothing": "digest := NULL;"}


def run(options):
    documents = [json.dumps(example) for file in sorted(MODULES.glob("@octokit/webhooks-examples/*/index.json"))
                 for event in json.loads(file.read_text()) for example in event["examples"]]
    if not documents:
        raise RuntimeError(f"no webhook payloads in {MODULES}: scripts/setup.sh installs them")
    with cluster(fsync=False) as server, server.connect() as conn:
        for name, work in WORK.items():
            conn.execute(LOOP.format(name=f"loop_{name}", work=work))
        conn.execute("CREATE TABLE payload (n int, text text)")
        with conn.cursor().copy("COPY payload FROM STDIN") as copy:
            for n, document in enumerate(documents):
                copy.write_row((n, document))
        size = conn.execute("SELECT sum(length(text::jsonb::text)) FROM payload").fetchone()[0]
        sizes = {"all payloads": "true",
                 "those under 1 kB": "length(text) < 1000", "those over 10 kB": "length(text) > 10000"}
        head(f"idem_fingerprint, {len(documents)} webhook payloads, {size / len(documents):.0f} characters on average")
        for what, which in sizes.items():
            found = conn.execute(f"SELECT count(*) FROM payload WHERE {which}").fetchone()[0]
            if found:
                measure(conn, options, f"{what} ({found})", which, what == "all payloads")


def measure(conn, options, what, which, targeted):
    count, size = conn.execute(f"SELECT count(*), sum(octet_length(text::jsonb::text)) FROM payload WHERE {which}").fetchone()

    def passes(name, times):
        """CPU seconds of the session for one pass over the payloads."""
        before = on_cpu(conn)
        conn.execute(f"""DO $$ BEGIN PERFORM loop_{name}(
            (SELECT array_agg(text::jsonb ORDER BY n) FROM payload WHERE {which}), {times}); END $$""")
        return on_cpu(conn) - before

    # The documents are parsed again in every call: measured once without passes and taken off.
    figures = {name: [] for name in WORK}
    times = max(10, int(options.seconds / 3 / max(passes("sha256", 10) / 10, 1e-4)))
    for number in range(options.rounds):
        turn = number % len(WORK)
        names = list(WORK)
        for name in names[turn:] + names[:turn]:
            figures[name].append((passes(name, times) - passes(name, 0)) / times)
    net = {name: [a - b for a, b in zip(figures[name], figures["nothing"])] for name in ("idem_fingerprint", "sha256")}
    for name, seconds in net.items():
        low, middle, high = quartiles([float(size) / 1e6 / one for one in seconds])
        say(f"   {what}: {name:<17} {middle:7.1f} MB/s of CPU time   quartiles {low:.1f} - {high:.1f}   "
            f"{quartiles(seconds)[1] / count * 1e6:.2f} us a payload")
    # By time: the other's over ours.
    low, middle, high = ratios(net["sha256"], net["idem_fingerprint"])
    say(f"   {what}: throughput idem_fingerprint / sha256: median {middle:.3f}   quartiles {low:.3f} - {high:.3f}")
    if targeted:
        check(options, "throughput of idem_fingerprint / sha256 of the text >= 1", middle, middle >= 1)

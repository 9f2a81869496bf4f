"""A session that works for a long time, in one transaction or in many, does not grow."""

import pytest

from sessions import commit, reserve, value


def resident(conn):
    """Anonymous memory of the backend in kB; shared buffers do not count."""
    with open(f"/proc/{conn.info.backend_pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))


LOOP = "DO $$ BEGIN FOR n IN 1..{} LOOP PERFORM {}; END LOOP; END $$"
CALLS = {
    "replay": (100_000, "r.granted FROM public.idem_reserve('done', '{\"amount\": 5}') AS r"),
    "conflict": (50_000, "r.granted FROM public.idem_reserve('done', '{\"amount\": 6}') AS r"),
    "status": (50_000, "s.state FROM public.idem_status('done') AS s"),
    "fingerprint": (50_000, "public.idem_fingerprint('{\"amount\": 5, \"of\": [1, 2, 3]}')"),
    "cycle": (10_000, "public.idem_commit(r.action_id, r.attempt_id, '{}') FROM public.idem_reserve(md5(random()::text)) AS r"),
    "reserve": (10_000, "r.granted FROM public.idem_reserve(md5(random()::text)) AS r"),
    "error": (10_000, "1; BEGIN PERFORM public.idem_action_id(''); EXCEPTION WHEN OTHERS THEN NULL; END; PERFORM 1"),
    "types": (10_000, "r.granted FROM public.idem_reserve('done', action_type => n::text) AS r"),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_resident_memory_is_flat(connect, name):
    """The first run warms up; the second, as long again and in one transaction, may not add 4 MB."""
    conn = connect()
    conn.execute("SET statement_timeout = 0")
    got = reserve(conn, "done")
    if got.granted:
        commit(conn, got, response={"n": 1})
    times, call = CALLS[name]
    conn.execute(LOOP.format(times, call))
    before = resident(conn)
    conn.execute(LOOP.format(times, call))
    grown = resident(conn) - before
    assert grown < 4096, f"{grown} kB in {times} calls"
    assert value(conn, "SELECT 1") == 1

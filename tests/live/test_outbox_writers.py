"""Many writers into one outbox at once, with a channel and without."""

import pytest

from sessions import rows, together, value

WRITERS, EACH = 64, 5


@pytest.mark.parametrize("channel", [None, "news"])
@pytest.mark.parametrize("ordered", [False, True])
def test_what_sixty_four_writers_put_is_delivered_by_polling(connect, conn, channel, ordered):
    """Failure 68: commits that notify queue up behind each other, and none is lost or refused; nobody has to LISTEN."""
    name = f"public.written_{channel}_{ordered}"
    conn.execute("SELECT idem_create_outbox(%s, ordered => %s, notify_channel => %s)", (name, ordered, channel))
    put = "SELECT idem_outbox_put(%s, 't', 'a', %s, %s)"
    sessions = [connect() for _ in range(WRITERS)]

    def write(conn, writer):
        # Ten keys, so that in an ordered outbox writers wait for each other.
        return [str(value(conn, put, (name, str(writer % 10), f'{{"writer": {writer}, "n": {n}}}'))) for n in range(EACH)]

    written = together(*[lambda c=c, w=w: write(c, w) for w, c in enumerate(sessions)])
    ids = [id for of_one in written for id in of_one]
    delivered = []
    while claimed := rows(conn, "SELECT id, claim_id, payload FROM idem_outbox_claim(%s, 100)", (name,)):
        delivered += claimed
        conn.execute("SELECT idem_outbox_ack_many(%s, %s, %s)", (name, claimed[0].claim_id, [one.id for one in claimed]))
    assert sorted(str(one.id) for one in delivered) == sorted(ids)
    if ordered:
        for writer in range(WRITERS):
            assert [one.payload["n"] for one in delivered if one.payload["writer"] == writer] == list(range(EACH))

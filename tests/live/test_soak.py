"""The background worker's memory, and a backlog; `make soak` does the same for 100,000 cycles and 1,000,000 rows."""

import pytest

import soak
from cluster import Cluster


@pytest.fixture(scope="module")
def server():
    with Cluster(settings=soak.SETTINGS) as cluster:
        cluster.psql("CREATE EXTENSION pg_idem")
        yield cluster


def test_memory_stays_flat(server):
    """Of the launcher, which lives as long as the server, and of the postmaster, which keeps a list of workers."""
    grown = soak.soak(server, 400, say=lambda line: None)
    assert max(grown.values()) <= soak.MOST, grown


def test_a_backlog_of_many_batches(server):
    """Each batch is committed, so progress shows long before the end."""
    steps, _ = soak.backlog(server, 30000, say=lambda line: None)
    assert steps >= 5

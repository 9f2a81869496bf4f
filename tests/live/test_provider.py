"""The demo's payment provider is worth trusting: an effect is kept whatever becomes of client, answer or provider."""

import http.client
import json
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

PROVIDER = Path(__file__).parents[2] / "demo" / "provider.py"


@contextmanager
def provider(journal, *options):
    command = [sys.executable, PROVIDER, "--journal", journal, *options]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def call(url, body=None, key=None):
    request = urllib.request.Request(url, data=None if body is None else json.dumps(body).encode())
    if key:
        request.add_header("Idempotency-Key", key)
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


def test_effects_outlive_the_provider(tmp_path):
    journal = tmp_path / "refunds.jsonl"
    with provider(journal) as url:
        made = call(f"{url}/refunds", {"order": "1", "amount": 50, "client_reference": "ref-1"})
    with provider(journal) as url:
        assert call(f"{url}/refunds?client_reference=ref-1") == [made]
        assert call(f"{url}/count") == {"count": 1}
        assert call(f"{url}/count?order=2") == {"count": 0}


def test_a_dropped_answer_leaves_the_effect(tmp_path):
    with provider(tmp_path / "refunds.jsonl") as url:
        call(f"{url}/behaviour", {"next": "drop"})
        with pytest.raises(http.client.RemoteDisconnected):
            call(f"{url}/refunds", {"order": "1", "amount": 50})
        assert call(f"{url}/count") == {"count": 1}


@pytest.mark.parametrize("options, refunds", [([], 2), (["--honour-keys"], 1)])
def test_keys_are_honoured_only_on_demand(tmp_path, options, refunds):
    with provider(tmp_path / "refunds.jsonl", *options) as url:
        for _ in range(2):
            call(f"{url}/refunds", {"order": "1", "amount": 50}, key="k")
        assert call(f"{url}/count") == {"count": refunds}


def test_a_bad_refund_is_refused_and_has_no_effect(tmp_path):
    with provider(tmp_path / "refunds.jsonl") as url:
        with pytest.raises(urllib.error.HTTPError, match="422"):
            call(f"{url}/refunds", {"order": "1", "amount": -50})
        assert call(f"{url}/count") == {"count": 0}

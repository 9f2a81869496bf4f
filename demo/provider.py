"""A provider to practise against: an HTTP service in a process of its own that makes refunds, charges and tasks.

It does what real ones do when things go wrong. An effect is on its disk before the client can hear of it, so killing
the client, or this process, undoes nothing; and on demand it keeps the answer to itself.

    python3 provider.py --journal /tmp/effects.jsonl [--port 8080] [--honour-keys]

    POST /refunds {"order", "amount", "client_reference"?}   makes a refund, 201; with --honour-keys a repeated
                                                             Idempotency-Key header gets the first one back, 200
    POST /charges {"order", "amount", "client_reference"?}   the same for money that goes the other way
    POST /tasks {"vendor_request", "amount", "client_reference"?}   the same for work of the purchasing department
    GET  /refunds?client_reference=…                         the refunds made under a reference (also: ?order=…)
    GET  /count?kind=refunds                                 how many there are (also: &order=…)
    POST /behaviour {"next": "answer" | "drop" | "lose" | "block"}   what the next client gets: the answer; a closed
                                                             connection, after the effect or instead of it; or nothing
    POST /release                                            … until every held answer is let go

The first line on standard output says where it listens.
"""

import argparse
import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

BEHAVIOURS = ("answer", "drop", "lose", "block")
# What is made, how its ids begin, and what it is made for.
KINDS = {"refunds": ("re", "order"), "charges": ("ch", "order"), "tasks": ("ta", "vendor_request")}
# Nobody but the provider sees these.
PRIVATE = ("kind", "client_reference", "idempotency_key")


class Store:
    """The effects, in memory to look them up and in an append-only journal to keep them."""

    def __init__(self, path):
        self.journal = open(path, "a+")
        self.journal.seek(0)
        self.effects = [json.loads(line) for line in self.journal]
        self.lock = threading.Lock()

    def make(self, kind, subject, amount, client_reference, idempotency_key):
        """Makes an effect, or finds the one made under this key. Returns it and whether it is new."""
        prefix, made_for = KINDS[kind]
        with self.lock:
            if idempotency_key is not None:
                for effect in self.effects:
                    if (effect["kind"], effect["idempotency_key"]) == (kind, idempotency_key):
                        return effect, False
            number = sum(effect["kind"] == kind for effect in self.effects) + 1
            effect = {
                "kind": kind,
                "id": f"{prefix}_{number:03}",
                made_for: subject,
                "amount": amount,
                "client_reference": client_reference,
                "idempotency_key": idempotency_key,
            }
            self.journal.write(json.dumps(effect) + "\n")
            self.journal.flush()
            os.fsync(self.journal.fileno())
            self.effects.append(effect)
            return effect, True

    def find(self, **wanted):
        with self.lock:
            return [e for e in self.effects if all(e.get(name) == value for name, value in wanted.items())]


class Provider(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port, store, honour_keys):
        super().__init__(("127.0.0.1", port), Handler)
        self.store = store
        self.honour_keys = honour_keys
        self.next_behaviour = "answer"
        self.released = threading.Event()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urlsplit(self.path)
        wanted = dict(parse_qsl(url.query))
        if url.path == "/count":
            self.answer(200, {"count": len(self.server.store.find(**wanted))})
        elif (kind := url.path[1:]) in KINDS:
            self.answer(200, [public(effect) for effect in self.server.store.find(**{**wanted, "kind": kind})])
        else:
            self.answer(404, {"error": "no such resource"})

    def do_POST(self):
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        except ValueError:
            return self.answer(400, {"error": "the body is not JSON"})
        if (kind := self.path[1:]) in KINDS:
            self.make(kind, body)
        elif self.path == "/behaviour" and body.get("next") in BEHAVIOURS:
            self.server.next_behaviour = body["next"]
            self.server.released.clear()
            self.answer(200, body)
        elif self.path == "/release":
            self.server.released.set()
            self.answer(200, {})
        else:
            self.answer(404, {"error": "no such resource"})

    def make(self, kind, body):
        made_for = KINDS[kind][1]
        subject, amount = body.get(made_for), body.get("amount")
        if not isinstance(subject, str) or not isinstance(amount, (int, float)) or amount <= 0:
            return self.answer(422, {"error": f"{kind} need the member {made_for} and a positive amount"})
        behaviour, self.server.next_behaviour = self.server.next_behaviour, "answer"
        if behaviour == "lose":
            return self.hang_up()
        key = self.headers.get("Idempotency-Key") if self.server.honour_keys else None
        effect, new = self.server.store.make(kind, subject, amount, body.get("client_reference"), key)

        # It has happened. What follows is only about who hears of it.
        if behaviour == "drop":
            return self.hang_up()
        if behaviour == "block":
            self.server.released.wait()
        try:
            self.answer(201 if new else 200, public(effect))
        except OSError:
            # The client left, or was killed, while its answer was held.
            self.close_connection = True

    def hang_up(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Silent: whoever runs the provider asks it for its count."""


def public(effect):
    return {name: value for name, value in effect.items() if name not in PRIVATE}


def main():
    parser = argparse.ArgumentParser(description="A provider to practise against.")
    parser.add_argument("--journal", required=True, help="the file that holds the effects")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--honour-keys", action="store_true", help="do not repeat what an Idempotency-Key names")
    arguments = parser.parse_args()
    provider = Provider(arguments.port, Store(arguments.journal), arguments.honour_keys)
    print(f"http://127.0.0.1:{provider.server_port}", flush=True)
    provider.serve_forever()


if __name__ == "__main__":
    main()

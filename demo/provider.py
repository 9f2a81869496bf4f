"""A payment provider to practise against: an HTTP service in a process of its own that makes refunds.

It does what real ones do when things go wrong. A refund is on its disk before the client can hear of it, so killing
the client, or this process, undoes nothing; and on demand it keeps the answer to itself.

    python3 provider.py --journal /tmp/refunds.jsonl [--port 8080] [--honour-keys]

    POST /refunds {"order", "amount", "client_reference"?}   makes a refund, 201; with --honour-keys a repeated
                                                             Idempotency-Key header gets the first one back, 200
    GET  /refunds?client_reference=…                         the refunds made under a reference (also: ?order=…)
    GET  /count                                              how many there are (also: ?order=…)
    POST /behaviour {"next": "answer" | "drop" | "block"}    what the client of the next refund gets: the answer, a
                                                             closed connection, or nothing until …
    POST /release                                            … every held answer is let go

The first line on standard output says where it listens.
"""

import argparse
import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

BEHAVIOURS = ("answer", "drop", "block")


class Store:
    """The refunds, in memory to look them up and in an append-only journal to keep them."""

    def __init__(self, path):
        self.journal = open(path, "a+")
        self.journal.seek(0)
        self.refunds = [json.loads(line) for line in self.journal]
        self.lock = threading.Lock()

    def make(self, order, amount, client_reference, idempotency_key):
        """Makes a refund, or finds the one made under this key. Returns it and whether it is new."""
        with self.lock:
            if idempotency_key is not None:
                for refund in self.refunds:
                    if refund["idempotency_key"] == idempotency_key:
                        return refund, False
            refund = {
                "id": f"re_{len(self.refunds) + 1:03}",
                "order": order,
                "amount": amount,
                "client_reference": client_reference,
                "idempotency_key": idempotency_key,
            }
            self.journal.write(json.dumps(refund) + "\n")
            self.journal.flush()
            os.fsync(self.journal.fileno())
            self.refunds.append(refund)
            return refund, True

    def find(self, **wanted):
        with self.lock:
            return [r for r in self.refunds if all(r.get(name) == value for name, value in wanted.items())]


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
        refunds = self.server.store.find(**dict(parse_qsl(url.query)))
        if url.path == "/refunds":
            self.answer(200, [public(refund) for refund in refunds])
        elif url.path == "/count":
            self.answer(200, {"count": len(refunds)})
        else:
            self.answer(404, {"error": "no such resource"})

    def do_POST(self):
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        except ValueError:
            return self.answer(400, {"error": "the body is not JSON"})
        if self.path == "/refunds":
            self.refund(body)
        elif self.path == "/behaviour" and body.get("next") in BEHAVIOURS:
            self.server.next_behaviour = body["next"]
            self.server.released.clear()
            self.answer(200, body)
        elif self.path == "/release":
            self.server.released.set()
            self.answer(200, {})
        else:
            self.answer(404, {"error": "no such resource"})

    def refund(self, body):
        order, amount = body.get("order"), body.get("amount")
        if not isinstance(order, str) or not isinstance(amount, (int, float)) or amount <= 0:
            return self.answer(422, {"error": "a refund needs an order and a positive amount"})
        behaviour, self.server.next_behaviour = self.server.next_behaviour, "answer"
        key = self.headers.get("Idempotency-Key") if self.server.honour_keys else None
        refund, new = self.server.store.make(order, amount, body.get("client_reference"), key)

        # The money has moved. What follows is only about who hears of it.
        if behaviour == "drop":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if behaviour == "block":
            self.server.released.wait()
        try:
            self.answer(201 if new else 200, public(refund))
        except OSError:
            # The client left, or was killed, while its answer was held.
            self.close_connection = True

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Silent: whoever runs the provider asks it for its count."""


def public(refund):
    return {name: refund[name] for name in ("id", "order", "amount")}


def main():
    parser = argparse.ArgumentParser(description="A payment provider to practise against.")
    parser.add_argument("--journal", required=True, help="the file that holds the refunds")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--honour-keys", action="store_true", help="do not repeat what an Idempotency-Key names")
    arguments = parser.parse_args()
    provider = Provider(arguments.port, Store(arguments.journal), arguments.honour_keys)
    print(f"http://127.0.0.1:{provider.server_port}", flush=True)
    provider.serve_forever()


if __name__ == "__main__":
    main()

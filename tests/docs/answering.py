"""A provider for the documentation's tests: answers each request as the request itself asks for.

POST /refunds with {"answer": 422} gets that status; "drop" closes the connection without an answer, "cut" in the
middle of one. Everything else is done by the demo's provider.
"""

import json
import socket
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["answer"]
        if asked == "drop":
            return self.leave()
        body = b'{"id": "re_1"}'
        self.send_response(201 if asked == "cut" else asked)
        self.send_header("Content-Type", "application/json")
        if asked == 429:
            self.send_header("Retry-After", "30")
        self.send_header("Content-Length", str(0 if asked in (204, 304) else len(body)))
        self.end_headers()
        if asked == "cut":
            self.wfile.write(body[:5])
            return self.leave()
        if asked not in (204, 304):
            self.wfile.write(body)

    def leave(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_):
        """Silent."""


@contextmanager
def provider():
    """Runs one; its host and port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()

#!/usr/bin/env python3
"""A consumer of webhooks that handles each message once.

DATABASE_URL names its database, WEBHOOK_SECRET what the relay signs with; it prints the port it listens on.
"""

import base64
import hashlib
import hmac
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from inbox import handle

SECRET = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
TOLERANCE = 300  # seconds that a delivery's time may be off


class Webhook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if not self.is_signed(body):
            return self.answer(401)
        decision = handle(self.headers["webhook-id"], body.decode())
        self.answer({"conflict": 409, "too_old": 410}.get(decision, 200))

    def is_signed(self, body):
        id, sent = self.headers["webhook-id"], self.headers["webhook-timestamp"]
        made = base64.b64encode(hmac.digest(SECRET, b".".join([id.encode(), sent.encode(), body]), hashlib.sha256))
        given = self.headers["webhook-signature"].split()
        in_time = abs(time.time() - int(sent)) < TOLERANCE
        return in_time and any(hmac.compare_digest(one, f"v1,{made.decode()}") for one in given)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", 0))), Webhook)
    print(server.server_port, flush=True)
    server.serve_forever()

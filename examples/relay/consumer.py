#!/usr/bin/env python3
"""A consumer of webhooks: handles each message once, however often it is delivered.

DATABASE_URL names its database, WEBHOOK_SECRET what the relay signs with; it prints the port it listens on. The message
is accepted and handled in one transaction: when that is rolled back, the message is new at the next delivery.
"""

import base64
import hashlib
import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg

SECRET = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
TOLERANCE = 300  # seconds that a delivery's time may be off


class Webhook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if not self.is_signed(body):
            return self.answer(401)
        message = json.loads(body)
        with psycopg.connect(os.environ["DATABASE_URL"]) as conn:
            decision, _ = conn.execute("SELECT * FROM idem_inbox_accept('consumer', %s, %s)",
                                       (self.headers["webhook-id"], json.dumps(message))).fetchone()
            conn.execute("INSERT INTO delivery (message_id, decision) VALUES (%s, %s)",
                         (self.headers["webhook-id"], decision))
            if decision == "new":
                conn.execute("INSERT INTO effect (message_id, data) VALUES (%s, %s)",
                             (self.headers["webhook-id"], json.dumps(message["data"])))
        self.answer(409 if decision == "conflict" else 200)

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

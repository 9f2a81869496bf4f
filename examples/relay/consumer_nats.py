#!/usr/bin/env python3
"""A consumer of a JetStream stream that handles each message once.

DATABASE_URL names its database, NATS_URL the server, NATS_STREAM and NATS_SUBJECT the stream, which it makes where there
is none. It prints `ready` once it consumes.
"""

import asyncio
import os
import sys

import nats
import psycopg
from nats.js.api import ConsumerConfig

from inbox import handle

STREAM, SUBJECT = os.environ["NATS_STREAM"], os.environ["NATS_SUBJECT"]
# Seconds until a message that was not acknowledged is delivered again: longer than handling it takes.
ACK_WAIT = float(os.environ.get("ACK_WAIT_SECONDS", 30))


async def consume():
    client = await nats.connect(os.environ["NATS_URL"], max_reconnect_attempts=-1, reconnect_time_wait=0.5, error_cb=say)
    stream = client.jetstream()
    await stream.add_stream(name=STREAM, subjects=[SUBJECT])
    # One message at a time, also where several consumers share the durable name: that keeps the order.
    config = ConsumerConfig(max_ack_pending=1, ack_wait=ACK_WAIT)
    messages = await stream.pull_subscribe(SUBJECT, durable="consumer", stream=STREAM, config=config)
    print("ready", flush=True)
    while True:
        try:
            [message] = await messages.fetch(1, timeout=5)
        except nats.errors.TimeoutError:
            continue
        except nats.errors.Error as error:
            await say(error)
            await asyncio.sleep(0.5)
            continue
        try:
            decision = await asyncio.to_thread(handle, message.headers["Nats-Msg-Id"], message.data.decode())
        except psycopg.OperationalError as error:
            await say(error)
            await message.nak(delay=0.5)
            continue
        # A conflict is another message under the same id, and what is too old stays so: coming again mends neither.
        await (message.term() if decision in ("conflict", "too_old") else message.ack())


async def say(error):
    print(f"consumer: {error}", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(consume())

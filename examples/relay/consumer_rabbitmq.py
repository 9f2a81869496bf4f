#!/usr/bin/env python3
"""A consumer of a RabbitMQ queue that handles each message once.

DATABASE_URL names its database, RABBITMQ_URL the broker, RABBITMQ_QUEUE the queue, which it makes where there is none. It
prints `ready` once it consumes.
"""

import os
import sys
import time

import pika
import psycopg

from inbox import handle

QUEUE = os.environ["RABBITMQ_QUEUE"]


def consume():
    """Consumes until the connection or the database fails; what was not acknowledged goes back to its place."""
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["RABBITMQ_URL"]))
    try:
        channel = connection.channel()
        # With one consumer active at a time and one message in its hands, the order is that of the queue.
        channel.queue_declare(QUEUE, durable=True, arguments={"x-single-active-consumer": True})
        channel.basic_qos(prefetch_count=1)
        print("ready", flush=True)
        for method, properties, body in channel.consume(QUEUE):
            decision = handle(properties.message_id, body.decode())
            # A conflict is another message under the same id, and what is too old stays so: coming again mends neither.
            if decision in ("conflict", "too_old"):
                channel.basic_reject(method.delivery_tag, requeue=False)
            else:
                channel.basic_ack(method.delivery_tag)
    finally:
        if connection.is_open:
            connection.close()


if __name__ == "__main__":
    while True:
        try:
            consume()
        except (pika.exceptions.AMQPError, psycopg.OperationalError) as error:
            print(f"consumer: {error!r}", file=sys.stderr)
            time.sleep(0.5)

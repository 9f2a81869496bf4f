"""Throw-away message brokers for the tests: NATS with JetStream, and RabbitMQ.

    with RabbitMq() as broker:
        pika.BlockingConnection(pika.URLParameters(broker.url))

Each lives in a directory of its own under /tmp, on free ports of 127.0.0.1, and is gone when the block ends. One that
the machine runs, as Debian's packages start them, is never touched.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

from cluster import free_port
from sessions import wait_until


class Broker:
    """One broker. What it has stored is there again after kill9() and start(), on the same port."""

    # What it is named in the file system and in URLs, what a client says first, and how an answer to that begins.
    scheme, hello, welcome = "", b"", b""

    def __init__(self):
        self.dir = Path(tempfile.mkdtemp(prefix=f"pg_idem-{self.scheme}-", dir="/tmp"))
        self.port = free_port()
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"
        self._broker = None
        atexit.register(self.close)

    def start(self):
        with open(self.dir / "log", "a") as log:
            self._broker = subprocess.Popen(
                self.command(), env=self.environment(), cwd=self.dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)
        wait_until(self._is_ready, 120)
        return self

    def kill9(self):
        """Kills it with SIGKILL."""
        self._broker.kill()
        self._broker.wait(timeout=60)

    @contextmanager
    def paused(self):
        """Within the block it is there and says nothing."""
        self._broker.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._broker.send_signal(signal.SIGCONT)

    def close(self):
        """Kills it if it runs and removes every file. May be called twice."""
        atexit.unregister(self.close)
        if self._broker and self._broker.poll() is None:
            self.kill9()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.close()

    def command(self):
        raise NotImplementedError

    def environment(self):
        return {"PATH": os.environ["PATH"], "HOME": str(self.dir), "LC_ALL": "C.UTF-8"}

    def _is_ready(self):
        if self._broker.poll() is not None:
            raise RuntimeError(f"the broker ended:\n{(self.dir / 'log').read_text(errors='replace')[-4000:]}")
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as client:
                client.sendall(self.hello)
                return client.recv(100).startswith(self.welcome)
        except OSError:
            return False


class Nats(Broker):
    scheme, welcome = "nats", b"INFO"

    def command(self):
        return ["nats-server", "--addr", "127.0.0.1", "--port", str(self.port),
                "--jetstream", "--store_dir", self.dir / "store"]


class RabbitMq(Broker):
    # The header of AMQP 0-9-1. The answer is a method frame on channel 0: Connection.Start.
    scheme, hello, welcome = "amqp", b"AMQP\x00\x00\x09\x01", b"\x01\x00\x00"

    def __init__(self):
        super().__init__()
        self._names = None
        self._names_port, self._peers_port = free_port(), free_port()

    def start(self):
        if self._names is None:
            # Erlang's daemon of names. Ours, on a port of its own: one that a node starts by itself would outlive it.
            self._names = subprocess.Popen(["epmd", "-port", str(self._names_port), "-address", "127.0.0.1"],
                                           env=self.environment(), cwd=self.dir)
        return super().start()

    def close(self):
        super().close()
        if self._names and self._names.poll() is None:
            self._names.kill()
            self._names.wait(timeout=60)

    def command(self):
        # Not the wrapper of the same name on the PATH: that one runs as the user of the machine's broker.
        return ["/usr/lib/rabbitmq/bin/rabbitmq-server"]

    def environment(self):
        return {
            **super().environment(),
            "ERL_EPMD_PORT": str(self._names_port), "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "pg_idem@localhost", "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port), "RABBITMQ_DIST_PORT": str(self._peers_port),
            "RABBITMQ_MNESIA_BASE": str(self.dir / "store"), "RABBITMQ_LOG_BASE": str(self.dir), "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(self.dir / "rabbitmq.conf"), "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.dir / "plugins"),
            # The node in the process that was started, instead of in a child of a shell that looks after it.
            "RUNNING_UNDER_SYSTEMD": "true",
            # Schedulers that do not spin while they wait.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }

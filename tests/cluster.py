"""Throw-away PostgreSQL clusters for the tests, the demo and the benchmark.

    with Cluster(settings={"fsync": False}) as cluster:
        with cluster.connect() as conn:
            conn.execute("CREATE EXTENSION pg_idem")

Each cluster lives in a directory of its own under /tmp, with a Unix socket there and a free TCP port on
127.0.0.1, and is gone when the block ends, whatever ended it. No cluster that was on the machine before is
ever touched.

The server runs as the user `postgres` when the caller is root, because it refuses root, and with a small
environment of its own: in particular without RUST_BACKTRACE, which would send backtraces to clients.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

SUPERUSER = "postgres"


class Cluster:
    """One cluster. The constructor makes its files; start() or the context manager runs the server.

    pg_config   the server to use (default: the variable PG_CONFIG, else `pg_config` on the PATH)
    settings    lines for postgresql.conf; True and False become on and off
    preload     whether shared_preload_libraries names pg_idem
    initdb      further arguments of initdb; the last of two for one thing counts
    env         further environment variables of initdb and of the server
    """

    def __init__(self, pg_config=None, settings=None, preload=True, initdb=(), env=None):
        self.pg_config = pg_config or os.environ.get("PG_CONFIG", "pg_config")
        self.bindir = Path(_output([self.pg_config, "--bindir"]))
        self.dir = Path(tempfile.mkdtemp(prefix="pg_idem-", dir="/tmp"))
        self.data = self.dir / "data"
        self.port = None
        # A test may add to it before the start.
        self.server_env = {**_server_env(), **(env or {})}
        self._server = None
        # For callers without a `with`, and for those that are interrupted before they reach one.
        atexit.register(self.close)
        if _is_root():
            shutil.chown(self.dir, SUPERUSER, SUPERUSER)
        subprocess.run(
            [self.bindir / "initdb", "--pgdata", self.data, "--username", SUPERUSER, "--auth", "trust",
             "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync", *initdb],
            check=True, cwd=self.dir, stdout=subprocess.DEVNULL, env=self.server_env, **_owner())
        # Not in postgresql.auto.conf, so that a test's ALTER SYSTEM has the last word.
        self._configure({
            "shared_preload_libraries": "pg_idem" if preload else "",
            "listen_addresses": "127.0.0.1",
            # Tests sweep by hand, when they mean to; those of the worker name their databases.
            **({"pg_idem.databases": ""} if preload else {}),
            "unix_socket_directories": self.dir,
            **(settings or {}),
        })

    # Life of the server

    def start(self, port=None):
        """Starts the server and waits until it is ready; on a port that is free now, where none is named."""
        # Someone else may take the port between the look and the start, so a second and a third try.
        for attempt in range(3):
            self.port = port or free_port()
            self._configure({"port": self.port})
            # Our own child rather than pg_ctl's orphan, so that it can be waited for. In a session of its own: the
            # Ctrl-C that ends a test must not reach it as a shutdown request first.
            with open(self.dir / "log", "a") as log:
                self._server = subprocess.Popen(
                    [self.bindir / "postgres", "-D", self.data], cwd=self.dir, stdin=subprocess.DEVNULL, stdout=log,
                    stderr=log, start_new_session=True, env=self.server_env, **_owner())
            if self._wait_until_ready():
                return self
            if attempt == 2 or "Address already in use" not in self.log():
                raise RuntimeError(f"the server did not start:\n{self.log()}")

    def stop(self, mode="fast"):
        """Stops the server: 'fast' as an administrator would, 'immediate' as a crash that needs recovery."""
        self._server.send_signal({"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])
        self._server.wait(timeout=60)

    def restart(self, mode="fast"):
        self.stop(mode)
        return self.start()

    def kill9(self):
        """Kills the postmaster and then its children with SIGKILL, and returns when all are gone.

        A backend that outlives the postmaster could still commit, which no crash would let it do, and its hold on
        the shared memory would keep the next start from happening.
        """
        children = _children(self.pid)
        self._server.kill()
        self._server.wait(timeout=60)
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        deadline = time.monotonic() + 60
        while any(_alive(pid) for pid in children):
            if time.monotonic() > deadline:
                raise TimeoutError("server processes survived SIGKILL")
            time.sleep(0.01)

    @property
    def pid(self):
        """The postmaster's process id, None when none is running."""
        return self._server.pid if self._server and self._server.poll() is None else None

    def close(self):
        """Stops the server if it runs and removes every file. May be called twice."""
        atexit.unregister(self.close)
        if self.pid:
            try:
                self.stop("immediate")
            except subprocess.TimeoutExpired:
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

    # Talking to it

    def dsn(self, dbname="postgres"):
        """A connection string for other processes."""
        return f"host={self.dir} port={self.port} user={SUPERUSER} dbname={dbname}"

    def connect(self, dbname="postgres", autocommit=True, **kw):
        """A psycopg connection as superuser; further arguments (user, host …) go before the defaults."""
        return psycopg.connect(self.dsn(dbname), autocommit=autocommit, **kw)

    def env(self, dbname="postgres"):
        """The caller's environment plus the variables that point libpq at this cluster."""
        return {**os.environ, "PGHOST": str(self.dir), "PGPORT": str(self.port), "PGUSER": SUPERUSER,
                "PGDATABASE": dbname}

    def psql(self, sql, dbname="postgres"):
        """Runs a script through psql, ends at its first error, returns what it printed, unaligned."""
        command = [self.bindir / "psql", "-X", "-qAt", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(command, env=self.env(dbname), input=sql, text=True, capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(f"psql: {done.stderr}")
        return done.stdout

    def createdb(self, name, encoding="UTF8"):
        """Creates a database of any server encoding; the C locale goes with all of them."""
        with self.connect() as conn:
            conn.execute(psycopg.sql.SQL(
                "CREATE DATABASE {} TEMPLATE template0 ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C'"
            ).format(psycopg.sql.Identifier(name), psycopg.sql.Literal(encoding)))

    def log(self):
        """What the server wrote to its log so far."""
        log = self.dir / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    def _configure(self, settings):
        """Adds lines to postgresql.conf; of two for one name the server takes the later."""
        with open(self.data / "postgresql.conf", "a") as conf:
            conf.writelines(f"{name} = {_quote(value)}\n" for name, value in settings.items())

    def _wait_until_ready(self):
        """Whether the server came up; the eighth line of its pid file says so, if the first names this server."""
        deadline = time.monotonic() + 60
        while self.pid and time.monotonic() < deadline:
            try:
                lines = (self.data / "postmaster.pid").read_text().splitlines()
                if int(lines[0]) == self.pid and "ready" in lines[7]:
                    return True
            except (FileNotFoundError, IndexError, ValueError):
                pass
            time.sleep(0.01)
        return False


def _server_env():
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _is_root():
    return os.geteuid() == 0


def _owner():
    """Arguments for subprocess: whom the server's programs run as."""
    return {"user": SUPERUSER, "group": SUPERUSER, "extra_groups": []} if _is_root() else {}


def _output(command):
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout.strip()


def _quote(value):
    if isinstance(value, bool):
        value = "on" if value else "off"
    return "'" + str(value).replace("'", "''") + "'"


def free_port():
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _stat(pid):
    """State and parent of a process, None when it is gone."""
    try:
        # The command name stands in parentheses and may hold anything, so the fields are counted after it.
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return state, int(parent)


def _alive(pid):
    """Whether the process still holds anything; a zombie does not."""
    stat = _stat(pid)
    return stat is not None and stat[0] != "Z"


def _children(pid):
    everyone = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [other for other in everyone if (_stat(other) or (None, None))[1] == pid]

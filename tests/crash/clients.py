"""What an application does with pg_idem, as a process that may be killed at any moment; and how to do it wrong.

A client works on keys that others work on too, writes every answer into its journal before its next call, and after
a lost connection does what real ones do: asks again, repeats its report, or forgets about it.
"""

import json
import random
import time
import uuid

import psycopg
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from crash.journal import Journal
from crash.provider import Provider
from crash.shared import DRAIN, END, PAUSE

LEASE = 2.0
# Who is later than this after asking does not send any more: the rest of the lease and the settle delay are for a
# machine that stands still between the look at the clock and the effect.
PUNCTUAL = 0.5

# The server says good-bye: admin_shutdown, crash_shutdown, cannot_connect_now.
GOING_DOWN = ("57P01", "57P02", "57P03")

TYPES = ("charge", "transfer", "status", "local")
SETUP = """
CREATE EXTENSION pg_idem;
CREATE TABLE business (key text NOT NULL, attempt_id uuid NOT NULL);
SELECT idem_register_action_type(name, class, effect => effect, lease => '2 s', max_attempts => 1000,
    backoff_base => '0.05 s', backoff_cap => '0.2 s', settle_delay => '2 s', probe_interval => '0.05 s',
    probes_required => 1, resolve_deadline => '1 day')
FROM (VALUES ('charge', 'deduplicated_creation', 'external'), ('transfer', 'reversible', 'external'),
    ('status', 'idempotent_mutation', 'external'), ('local', 'deduplicated_creation', 'local')) AS t (name, class, effect);
"""


def key_of(n):
    return f"{TYPES[n % len(TYPES)]}-{n}"


def type_of(key):
    return key.partition("-")[0]


class Lost(Exception):
    """The connection broke; nobody knows what became of the call."""


class Client:
    def __init__(self, n, name, shared, directory, dsn):
        self.n, self.shared, self.slot, self.dsn = n, shared, shared.slot(n), dsn
        self.directory = directory
        self.journal = Journal(directory / "journals", name)
        self.provider = Provider(directory / "provider")
        self.random = random.Random(name)
        self.name, self.conn, self.sync, self.unfinished = name, None, True, None

    def run(self):
        while (phase := self.shared.phase) != END:
            if phase == PAUSE:
                # Else a connection that broke meanwhile would count as a call lost in the next round.
                self.disconnect()
                self.slot.write(calling=0, idle=1)
                time.sleep(0.002)
                continue
            self.slot.write(idle=0)
            try:
                self.step(phase)
            except Lost:
                self.disconnect()

    def disconnect(self):
        if self.conn:
            self.conn.close()
        self.conn = None

    def step(self, phase):
        if self.conn is None:
            self.connect()
        unfinished, self.unfinished = self.unfinished, None
        if unfinished:
            unfinished()
        else:
            self.work(self.choose(phase))

    def choose(self, phase):
        if phase == DRAIN:
            keys = json.loads((self.directory / "open").read_text())
            time.sleep(0.02)
            return self.random.choice(keys or [key_of(0)])
        frontier = self.shared.advance() if self.random.random() < 0.5 else self.shared.head[2]
        back = 5 if self.random.random() < 0.8 else 200
        return key_of(max(0, frontier - self.random.randrange(back)))

    def connect(self):
        _, port, _, lazy = self.shared.head
        self.sync = lazy == 0 or (lazy == 2 and self.n % 2 == 0)
        try:
            self.conn = psycopg.connect(f"{self.dsn} port={port}", autocommit=True, row_factory=namedtuple_row,
                                        options=f"-c synchronous_commit={'on' if self.sync else 'off'}")
        except psycopg.OperationalError as error:
            time.sleep(0.005)
            raise Lost from error

    # Calls: every answer is in the journal before the next call

    def call(self, what, key, token, ask, **more):
        """`ask` talks to the server and returns what the journal has to keep."""
        about = {"call": what, "key": key, "token": token, "sync": self.sync,
                 "all_sync": self.shared.head[3] == 0}
        self.slot.write(calling=1)
        try:
            answer = ask()
        except psycopg.Error as error:
            if error.sqlstate is None or error.sqlstate in GOING_DOWN:
                self.slot.write(calling=0, lost=1)
                self.journal.write(**about, lost=str(error))
                raise Lost from error
            answer = {"sqlstate": error.sqlstate, "message": str(error)}
        self.slot.write(calling=0)
        self.journal.write(**about, **answer, **more)
        self.slot.write(acknowledged=1)
        return answer

    def row(self, statement, *parameters):
        return self.conn.execute(statement, parameters).fetchone()

    def reserve_row(self, key, token):
        got = self.row("SELECT * FROM idem_reserve(%s, %s, action_type => %s, attempt_id => %s, can_reconcile => true, "
                       "worker => %s)", key, Jsonb({"key": key}), type_of(key), token, self.name)
        return got, {name: getattr(got, name) for name in
                     ("granted", "decision", "action_id", "attempt", "fence", "response")}

    def report(self, function, key, token, action_id, **named):
        """One of the functions that end an attempt."""
        arguments = "".join(f", {name} => %s" for name in named)
        given = [Jsonb(value) if isinstance(value, dict) else value for value in named.values()]

        def ask():
            row = self.row(f"SELECT * FROM {function}(%s, %s{arguments})", action_id, token, *given)
            return {"answer": row[0]}
        return self.call(function, key, token, ask, response=named.get("response"))

    # Work

    def work(self, key):
        if type_of(key) == "local":
            return self.work_locally(key)
        self.work_outside(key, str(uuid.uuid4()))

    def work_locally(self, key):
        """Effect and record in one transaction, business row included."""
        token = str(uuid.uuid4())

        def ask():
            with self.conn.transaction():
                got, kept = self.reserve_row(key, token)
                if got.granted:
                    self.row("INSERT INTO business VALUES (%s, %s) RETURNING 1", key, token)
                    self.row("SELECT idem_commit(%s, %s, response => %s)", got.action_id, token, Jsonb({"by": token}))
            return kept
        self.call("local", key, token, ask)

    def work_outside(self, key, token, again=False):
        asked = time.monotonic()
        try:
            got = self.call("reserve", key, token, lambda: self.reserve_row(key, token)[1], again=again)
        except Lost:
            if self.random.random() < 0.5:
                self.unfinished = lambda: self.work_outside(key, token, again=True)
            raise
        if got.get("decision") in ("execute", "resume"):
            self.execute(key, token, got["action_id"], asked)
        elif got.get("decision") == "reconcile":
            self.look_up(key, token, got["action_id"])

    def execute(self, key, token, action_id, asked):
        chance = self.random.random()
        if time.monotonic() - asked > PUNCTUAL:
            # Somebody may be about to find out what became of this attempt.
            self.report("idem_mark_unknown", key, token, action_id, reason="late")
        elif chance < 0.04:
            self.report("idem_fail", key, token, action_id, proof="not_sent", retryable=True)
        elif chance < 0.06:
            self.report("idem_release", key, token, action_id)
        else:
            effect = self.provider.apply(key, token)
            if chance < 0.12:
                # The provider's answer did not arrive.
                self.report("idem_mark_unknown", key, token, action_id, reason="no answer")
            else:
                self.tell(key, token, action_id, effect)

    def tell(self, key, token, action_id, effect):
        try:
            said = self.report("idem_commit", key, token, action_id, response={"by": token}, resource_id=effect)
        except Lost:
            if self.random.random() < 0.5:
                self.unfinished = lambda: self.tell(key, token, action_id, effect)
            raise
        if said.get("sqlstate") == "ID002":
            self.report("idem_add_evidence", key, token, action_id, finding="applied", resource_id=effect)

    def look_up(self, key, token, action_id):
        effects = self.provider.effects(key)
        if effects:
            by = effects[0].removeprefix("effect of ")
            self.report("idem_resolve", key, token, action_id, finding="applied", response={"by": by},
                        resource_id=effects[0])
        else:
            self.report("idem_resolve", key, token, action_id, finding="not_applied")


# Ways of getting it wrong, for the checker to find


class Naive(Client):
    """An error means that it did not work, so do it again: no question asked."""

    def tell(self, key, token, action_id, effect):
        try:
            self.report("idem_commit", key, token, action_id, response={"by": token}, resource_id=effect)
        except Lost:
            self.provider.apply(key, token)
            raise


class Deaf(Client):
    """Does not look at `granted`."""

    def work_outside(self, key, token, again=False):
        got = self.call("reserve", key, token, lambda: self.reserve_row(key, token)[1])
        if got.get("decision") not in ("replay", None):
            self.provider.apply(key, token)
            if got["granted"]:
                self.report("idem_commit", key, token, got["action_id"], response={"by": token})


class OneTransaction(Client):
    """Calls the outside world in the transaction that reserved, so a crash takes the reservation back only."""

    def work_outside(self, key, token, again=False):
        if type_of(key) == "transfer":
            return  # refused by the extension

        def ask():
            with self.conn.transaction():
                got, kept = self.reserve_row(key, token)
                if got.granted:
                    self.provider.apply(key, token)
                    self.row("SELECT idem_commit(%s, %s, response => %s)", got.action_id, token, Jsonb({"by": token}))
            return kept
        self.call("reserve", key, token, ask)


class Hasty(Client):
    """Takes the end of a lease for permission to repeat the effect."""

    def look_up(self, key, token, action_id):
        effect = self.provider.apply(key, token)
        self.report("idem_resolve", key, token, action_id, finding="applied", response={"by": token}, resource_id=effect)


KINDS = {kind.__name__: kind for kind in (Client, Naive, Deaf, OneTransaction, Hasty)}

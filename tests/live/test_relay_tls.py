"""The reference relay and a server that does TLS: sslmode is honoured, and a certificate is not taken on trust."""

import shutil
import subprocess

import pytest

from cluster import SUPERUSER, Cluster
from relaying import Route, is_empty, prepare, put, relay_program  # noqa: F401  (fixtures among them)
from sessions import value, wait_until

OUTBOX = "relayed"
# Delivers to nobody: connecting to the database is what is looked at.
NOBODY = {"WEBHOOK_URL": "http://127.0.0.1:1/", "WEBHOOK_SECRET": "whsec_c2VjcmV0"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with a certificate for `localhost`, signed by itself; and the certificate."""
    with Cluster(settings={"fsync": False}, preload=False) as cluster:
        certificate, key = cluster.data / "server.crt", cluster.data / "server.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                        "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", certificate],
                       check=True, capture_output=True)
        for file in certificate, key:
            shutil.copymode(cluster.data / "PG_VERSION", file)
            shutil.chown(file, (cluster.data / "PG_VERSION").owner())
        public = tmp_path_factory.mktemp("tls") / "server.crt"
        public.write_bytes(certificate.read_bytes())
        cluster.psql("ALTER SYSTEM SET ssl = on; CREATE EXTENSION pg_idem")
        cluster.restart()
        yield cluster, str(public)


@pytest.fixture
def relay(server, relay_program):  # noqa: F811
    cluster, _ = server

    def start(host, sslmode, **settings):
        dsn = f"host={host} port={cluster.port} user={SUPERUSER} dbname=postgres sslmode={sslmode}"
        return Route(relay_program, dsn, OUTBOX).relay(stderr=subprocess.PIPE, **NOBODY, **settings)
    return start


def test_a_certificate_that_is_known_for_the_name_is_taken(server, relay):
    cluster, certificate = server
    with cluster.connect() as conn:
        prepare(conn, OUTBOX)
        put(conn, OUTBOX, 1)
        for sslmode, ssl in ("require", True), ("prefer", True), ("disable", False):
            with relay("localhost", sslmode, SSL_CERT_FILE=certificate):
                wait_until(lambda: value(conn, """SELECT bool_and(ssl) = %s FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                    WHERE query LIKE '%%idem_outbox%%' AND pid <> pg_backend_pid()""", (ssl,)), 20)


@pytest.mark.parametrize("host, sslmode, known", [("localhost", "require", False), ("localhost", "prefer", False),
                                                  ("127.0.0.1", "require", True)])
def test_any_other_certificate_is_refused(server, relay, host, sslmode, known):
    _, certificate = server
    with relay(host, sslmode, SSL_CERT_FILE=certificate if known else "/dev/null") as process:
        assert "invalid peer certificate" in process.stderr.readline()


def test_a_server_without_tls_is_refused_where_it_is_required(server, relay):
    cluster, certificate = server
    cluster.psql("ALTER SYSTEM SET ssl = off")
    cluster.psql("SELECT pg_reload_conf()")
    with relay("localhost", "require", SSL_CERT_FILE=certificate) as process:
        assert "server does not support TLS" in process.stderr.readline()

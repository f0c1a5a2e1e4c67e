# `make run` and `make test` do all set-up themselves; they need Python 3.11+ and make, nothing else.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete

.PHONY: run test bench lint format setup clean

run: setup
	$(BIN)/harness run

test: setup
	scripts/test.sh

bench: setup
	$(BIN)/python -m benchmarks

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(STAMP)

$(STAMP): lockfiles/controller/requirements.lock pyproject.toml scripts/setup.sh
	PYTHON=$(PYTHON) scripts/setup.sh $(VENV)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

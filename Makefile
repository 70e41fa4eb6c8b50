# Two commands set everything up: `make demo` for a first look, `make test` for the tests.
# Each makes .venv if it is missing.

PYTHON ?= python3
BIN := .venv/bin
# The second name is the one that newer versions of pip read for what they build with.
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/pip install --disable-pip-version-check

.PHONY: demo test lint constraints

demo: .venv/lab
	$(BIN)/smgopt demo

test: .venv/dev
	$(BIN)/pytest

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/lab: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --quiet --editable '.[lab]'
	@touch $@

.venv/dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --quiet --editable '.[lab,dev]'
	@touch $@ .venv/lab

# Pins anew what both commands install, for every platform and version of Python at once. Needs uv.
constraints:
	printf 'hatchling\ntorch==2.13.0\n' | uv pip compile --universal --python-version 3.10 --all-extras \
		--no-annotate --no-header --quiet pyproject.toml - --output-file constraints.txt

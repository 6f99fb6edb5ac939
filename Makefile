# make demo   get a real corpus, train a translator on it, score it, translate with it (MINUTES=3, PAIR=en-ko)
# make test   the tests
# make check  lint, format, types
# Each makes its own .venv the first time.

PYTHON ?= python3
PAIR ?= en-de
MINUTES ?= 10
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test check format prove-multi30k clean

demo: .venv/installed
	$(BIN)/undivided demo --pair $(PAIR) --minutes $(MINUTES) --out demo

test: .venv/installed-dev
	$(BIN)/python -m pytest $(PYTEST)

check: .venv/installed-dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

format: .venv/installed-dev
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks

prove-multi30k: .venv/installed-dev
	$(BIN)/python benchmarks/multi30k.py

.venv/python:
	@echo "setting up .venv (once) …"
	$(PYTHON) -m venv .venv
	@touch $@

.venv/installed: .venv/python pyproject.toml constraints.txt
	$(PIP) torch numpy
	$(PIP) --editable '.[ctranslate2]'
	@touch $@

.venv/installed-dev: .venv/installed
	$(PIP) --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv demo build src/*.egg-info

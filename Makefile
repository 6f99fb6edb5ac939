# make demo   get a real corpus, train a translator on it, score it, translate with it (MINUTES=3, PAIR=en-ko)
# make test   the tests
# make check  lint, format, types
# make sbom   sbom.json: what is installed with it, as CycloneDX
# make prove-damage, prove-shards, prove-multi30k   long proofs, each with a report under docs/
# Each makes its own .venv the first time.

PYTHON ?= python3
PAIR ?= en-de
MINUTES ?= 10
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test check format sbom prove-multi30k prove-damage prove-shards clean

demo: .venv/installed
	$(BIN)/undivided demo --pair $(PAIR) --minutes $(MINUTES) --out demo

test: .venv/installed-dev
	$(BIN)/python -m pytest $(PYTEST)

check: .venv/installed-dev
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/mypy

format: .venv/installed-dev
	$(BIN)/ruff check --fix src tests benchmarks tools
	$(BIN)/ruff format src tests benchmarks tools

sbom: .venv/installed-dev
	$(BIN)/python tools/sbom.py -o sbom.json

prove-multi30k: .venv/installed-dev
	$(BIN)/python benchmarks/multi30k.py

prove-damage: .venv/installed-dev
	$(BIN)/python benchmarks/damage.py

prove-shards: .venv/installed-dev
	-$(PIP) --editable '.[ray]'
	$(BIN)/python benchmarks/shards.py

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

# make demo   get a real corpus, train a translator on it, score it, translate with it (MINUTES=3, PAIR=en-ko)
# make test   the tests
# make check  lint, format, types
# Each makes its own .venv the first time.

PYTHON ?= python3
PAIR ?= en-de
MINUTES ?= 10
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test chromium check format prove-multi30k clean

demo: .venv/installed
	$(BIN)/undivided demo --pair $(PAIR) --minutes $(MINUTES) --out demo

test: .venv/installed-dev chromium
	$(BIN)/python -m pytest $(PYTEST)

# Tests of the page of `undivided look` drive a browser. It is installed where that is allowed; elsewhere they skip and say so.
chromium:
	@for name in chromium chromium-browser google-chrome; do if command -v $$name >/dev/null; then exit 0; fi; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then echo "installing chromium for the tests of the page (once) …"; \
	(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1 \
	|| echo "chromium could not be installed: the tests of the page will skip"; \
	else echo "no chromium, and no right to install it: the tests of the page will skip"; fi

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
	$(PIP) --editable .
	@touch $@

.venv/installed-dev: .venv/installed
	$(PIP) --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv demo build src/*.egg-info

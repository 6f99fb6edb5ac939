# make demo   get a real corpus, train a translator on it, score it, translate with it (MINUTES=3, PAIR=en-ko)
# make test   the tests
# make check  lint, format, types
# make mutants  faults put into a copy of the package, one at a time: a test must notice each (docs/mutants.md)
# make sbom   sbom.json: what is installed with it, as CycloneDX
# make evalb  build EVALB, which the tests compare bracket scores with
# make prove-adversary, prove-damage, prove-relatives, prove-resume, prove-shards, prove-multi30k, prove-formats, prove-import, prove-fine-tuning, prove-export, prove-lines, prove-protection, prove-live, prove-serve   long proofs, each with a report under docs/
# make bench-train, bench-translate, bench-scale, bench-quality, bench-distilled, bench-drafts, bench-best, bench-improve, bench-start, bench-budget, bench-check, bench-sentences, bench-window   speed beside the peers, each with a report under docs/benchmarks/
# Each makes its own .venv the first time.

PYTHON ?= python3
PAIR ?= en-de
MINUTES ?= 10
BIN := .venv/bin
ONNXRUNTIME_WEB := 1.30.0
AXE_CORE := 4.14.0
BERGAMOT := 0.4.9
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: prove-adversary demo test test-unit test-others mutants chromium onnxruntime-web axe-core bergamot check format sbom evalb prove-multi30k prove-damage prove-relatives prove-resume prove-shards clean prove-formats prove-lines prove-import prove-fine-tuning prove-export prove-protection prove-live prove-serve \
	bench-train bench-translate bench-scale bench-quality bench-distilled bench-drafts bench-best bench-improve bench-start bench-budget bench-check bench-sentences bench-window

demo: .venv/installed
	$(BIN)/undivided demo --pair $(PAIR) --minutes $(MINUTES) --out demo

test: .venv/installed-dev chromium onnxruntime-web axe-core bergamot
	@$(MAKE) --no-print-directory evalb || echo "EVALB could not be built; the tests that run it are skipped"
ifdef PYTEST
	$(BIN)/python -m pytest $(PYTEST)
else
	@echo "two processes side by side: tests/unit, and the others"
	@$(MAKE) --no-print-directory --jobs 2 --keep-going test-unit test-others
endif

test-unit:
	$(BIN)/python -m pytest -q tests/unit

test-others:
	$(BIN)/python -m pytest -q tests/browser tests/contract tests/paper tests/reference tests/system

mutants: .venv/installed-dev
	@$(MAKE) --no-print-directory evalb || true
	$(BIN)/python tools/mutants.py $(MUTANTS)

evalb: .venv/evalb/evalb

# Tests of the pages of `undivided look` and `undivided serve` drive a browser. It is installed where that is allowed; elsewhere they skip and say so.
chromium:
	@for name in chromium chromium-browser google-chrome; do if command -v $$name >/dev/null; then exit 0; fi; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then echo "installing chromium for the tests of the page (once) …"; \
	(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1 \
	|| echo "chromium could not be installed: the tests of the page will skip"; \
	else echo "no chromium, and no right to install it: the tests of the page will skip"; fi

# The test of exported ONNX models in a browser needs this package of npm; elsewhere it skips and says so.
onnxruntime-web:
	@if [ -e .venv/web/node_modules/onnxruntime-web ]; then exit 0; fi; \
	if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix .venv/web onnxruntime-web@$(ONNXRUNTIME_WEB) >/dev/null 2>&1 \
	|| echo "onnxruntime-web could not be installed: its test will skip"; else echo "no npm: the test of onnxruntime-web will skip"; fi

# What looks for barriers in the page of `undivided serve`.
axe-core:
	@if [ -e .venv/web/node_modules/axe-core ]; then exit 0; fi; \
	if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix .venv/web axe-core@$(AXE_CORE) >/dev/null 2>&1 \
	|| echo "axe-core could not be installed: its tests will skip"; else echo "no npm: the tests with axe-core will skip"; fi

# Bergamot's WASM, which runs what `undivided export --to bergamot` writes (5 MB).
bergamot:
	@if [ -e .venv/web/node_modules/@browsermt/bergamot-translator ]; then exit 0; fi; \
	if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix .venv/web @browsermt/bergamot-translator@$(BERGAMOT) >/dev/null 2>&1 \
	|| echo "Bergamot's WASM could not be installed: its tests will skip"; else echo "no npm: the tests of Bergamot's WASM will skip"; fi

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

prove-formats: .venv/installed-dev
	$(BIN)/python benchmarks/formats.py

prove-protection: .venv/installed-dev
	$(BIN)/python benchmarks/protection.py

prove-adversary: .venv/installed-dev
	$(BIN)/python benchmarks/adversary.py

prove-lines: .venv/installed-dev
	$(BIN)/python benchmarks/lines.py

prove-fine-tuning: .venv/installed-dev
	$(BIN)/python benchmarks/fine_tuning.py

prove-import: .venv/installed-dev
	$(BIN)/python benchmarks/imports.py

prove-live: .venv/installed-dev chromium
	$(BIN)/python benchmarks/live.py

prove-export: .venv/installed-dev
	$(BIN)/python benchmarks/exports.py

prove-serve: .venv/installed-dev
	$(BIN)/python benchmarks/serve.py $(SERVE)

prove-relatives: .venv/installed-dev
	$(BIN)/python benchmarks/relatives.py

prove-resume: .venv/installed-dev
	$(BIN)/python benchmarks/resume.py

prove-shards: .venv/installed-dev
	$(BIN)/python benchmarks/shards.py

# The peers get venvs of their own under .venv-peers/ the first time.
bench-train bench-translate bench-scale bench-quality bench-distilled bench-drafts bench-best bench-improve bench-start bench-budget bench-check bench-sentences bench-window: bench-%: .venv/installed-dev
	$(BIN)/python benchmarks/$*.py $(BENCH)

.venv/python:
	@echo "setting up .venv (once) …"
	$(PYTHON) -m venv .venv
	@touch $@

.venv/installed: .venv/python pyproject.toml constraints.txt
	$(PIP) torch numpy
	$(PIP) --editable '.[ctranslate2]'
	@touch $@

.venv/installed-dev: .venv/installed
	$(PIP) --editable '.[dev,ray,ray-serve]'
	@touch $@

# EVALB (Sekine and Collins) is public-domain C that this wheel carries. Its fixed buffers are too small for a sentence of 250 words.
.venv/evalb/evalb: .venv/python
	@mkdir -p .venv/evalb
	$(BIN)/python -m pip --disable-pip-version-check download --quiet --no-deps --dest .venv/evalb allennlp==0.9.0
	cd .venv/evalb && ../bin/python -m zipfile --extract allennlp-0.9.0-*.whl wheel && rm allennlp-0.9.0-*.whl
	sed -E 's/(MAX_(WORD|BRACKET)_IN_SENT) +200/\1 5000/; s/match_j\[200\]/match_j[5000]/; s/(MAX_SENT_LEN) +5000/\1 500000/; s/(MAX_WORD_LEN) +100/\1 1000/' \
		.venv/evalb/wheel/allennlp/tools/EVALB/evalb.c > .venv/evalb/evalb.c
	rm -r .venv/evalb/wheel
	$(CC) -O2 -w -o $@ .venv/evalb/evalb.c

clean:
	rm -rf .venv .venv-peers demo build src/*.egg-info

